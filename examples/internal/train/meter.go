package train

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

// lead is what rank 0 decides for all: settings that ranks may well have otherwise (what is logged is not part of the
// hash), and that yet decide which collectives they call.
type lead struct {
	every                 int // steps between two exchanges of losses: log.every
	traceFirst, traceLast int // steps of the timeline, -1 and -2 for none
	verify                bool
}

// follow is rank 0's lead.
//
// Collective: all ranks.
func follow(w *dist.World, j *job) (lead, error) {
	v := []int64{int64(j.cfg.Log.Every), -1, -2, 0}
	if j.cfg.Log.Trace != "" {
		v[1], v[2] = int64(j.cfg.Log.TraceSteps[0]), int64(j.cfg.Log.TraceSteps[1])
	}
	if j.verify {
		v[3] = 1
	}
	if err := done(w.Named("what rank 0 logs").Broadcast(tensor.Of(v), tensor.Of(v), 0)); err != nil {
		return lead{}, err
	}
	return lead{every: int(v[0]), traceFirst: int(v[1]), traceLast: int(v[2]), verify: v[3] == 1}, nil
}

// meter is the losses and times of a run. Every rank notes its own; share adds them up over the ranks, for many steps at
// once, so that knowing the loss costs next to nothing.
type meter struct {
	w   *dist.World
	now func() time.Duration // since the first step began

	own     []float64     // this rank's part of the losses of the steps since the last share
	stood   time.Duration // how long this rank stood still since the last share, to wait for communication
	samples int           // of all steps so far, all ranks

	losses      []float64 // of the steps that have been shared
	exposed     float64   // seconds, mean over the ranks
	sharedAt    time.Duration
	rateSamples int           // samples when rate was computed
	rateAt      time.Duration // and the time
	rate        float64       // samples per second between the last two shares
}

func newMeter(w *dist.World) *meter {
	start := time.Now()
	return &meter{w: w, now: func() time.Duration { return time.Since(start) }}
}

// step notes a step: this rank's part of its loss, the samples of all ranks, and how long this rank stood still.
func (m *meter) step(loss float64, samples int, stood time.Duration) {
	m.own = append(m.own, loss)
	m.samples += samples
	m.stood += stood
}

// share adds up what the ranks have noted since the last call.
//
// Collective: all ranks, after the same steps. Errors: a loss that is not finite, on all ranks; those of the group.
func (m *meter) share() error {
	from := m.now()
	all := append(slices.Clone(m.own), m.stood.Seconds())
	if err := sum(m.w, "loss", all); err != nil {
		return err
	}
	n := len(m.own)
	for i, loss := range all[:n] {
		if math.IsNaN(loss) || math.IsInf(loss, 0) {
			return fmt.Errorf("step %d: the loss is %v; lower optim.lr, or set optim.clip_norm", len(m.losses)+i, loss)
		}
	}
	m.losses = append(m.losses, all[:n]...)
	m.exposed += all[n] / float64(m.w.Size())
	m.own = m.own[:0]
	m.sharedAt = m.now()
	m.stood = m.sharedAt - from // this exchange is communication, too
	if m.sharedAt > m.rateAt {
		m.rate = float64(m.samples-m.rateSamples) / (m.sharedAt - m.rateAt).Seconds()
		m.rateAt, m.rateSamples = m.sharedAt, m.samples
	}
	return nil
}

// loss is that of the last step that has been shared, NaN before the first.
func (m *meter) loss() float64 {
	if len(m.losses) == 0 {
		return math.NaN()
	}
	return m.losses[len(m.losses)-1]
}

// exposedPercent is how much of the time the ranks stood still to wait for communication.
func (m *meter) exposedPercent() float64 {
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
	return float64(m.samples) / m.sharedAt.Seconds()
}
