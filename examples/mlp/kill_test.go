package main

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/symgrad/symgrad/examples/internal/ranktest"
)

// moments is how often a rank is killed: go test ./examples/mlp -run AtAnyMoment -moments 50 -v.
var moments = flag.Int("moments", 6, "moments at which TestARankKilledAtAnyMomentOfASaveIsNamed kills a rank")

// promptly is the time in which the other ranks must end. The promise is 2 s; the rest is for busy
// machines.
const promptly = 20 * time.Second

// phases are the phases of a save, by the content of the folder of checkpoints. After the start of
// a phase, the test polls a random number of times.
var phases = []struct {
	name string
	seen func(names []string) bool
}{
	{"the folder is made", func(names []string) bool { return has(names, "", ".tmp") }},
	{"a file is written", func(names []string) bool { return has(names, ".tmp/", ".safetensors.tmp") }},
	{"a rank has written its file", func(names []string) bool { return has(names, ".tmp/", ".part") }},
	{"the manifest is written", func(names []string) bool { return has(names, ".tmp/", ".json") }},
	{"the checkpoint is whole", func(names []string) bool { return has(names, "", "") }},
}

// has reports whether a name has within in it and ends in end.
func has(names []string, within, end string) bool {
	return slices.ContainsFunc(names, func(s string) bool { return strings.Contains(s, within) && strings.HasSuffix(s, end) })
}

// content is the names in dir, and in its folders.
func content(dir string) []string {
	names, _ := filepath.Glob(filepath.Join(dir, "step-*"))
	inside, _ := filepath.Glob(filepath.Join(dir, "step-*", "*"))
	hidden, _ := filepath.Glob(filepath.Join(dir, "step-*", ".*"))
	return slices.Concat(names, inside, hidden)
}

// A rank is killed while all save at every step, by themselves or in the background, with no
// launcher to tell the others. Each of them ends, and names it.
func TestARankKilledAtAnyMomentOfASaveIsNamed(t *testing.T) {
	const n = 3
	rng := rand.New(rand.NewPCG(1, uint64(*moments)))
	var all []time.Duration
	for i := range *moments {
		victim, phase, looks, every := i%n, phases[i%len(phases)], rng.IntN(200), 1+rng.IntN(3)
		async := fmt.Sprint(i%4 == 3)
		name := fmt.Sprintf("%d: rank %d, %s in step %d, %d looks later, async=%s", i, victim, phase.name, every, looks, async)
		dir := t.TempDir()
		saves := filepath.Join(dir, "saves")
		outcomes, took := ranktest.KillAt(t, n, victim, func(<-chan struct{}) {
			begun, before := time.Now(), fmt.Sprintf("step-%08d", every)
			for time.Since(begun) < time.Minute {
				later := slices.DeleteFunc(content(saves), func(s string) bool { return strings.TrimPrefix(s, saves+"/") < before })
				if phase.seen(later) {
					break
				}
				runtime.Gosched()
			}
			for range looks {
				_ = content(saves)
			}
		}, small(dir, "--set=model.hidden=512,512", "--set=run.max_steps=0", "--set=run.epochs=1000000", "--set=checkpoint.dir="+saves,
			"--set=checkpoint.every=1", "--set=checkpoint.async="+async, "--set=checkpoint.keep=3", "--set=shard.stage=1")...)
		ranktest.WantLost(t, "mlp", victim, outcomes)
		for r, d := range took {
			if r == victim {
				continue
			}
			if all = append(all, d); d > promptly {
				t.Errorf("rank %d ended %v after the death, want within %v", r, d, promptly)
			}
		}
		if t.Failed() {
			t.Fatal(name)
		}
		_ = os.RemoveAll(dir)
	}
	slices.Sort(all)
	t.Logf("%d ranks ended after %v (least), %v (median), %v (most)", len(all), all[0], all[len(all)/2], all[len(all)-1])
}
