package train

import (
	"errors"
	"fmt"
	"strings"

	"github.com/symgrad/symgrad/config"
	"github.com/symgrad/symgrad/ops"
	"github.com/symgrad/symgrad/optim"
)

// advice returns the remedies for numbers that are not finite, for these settings. gradient means
// that they were found in a gradient; clipping comes too late for those.
func advice(c *config.Config, gradient bool) string {
	var causes []string
	if scale, dynamic, err := c.Optim.Scale(); err == nil && scale != 0 && !dynamic {
		causes = append(causes, fmt.Sprintf("lower optim.loss_scale=%s, or set it to dynamic", c.Optim.LossScale))
	}
	if c.Comm.WireDType == "f16" {
		causes = append(causes, "set comm.wire_dtype to bf16 or f32, because f16 ends at 65504")
		if c.DDP.Average == "sum" {
			causes = append(causes, "set ddp.average to mean or predivide")
		}
	}
	if len(causes) > 0 {
		return strings.Join(causes, "; or ")
	}
	if gradient {
		return "lower optim.lr, or set optim.skip_nonfinite=true to skip such steps"
	}
	return "lower optim.lr, or set optim.clip_norm"
}

// explained adds the advice to an error about a gradient that is not finite. A GPU reports it some
// steps later, perhaps after the last one.
func explained(err error, c *config.Config) error {
	if !errors.Is(err, optim.ErrNonFinite) {
		return err
	}
	return fmt.Errorf("%w; %s", err, advice(c, true))
}

// plain removes Gorgonia's details (program counter, registers) from a machine's error if one of
// our ops returned it: our errors name rank, operation and bucket. Gorgonia's own errors stay as
// they are.
func plain(err error) error {
	err = ops.Cause(err)
	root := err
	for {
		wrapped, ok := root.(interface{ Cause() error }) // of github.com/pkg/errors, which Gorgonia wraps with
		if !ok {
			break
		}
		root = wrapped.Cause()
	}
	if errors.Unwrap(root) == nil {
		return err
	}
	return root
}
