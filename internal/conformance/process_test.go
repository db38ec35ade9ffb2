package conformance

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/sim"
)

// openAlone gives every process a world of one rank.
func openAlone(context.Context, LaunchOptions) (*dist.World, error) {
	worlds, err := sim.New(1, sim.Config{})
	if err != nil {
		return nil, err
	}
	return worlds[0], nil
}

// rankOfProcess returns the rank in the environment.
func rankOfProcess() string { return os.Getenv("SYMGRAD_RANK") + "/" + os.Getenv("SYMGRAD_WORLD_SIZE") }

// sharedFolder is a folder of this test and of the processes that it starts.
func sharedFolder(t *testing.T) string {
	t.Helper()
	const name = "CONFORMANCE_TEST_FOLDER"
	if _, ok := roleOf(flag.Args()); !ok {
		t.Setenv(name, t.TempDir())
	}
	return os.Getenv(name)
}

func TestProcessesRunTheBodyOnEveryRank(t *testing.T) {
	folder := sharedFolder(t)
	launch := Processes(openAlone)
	for _, name := range []string{"one", "with (odd) name/of $two levels"} {
		t.Run(name, func(t *testing.T) {
			made := len(name) // what the test has made before is there
			for round := range 2 {
				launch(t, 3, LaunchOptions{}, func(w *dist.World) error {
					if w.Size() != 1 {
						return errors.New("another world than was opened")
					}
					file := fmt.Sprintf("%d-%d-%s", made, round, strings.ReplaceAll(rankOfProcess(), "/", "of"))
					return os.WriteFile(filepath.Join(folder, file), fmt.Append(nil, os.Getpid()), 0o600)
				})
			}
			var who []string // process ids
			for round := range 2 {
				for rank := range 3 {
					text, err := os.ReadFile(filepath.Join(folder, fmt.Sprintf("%d-%d-%dof3", made, round, rank)))
					if err != nil {
						t.Fatal(err)
					}
					who = append(who, string(text))
				}
			}
			slices.Sort(who)
			if len(slices.Compact(who)) != 6 || slices.Contains(who, fmt.Sprint(os.Getpid())) {
				t.Errorf("bodies ran in processes %v, of which %d is this one", who, os.Getpid())
			}
		})
	}
}

func TestProcessesTellHowRanksFail(t *testing.T) {
	body := func(*dist.World) error {
		switch rankOfProcess() {
		case "1/5":
			fmt.Println("what it printed")
			return errors.New("what it returned")
		case "2/5":
			panic("what it panicked with")
		case "3/5":
			os.Exit(0)
		case "4/5":
			t.Skip("a rank that skips has not come to its part")
		}
		return nil
	}
	if _, ok := roleOf(flag.Args()); ok {
		Processes(openAlone)(t, 5, LaunchOptions{}, body)
		return
	}
	errs := spawnRanks(t, 5, 1, nil)
	if errs[0] != nil {
		t.Errorf("rank 0: %v", errs[0])
	}
	for r, words := range [][]string{
		1: {"exit status 1", "what it printed", "what it returned"},
		2: {"exit status 2", "what it panicked with"},
		3: {"without reaching its launch"},
		4: {"without reaching its launch", "a rank that skips"},
	} {
		for _, word := range words {
			if errs[r] == nil || !strings.Contains(errs[r].Error(), word) {
				t.Errorf("rank %d: error %v does not say %q", r, errs[r], word)
			}
		}
	}
}

// A rank that shall die is killed when it reaches its operation; not reaching it is a failure.
func TestProcessesKillARank(t *testing.T) {
	die := LaunchOptions{Die: &Die{Rank: 1, Op: 2}}
	launch := Processes(openAlone)
	t.Run("as told", func(t *testing.T) {
		launch(t, 2, die, func(w *dist.World) error { return sums(w.Group, &space{}, 3) })
	})
	t.Run("too few operations", func(t *testing.T) {
		if _, ok := roleOf(flag.Args()); ok {
			launch(t, 2, die, func(w *dist.World) error { return sums(w.Group, &space{}, 1) })
			return
		}
		errs := spawnRanks(t, 2, 1, die.Die)
		if errs[0] != nil || errs[1] == nil || !strings.Contains(errs[1].Error(), "should have killed itself") {
			t.Errorf("errors %v", errs)
		}
	})
}

// A world over a world behaves like that world until the operation of its death.
func TestDyingWorldIsAWorld(t *testing.T) {
	never := func() { t.Error("it died") }
	err := drive(t, 3, sim.Config{}, straight, func(w *dist.World) error {
		own, err := dyingWorld(w, math.MaxUint64, never)
		if err != nil {
			return err
		}
		return errors.Join(Suite(own, Options{Large: 1009}), own.Close())
	})
	if err != nil {
		t.Error(err)
	}
}

func TestDyingWorldDiesInItsOperation(t *testing.T) {
	w, err := openAlone(t.Context(), LaunchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	own, err := dyingWorld(w, 3, func() { panic("dead") })
	if err != nil {
		t.Fatal(err)
	}
	if err := sums(own.Group, &space{}, 2); err != nil {
		t.Fatal(err)
	}
	func() {
		defer func() {
			if recover() != "dead" {
				t.Error("the third operation was started")
			}
		}()
		_, _ = own.Barrier()
	}()
	if err := own.Close(); err != nil {
		t.Error(err)
	}
}

func TestTailKeepsTheEnd(t *testing.T) {
	var w tail
	for i := range 10000 {
		fmt.Fprintf(&w, "line %d\n", i)
	}
	text := w.String()
	if !strings.HasPrefix(text, "...\n") || !strings.HasSuffix(text, "line 9999\n") || len(text) > 2*tailBytes+4 || len(text) < tailBytes {
		t.Errorf("%d bytes, %q ... %q", len(text), text[:20], text[len(text)-20:])
	}
}
