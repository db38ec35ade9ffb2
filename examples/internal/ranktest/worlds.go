package ranktest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/host/shm"
	"github.com/symgrad/symgrad/internal/sim"
)

// Run is the function of a rank, as in rank.Program.
type Run = func(ctx context.Context, w *dist.World, out io.Writer) error

// Worlds runs test as a subtest on a world of n ranks of every backend: sim, shm as between
// processes, and shm in memory that the race detector sees. run executes a Run on all ranks. It
// returns the output of rank 0 and the ranks' errors, joined in the order of ranks.
func Worlds(t *testing.T, n int, test func(t *testing.T, run func(Run) (string, error))) {
	t.Helper()
	for _, backend := range []struct {
		name string
		make func() ([]dist.Transport, error)
	}{
		{"sim", func() ([]dist.Transport, error) { return sim.Transports(n, sim.Config{StepTimeout: hang}) }},
		{"shm", func() ([]dist.Transport, error) { return shm.Local(n, shm.Mapped, shm.Config{StepTimeout: hang}) }},
		{"shm in Go memory", func() ([]dist.Transport, error) { return shm.Local(n, shm.GoMemory, shm.Config{StepTimeout: hang}) }},
	} {
		t.Run(fmt.Sprintf("%s/%d ranks", backend.name, n), func(t *testing.T) {
			test(t, func(run Run) (string, error) {
				t.Helper()
				ctx, cancel := context.WithTimeout(t.Context(), hang)
				defer cancel()
				ends, err := backend.make()
				if err != nil {
					t.Fatal(err)
				}
				return onEvery(ctx, ends, run)
			})
		})
	}
}

// onEvery runs run on every rank. The first rank that fails aborts the world.
func onEvery(ctx context.Context, ends []dist.Transport, run Run) (string, error) {
	var out strings.Builder
	errs := make([]error, len(ends))
	var ranks sync.WaitGroup
	for r, end := range ends {
		ranks.Go(func() {
			w, err := dist.NewWorld(end, dist.LocalInfo{Rank: r, Size: len(ends), Launcher: "none", Job: "test"}, 0, nil)
			if err != nil {
				errs[r] = err
				return
			}
			to := io.Discard
			if r == 0 {
				to = &out
			}
			if err = run(ctx, w, to); err != nil {
				err = fmt.Errorf("rank %d: %w", r, err)
				_ = w.Abort(err) // the others' errors report it
			}
			errs[r] = errors.Join(err, w.Close())
		})
	}
	ranks.Wait()
	return out.String(), errors.Join(errs...)
}
