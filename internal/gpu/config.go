package gpu

import (
	"fmt"
	"time"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
	"github.com/symgrad/symgrad/tensor"
)

// defaultStepTimeout is the value of a zero StepTimeout.
const defaultStepTimeout = 100 * time.Second

// Config has the parts and settings of a group of GPUs.
type Config struct {
	Device  *cuda.Device   // of this rank; ranks have different ones
	Control *dist.Group    // host group of the ranks; the transport owns it
	Make    Maker          // makes the engines
	Alloc   Allocator      // makes symmetric memory; nil for no heaps
	Choose  DispatchConfig // how to choose an engine

	StepTimeout time.Duration // longest wait for a peer in one operation; 0 means 100 s
	Backend     string        // Info.Backend; "" means "gpu"
	Unchecked   bool          // do not compare operations across ranks
	Precise     bool          // an event after every operation: waiting for one waits for no later one, see Waiting
	Timing      bool          // two more events around every operation, for dist.Work.Elapsed
}

// Validate reports the first wrong setting.
//
// Errors: dist.ErrInvalid.
func (c *Config) Validate() error {
	what := ""
	switch {
	case c.Device == nil:
		what = "no device"
	case c.Control == nil:
		what = "no control group"
	case c.Control.Device() != tensor.Host:
		what = fmt.Sprintf("the control group is on %v, not on the host", c.Control.Device())
	case c.Make == nil:
		what = "no maker of engines"
	case c.StepTimeout < 0:
		what = fmt.Sprintf("negative step timeout %v", c.StepTimeout)
	default:
		return c.Choose.validate()
	}
	return fmt.Errorf("gpu: %w: %s", dist.ErrInvalid, what)
}

func (c *Config) backend() string {
	if c.Backend == "" {
		return "gpu"
	}
	return c.Backend
}
