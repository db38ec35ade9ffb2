package train

import (
	"time"

	"github.com/symgrad/symgrad/machine"
)

// profiledRuns is the number of runs of each kind in a profile.
const profiledRuns = 20

// Profile splits the time of a step on rank 0's GPU, by the device's clock.
type Profile struct {
	RunUS     float64  `json:"run_us"`     // a step without the host's part
	ComputeUS float64  `json:"compute_us"` // at least one stream computes
	CommUS    float64  `json:"comm_us"`    // at least one stream communicates
	ExposedUS float64  `json:"exposed_us"` // communication without computation
	Steps     []string `json:"steps"`      // one line per step of the program: stream, start, end, least time, name
}

// profile measures more steps on GPUs, at the end, when the weights are no longer needed.
//
// Collective: all ranks. Returns: nil on the host, without --json, and with data.accum_steps above
// 1.
func (t *trainer) profile() (*Profile, *float64, error) {
	if !t.rank0Settings.profile || !t.job.site.GPU || t.job.cfg.Data.AccumSteps > 1 {
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
