package train

import (
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
