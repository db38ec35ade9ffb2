package train

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/symgrad/symgrad/tensor"
	"github.com/symgrad/symgrad/train/internal/exchange"
)

// rank0Settings are the settings of rank 0 that decide which collectives all ranks call. Ranks may
// have other values of their own: logging is not part of the hash.
type rank0Settings struct {
	every                 int // steps between exchanges of losses: log.every
	traceFirst, traceLast int // steps of the timeline, -1 and -2 for none
	verify                bool
	losses                bool // the loss of every step is needed: log.losses
	keep                  bool // checkpoints are written: checkpoint.dir
	keepEvery             int  // steps between checkpoints: checkpoint.every
	profile               bool // steps are profiled at the end, on GPUs: --json
}

// settingsOfRank0 returns the settings of rank 0 on all ranks.
//
// Collective: all ranks.
func settingsOfRank0(k *exchange.Values, j *job) (rank0Settings, error) {
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
	if err := exchange.FromFirst(k, "rank 0's settings", v); err != nil {
		return rank0Settings{}, err
	}
	return rank0Settings{
		every: int(v[0]), traceFirst: int(v[1]), traceLast: int(v[2]), verify: v[3] == 1, losses: v[4] == 1,
		keep: v[5] == 1, keepEvery: int(v[6]), profile: v[7] == 1,
	}, nil
}

// meter records losses and times of a run. Every rank notes its own values; share sums those of
// many steps over the ranks at once, so that the loss costs almost nothing.
type meter struct {
	k     *exchange.Values
	now   func() time.Duration // since the first step began
	help  string               // remedy for a loss that is not finite
	wild  bool                 // losses need not be finite: such steps are skipped
	blind bool                 // the wait for communication is unknown: on GPUs the device waits

	own     []float64     // this rank's parts of losses since the last share
	at      []int         // their steps
	stood   time.Duration // wait of this rank for communication since the last share
	samples int           // of all steps so far, all ranks

	losses      []float64 // shared losses
	firstLoss   int       // step of the first of them
	before      int       // samples of the run that this one resumes
	exposed     float64   // seconds, mean over the ranks
	sharedAt    time.Duration
	rateSamples int           // samples when rate was computed
	rateAt      time.Duration // and the time
	rate        float64       // samples per second between the last two shares
}

func newMeter(k *exchange.Values) *meter {
	start := time.Now()
	return &meter{k: k, blind: k.World().Device() != tensor.Host, now: func() time.Duration { return time.Since(start) }}
}

// step notes a step: the samples of all ranks, and this rank's wait for communication.
func (m *meter) step(samples int, stood time.Duration) {
	m.samples += samples
	m.stood += stood
}

// note notes this rank's part of the loss of a step.
func (m *meter) note(step int, loss float64) {
	m.own, m.at = append(m.own, loss), append(m.at, step)
}

// share sums the values that the ranks noted since the last call.
//
// Collective: all ranks, after the same steps, with noted losses of the same steps. Errors: a loss
// that is not finite, on all ranks; those of the group.
func (m *meter) share() error {
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
	m.exposed += all[n] / float64(m.k.World().Size())
	m.own, m.at = m.own[:0], m.at[:0]
	m.sharedAt = m.now()
	m.stood = m.sharedAt - from // this exchange is communication as well
	if m.sharedAt > m.rateAt {
		m.rate = float64(m.samples-m.rateSamples) / (m.sharedAt - m.rateAt).Seconds()
		m.rateAt, m.rateSamples = m.sharedAt, m.samples
	}
	return nil
}

// curve returns the losses for a checkpoint after so many steps, all or the last one, and the step
// of the first. On GPUs the losses between two shares are unknown unless all are requested.
func (m *meter) curve(all bool, steps int) (curve, int) {
	kept := m.losses
	if n := len(kept); !all && n > 1 {
		kept = kept[n-1:]
	}
	return kept, steps - len(kept)
}

// loss returns the last shared loss, NaN before the first.
func (m *meter) loss() float64 {
	if len(m.losses) == 0 {
		return math.NaN()
	}
	return m.losses[len(m.losses)-1]
}

// finite returns the last finite loss, NaN before the first. The loss of a skipped step may not be
// finite.
func (m *meter) finite() float64 {
	for i := len(m.losses) - 1; i >= 0; i-- {
		if x := m.losses[i]; !math.IsNaN(x) && !math.IsInf(x, 0) {
			return x
		}
	}
	return math.NaN()
}

// exposedPercent returns the percentage of time that the ranks waited for communication; NaN if it
// is unknown.
func (m *meter) exposedPercent() float64 {
	if m.blind {
		return math.NaN()
	}
	if m.sharedAt <= 0 {
		return 0
	}
	return 100 * m.exposed / m.sharedAt.Seconds()
}

// samplesPerSecond returns the mean over all shared steps.
func (m *meter) samplesPerSecond() float64 {
	if m.sharedAt <= 0 {
		return 0
	}
	return float64(m.samples-m.before) / m.sharedAt.Seconds()
}
