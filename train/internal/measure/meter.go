package measure

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/symgrad/symgrad/tensor"
	"github.com/symgrad/symgrad/train/internal/exchange"
)

// Meter records losses and times of a run. Every rank notes its own values; share sums those of
// many steps over the ranks at once, so that the loss costs almost nothing.
type Meter struct {
	k     *exchange.Values
	now   func() time.Duration // since the first step began
	help  string               // remedy for a loss that is not finite
	wild  bool                 // losses need not be finite: such steps are skipped
	blind bool                 // the wait for communication is unknown: on GPUs the device waits

	own     []float64     // this rank's parts of losses since the last share
	at      []int         // their steps
	stood   time.Duration // wait of this rank for communication since the last share
	samples int           // of all steps so far, all ranks

	losses      Curve   // shared losses
	firstLoss   int     // step of the first of them
	before      int     // samples of the run that this one resumes
	exposed     float64 // seconds, mean over the ranks
	last        recent
	paused      time.Duration // that does not count
	sharedAt    time.Duration
	rateSamples int           // samples when rate was computed
	rateAt      time.Duration // and the time
	rate        float64       // samples per second between the last two shares
}

// recent has the results of the last Share.
type recent struct {
	steps   []int
	losses  []float64
	exposed float64 // percentage of the time since the Share before
}

// New returns a meter of a training that begins now. With skips, losses need not be finite; else
// the error of such a loss ends with help, its remedy.
func New(k *exchange.Values, skips bool, help string) *Meter {
	start := time.Now()
	m := &Meter{k: k, wild: skips, help: help, blind: k.World().Device() != tensor.Host}
	m.now = func() time.Duration { return time.Since(start) - m.paused }
	return m
}

// Pause leaves a time out of all that the meter measures, such as that of an evaluation.
func (m *Meter) Pause(d time.Duration) { m.paused += d }

// Resume sets the counts of the run that this one resumes: its samples and its losses, from step
// first on.
func (m *Meter) Resume(samples int, losses Curve, first int) {
	m.samples, m.before, m.rateSamples = samples, samples, samples
	m.losses, m.firstLoss = losses, first
}

// Step notes a step: the samples of all ranks, and this rank's wait for communication.
func (m *Meter) Step(samples int, stood time.Duration) {
	m.samples += samples
	m.stood += stood
}

// Note notes this rank's part of the loss of a step.
func (m *Meter) Note(step int, loss float64) {
	m.own, m.at = append(m.own, loss), append(m.at, step)
}

// Share sums the values that the ranks noted since the last call.
//
// Collective: all ranks, after the same steps, with noted losses of the same steps. Errors: a loss
// that is not finite, on all ranks; those of the group.
func (m *Meter) Share() error {
	from := m.now()
	all := append(slices.Clone(m.own), m.stood.Seconds())
	if err := exchange.Sum(m.k, "loss", all); err != nil {
		return err
	}
	n := len(m.own)
	for i, loss := range all[:n] {
		if !m.wild && (math.IsNaN(loss) || math.IsInf(loss, 0)) {
			return fmt.Errorf("step %d: the loss is %v; %s", m.at[i], loss, m.help)
		}
	}
	m.losses = append(m.losses, all[:n]...)
	exposed := all[n] / float64(m.k.World().Size())
	m.exposed += exposed
	m.last.steps, m.last.losses = append(m.last.steps[:0], m.at...), append(m.last.losses[:0], all[:n]...)
	m.own, m.at = m.own[:0], m.at[:0]
	m.sharedAt = m.now()
	m.stood = m.sharedAt - from // this exchange is communication as well
	if m.sharedAt > m.rateAt {
		m.last.exposed = 100 * exposed / (m.sharedAt - m.rateAt).Seconds()
		m.rate = float64(m.samples-m.rateSamples) / (m.sharedAt - m.rateAt).Seconds()
		m.rateAt, m.rateSamples = m.sharedAt, m.samples
	}
	return nil
}

// Recent returns the losses of the last Share, with their steps. They are valid until the next.
func (m *Meter) Recent() (steps []int, losses []float64) { return m.last.steps, m.last.losses }

// RecentExposedPercent returns the percentage of time, between the last two shares, that the ranks
// waited for communication; NaN if it is unknown.
func (m *Meter) RecentExposedPercent() float64 {
	if m.blind {
		return math.NaN()
	}
	return m.last.exposed
}

// Curve returns the losses for a checkpoint after so many steps, all or the last one, and the step
// of the first. On GPUs the losses between two shares are unknown unless all are requested.
func (m *Meter) Curve(all bool, steps int) (Curve, int) {
	kept := m.losses
	if n := len(kept); !all && n > 1 {
		kept = kept[n-1:]
	}
	return kept, steps - len(kept)
}

// Loss returns the last shared loss, NaN before the first.
func (m *Meter) Loss() float64 {
	if len(m.losses) == 0 {
		return math.NaN()
	}
	return m.losses[len(m.losses)-1]
}

// Finite returns the last finite loss, NaN before the first. The loss of a skipped step may not be
// finite.
func (m *Meter) Finite() float64 {
	for i := len(m.losses) - 1; i >= 0; i-- {
		if x := m.losses[i]; !math.IsNaN(x) && !math.IsInf(x, 0) {
			return x
		}
	}
	return math.NaN()
}

// ExposedPercent returns the percentage of time that the ranks waited for communication; NaN if it
// is unknown.
func (m *Meter) ExposedPercent() float64 {
	if m.blind {
		return math.NaN()
	}
	if m.sharedAt <= 0 {
		return 0
	}
	return 100 * m.exposed / m.sharedAt.Seconds()
}

// SamplesPerSecond returns the mean over all shared steps.
func (m *Meter) SamplesPerSecond() float64 {
	if m.sharedAt <= 0 {
		return 0
	}
	return float64(m.samples-m.before) / m.sharedAt.Seconds()
}

// Now returns the time since the training began.
func (m *Meter) Now() time.Duration { return m.now() }

// Seconds returns the time from the beginning to the last shared step.
func (m *Meter) Seconds() float64 { return m.sharedAt.Seconds() }

// Samples returns the samples of all ranks so far, with those of the resumed run.
func (m *Meter) Samples() int { return m.samples }

// Rate returns the samples per second between the last two shares.
func (m *Meter) Rate() float64 { return m.rate }

// Losses returns all shared losses, and the step of the first.
func (m *Meter) Losses() (losses Curve, first int) { return m.losses, m.firstLoss }

// Exposed returns the seconds of waiting for communication, a mean over the ranks; nil if it is
// unknown.
func (m *Meter) Exposed() *float64 {
	if m.blind {
		return nil
	}
	return &m.exposed
}
