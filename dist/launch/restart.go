package launch

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"
)

// DefaultPause is the default of SpawnConfig.Pause.
const DefaultPause = time.Second

// longestPause bounds the wait before a restart.
const longestPause = 30 * time.Second

// restarts counts the generations of a job. Each generation has a store, credentials and a job id
// of its own, so that late messages of an earlier one reach none of its ranks.
type restarts struct {
	max        int
	generation int           // of the present start, from 0; on several hosts the launchers agree on it
	last       RankResult    // to blame for the end of the generation before
	best       int           // highest step that a rank to blame had marked
	shortest   time.Duration // before the first restart
	pause      time.Duration // before the next
}

func newRestarts(cfg SpawnConfig) *restarts {
	return &restarts{max: cfg.MaxRestarts, last: RankResult{Rank: -1}, best: NoStep, shortest: cfg.Pause, pause: cfg.Pause}
}

// decide reports whether the job begins again after the failure of end, whose Rank is -1 if no rank
// is to blame. why is the reason against it, or "" if the job has no restarts.
func (r *restarts) decide(end RankResult) (again bool, why string) {
	switch {
	case r.max == 0:
		return false, ""
	case end.Rank >= 0 && end.Rank == r.last.Rank && end.Step >= 0 && end.Step == r.last.Step:
		return false, fmt.Sprintf("rank %d failed twice at %s", end.Rank, stepName(end.Step))
	case r.generation >= r.max:
		return false, fmt.Sprintf("the job has had %d of %d", r.generation, r.max)
	default:
		return true, ""
	}
}

// stepName returns "step 4", or the name of the time before the first step.
func stepName(step int) string {
	if step == 0 {
		return "the preparation of its first step"
	}
	return fmt.Sprintf("step %d", step)
}

// advance begins the next generation. Without progress since the last failure the pause doubles.
//
// Returns: the pause before it.
func (r *restarts) advance(end RankResult) time.Duration {
	if end.Rank < 0 || end.Step > r.best {
		r.pause = r.shortest
	}
	pause := r.pause
	r.pause = min(2*r.pause, longestPause)
	r.last, r.best = end, max(r.best, end.Step)
	r.generation++
	return pause
}

// rest waits, and reports whether ctx has not ended.
func rest(ctx context.Context, pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// outcome is the end of one generation.
type outcome struct {
	Result
	blame RankResult // to blame for a failure; Rank -1 if none
	again bool       // the job begins again
	why   string     // reason against that, or ""
}

// foreign reports whether program is a launcher of other projects, whose exit code may hide a
// failure: mpirun of Open MPI returned 0 after the loss of a host.
func foreign(program string) bool {
	name, _, _ := strings.Cut(filepath.Base(program), ".")
	switch name {
	case "mpirun", "mpiexec", "orterun", "prterun", "prun", "srun", "torchrun":
		return true
	}
	return false
}
