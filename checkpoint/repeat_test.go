package checkpoint

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// A program may save one step twice, for example after a fixed number of steps and at the end;
// after going back it saves an earlier step. Rank 1 has done both saves before rank 0 begins the
// first.
func TestRanksMayBeAheadWithTheSameStep(t *testing.T) {
	for _, session := range []string{"", "x"} {
		for _, steps := range [][]int{{5, 5}, {5, 5, 5}, {5, 3}, {5, 3, 5, 6}} {
			for _, async := range []bool{false, true} {
				t.Run(fmt.Sprint(session, steps, async), func(t *testing.T) {
					o := Options{Dir: t.TempDir(), Size: 2, Sharded: true, Async: async, Session: session, Timeout: 50 * time.Millisecond}
					all, err := newSavers(o, quick{})
					if err != nil {
						t.Fatal(err)
					}
					for rank, s := range slices.Backward(all) {
						for _, step := range steps {
							if err := s.Save(metaOf(step), runsOf(model(), step, rank, 2, false)); err != nil {
								t.Errorf("rank %d step %d: %v", rank, step, err)
							}
							if err := s.Wait(); err != nil {
								t.Errorf("rank %d step %d: %v", rank, step, err)
							}
						}
						closed(t, s)
					}
					checkNewest(t, o.Dir, slices.Max(steps))
					found, err := folders(disk{}, o.Dir)
					if distinct := len(slices.Compact(slices.Sorted(slices.Values(steps)))); err != nil || len(found) != distinct {
						t.Errorf("there are %v, want %d checkpoints and nothing else: %v", found, distinct, err)
					}
				})
			}
		}
	}
}

// The remains of a program that was killed in such a save are removed.
func TestLeftoversOfTheSameStepAreRemoved(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"step-00000005.2.tmp", "step-00000005.s-x.12.tmp"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range mustSavers(t, Options{Dir: dir}) {
		closed(t, s)
	}
	if left := names(t, dir); len(left) > 0 {
		t.Errorf("there are still %v", left)
	}
}
