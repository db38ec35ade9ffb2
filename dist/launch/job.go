package launch

import (
	"context"
	"encoding/hex"
	"fmt"

	"github.com/symgrad/symgrad/dist"
)

// jobKey is rank 0's key for the id of a job whose launcher gives none.
const jobKey = "launch: id of the job"

// NameJob sets the job id of e if its launcher gives none, as MPICH's does: rank 0 makes one for
// all.
//
// Collective: all ranks, over the store of their Rendezvous. Errors: those of the store.
func NameJob(ctx context.Context, e *Env, store dist.Store) error {
	if e.Job != "" {
		return nil
	}
	if e.Rank == 0 {
		if err := store.Set(ctx, jobKey, []byte(JobName(*e))); err != nil {
			return fmt.Errorf("id of the job: %w", err)
		}
	}
	job, err := store.Get(ctx, jobKey)
	if err != nil {
		return fmt.Errorf("id of the job: %w", err)
	}
	e.Job = string(job)
	return nil
}

// JobName returns the id of the job if the launcher gives one, and otherwise a new one, which all
// ranks must use.
func JobName(e Env) string {
	if e.Job != "" {
		return e.Job
	}
	return e.Launcher + "-" + hex.EncodeToString(randomBytes(8))
}
