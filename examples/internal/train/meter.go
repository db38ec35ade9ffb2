package train

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/symgrad/symgrad/tensor"
)

// lead has rank 0's decisions for all: settings that may differ between ranks (logging is not part
// of the hash), but that decide which collectives they call.
type lead struct {
	every                 int // steps between two exchanges of losses: log.every
	traceFirst, traceLast int // steps of the timeline, -1 and -2 for none
	verify                bool
	losses                bool // of all steps are to be known: log.losses
	keep                  bool // checkpoints are written: checkpoint.dir
	keepEvery             int  // steps between two: checkpoint.every
	profile               bool // steps are profiled at the end, on GPUs: --json
}

// follow is rank 0's lead.
//
// Collective: all ranks.
func follow(k *talk, j *job) (lead, error) {
	v := []int64{int64(j.cfg.Log.Every), -1, -2, 0, 0, 0, int64(j.cfg.Checkpoint.Every), 0}
	if j.cfg.Log.Trace != "" {
		v[1], v[2] = int64(j.cfg.Log.TraceSteps[0]), int64(j.cfg.Log.TraceSteps[1])
	}
	if j.verify {
		v[3] = 1
	}
	if j.cfg.Log.Losses {
		v[4] = 1
	}
	if j.cfg.Checkpoint.Dir != "" {
		v[5] = 1
	}
	if j.timing.file != "" {
		v[7] = 1
	}
	if err := fromFirst(k, "settings of rank 0's log", v); err != nil {
		return lead{}, err
	}
	return lead{
		every: int(v[0]), traceFirst: int(v[1]), traceLast: int(v[2]), verify: v[3] == 1, losses: v[4] == 1,
		keep: v[5] == 1, keepEvery: int(v[6]), profile: v[7] == 1,
	}, nil
}

// meter is the losses and times of a run. Every rank notes its own; share adds them up over the
// ranks, for many steps at once, so that knowing the loss costs next to nothing.
type meter struct {
	k     *talk
	now   func() time.Duration // since the first step began
	help  string               // remedy for a loss that is not finite
	wild  bool                 // a loss need not be finite: its step is left out
	blind bool                 // the time that ranks wait for communication is unknown: GPUs wait by themselves

	own     []float64     // this rank's parts of losses that have been noted since the last share
	at      []int         // their steps
	stood   time.Duration // how long this rank stood still since the last share, to wait for communication
	samples int           // of all steps so far, all ranks

	losses      []float64 // that have been shared
	firstLoss   int       // step of the first of them
	before      int       // samples of steps that a run before this one has made
	exposed     float64   // seconds, mean over the ranks
	sharedAt    time.Duration
	rateSamples int           // samples when rate was computed
	rateAt      time.Duration // and the time
	rate        float64       // samples per second between the last two shares
}

func newMeter(k *talk) *meter {
	start := time.Now()
	return &meter{k: k, blind: k.w.Device() != tensor.Host, now: func() time.Duration { return time.Since(start) }}
}

// step notes a step: the samples of all ranks, and how long this rank stood still.
func (m *meter) step(samples int, stood time.Duration) {
	m.samples += samples
	m.stood += stood
}

// note notes this rank's part of the loss of a step.
func (m *meter) note(step int, loss float64) {
	m.own, m.at = append(m.own, loss), append(m.at, step)
}

// share adds up the ranks' losses and times since the last call.
//
// Collective: all ranks, after the same steps, with losses of the same steps noted. Errors: a loss
// that is not finite, on all ranks; those of the group.
func (m *meter) share() error {
	from := m.now()
	all := append(slices.Clone(m.own), m.stood.Seconds())
	if err := sum(m.k, "loss", all); err != nil {
		return err
	}
	n := len(m.own)
	for i, loss := range all[:n] {
		if !m.wild && (math.IsNaN(loss) || math.IsInf(loss, 0)) {
			return fmt.Errorf("step %d: the loss is %v; %s", m.at[i], loss, m.help)
		}
	}
	m.losses = append(m.losses, all[:n]...)
	m.exposed += all[n] / float64(m.k.w.Size())
	m.own, m.at = m.own[:0], m.at[:0]
	m.sharedAt = m.now()
	m.stood = m.sharedAt - from // this exchange is communication, too
	if m.sharedAt > m.rateAt {
		m.rate = float64(m.samples-m.rateSamples) / (m.sharedAt - m.rateAt).Seconds()
		m.rateAt, m.rateSamples = m.sharedAt, m.samples
	}
	return nil
}

// curve returns the losses that a checkpoint after so many steps keeps, all or the last one, and
// the step of the first of them. On GPUs losses between two shares are unknown, unless all are
// kept.
func (m *meter) curve(all bool, steps int) (curve, int) {
	kept := m.losses
	if n := len(kept); !all && n > 1 {
		kept = kept[n-1:]
	}
	return kept, steps - len(kept)
}

// loss is that of the last step that has been shared, NaN before the first.
func (m *meter) loss() float64 {
	if len(m.losses) == 0 {
		return math.NaN()
	}
	return m.losses[len(m.losses)-1]
}

// finite is the last loss that is a number, NaN before the first: a step that is left out may have
// none.
func (m *meter) finite() float64 {
	for i := len(m.losses) - 1; i >= 0; i-- {
		if x := m.losses[i]; !math.IsNaN(x) && !math.IsInf(x, 0) {
			return x
		}
	}
	return math.NaN()
}

// exposedPercent returns the share of the time in which the ranks only waited for communication;
// NaN if it is unknown.
func (m *meter) exposedPercent() float64 {
	if m.blind {
		return math.NaN()
	}
	if m.sharedAt <= 0 {
		return 0
	}
	return 100 * m.exposed / m.sharedAt.Seconds()
}

// samplesPerSecond is the mean over all shared steps.
func (m *meter) samplesPerSecond() float64 {
	if m.sharedAt <= 0 {
		return 0
	}
	return float64(m.samples-m.before) / m.sharedAt.Seconds()
}
