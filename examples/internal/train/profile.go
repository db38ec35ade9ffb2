package train

import (
	"time"

	"github.com/symgrad/symgrad/machine"
)

// profiledRuns is how many runs of each kind a profile measures.
const profiledRuns = 20

// Profile is where the time of a step on rank 0's GPU goes, by the clock of the device.
type Profile struct {
	RunUS     float64  `json:"run_us"`     // a step, one after the other, without the host's part
	ComputeUS float64  `json:"compute_us"` // something computes
	CommUS    float64  `json:"comm_us"`    // something communicates
	ExposedUS float64  `json:"exposed_us"` // something communicates and nothing computes
	Steps     []string `json:"steps"`      // a line for each step of the program: stream, start, end, least time, text
}

// profile measures some more steps on GPUs, whose weights are not used later.
//
// Collective: all ranks. Returns: nil on the host, without --json, and where the program's last run
// was one of several for a step.
func (t *trainer) profile() (*Profile, *float64, error) {
	if !t.lead.profile || !t.job.site.gpu || t.job.cfg.Data.AccumSteps > 1 {
		return nil, nil, nil
	}
	times, err := t.vm.compiled.Profile(profiledRuns)
	if err != nil {
		return nil, nil, err
	}
	share := 100 * times.Share()
	return newProfile(&times), &share, nil
}

func newProfile(times *machine.Timeline) *Profile {
	us := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }
	p := &Profile{RunUS: us(times.Run), ComputeUS: us(times.Compute), CommUS: us(times.Comm), ExposedUS: us(times.Exposed)}
	for i := range times.Steps {
		p.Steps = append(p.Steps, times.Steps[i].String())
	}
	return p
}
