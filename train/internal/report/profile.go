package report

import (
	"time"

	"github.com/symgrad/symgrad/machine"
)

// Profile splits the time of a step on rank 0's GPU, by the device's clock.
type Profile struct {
	RunUS     float64  `json:"run_us"`     // a step without the host's part
	ComputeUS float64  `json:"compute_us"` // at least one stream computes
	CommUS    float64  `json:"comm_us"`    // at least one stream communicates
	ExposedUS float64  `json:"exposed_us"` // communication without computation
	Steps     []string `json:"steps"`      // one line per step of the program: stream, start, end, least time, name
}

// NewProfile returns the profile of a timeline of a step.
func NewProfile(times *machine.Timeline) *Profile {
	us := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }
	p := &Profile{RunUS: us(times.Run), ComputeUS: us(times.Compute), CommUS: us(times.Comm), ExposedUS: us(times.Exposed)}
	for i := range times.Steps {
		p.Steps = append(p.Steps, times.Steps[i].String())
	}
	return p
}
