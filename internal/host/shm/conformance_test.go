package shm

import (
	"runtime"
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/conformance"
	"github.com/symgrad/symgrad/internal/long"
)

// suiteOn is a conformance.Launch over ranks of this process, with chunks so small that most
// cases need several. Each rank may run on a thread of its own, as a process does: a rank that
// sleeps in the kernel then holds up no other.
func suiteOn(world launcher) conformance.Launch {
	return suiteWith(Config{ChunkBytes: 1 << 10}, world)
}

func suiteWith(cfg Config, world launcher) conformance.Launch {
	return func(t *testing.T, n int, opt conformance.LaunchOptions, body func(w *dist.World) error) {
		t.Helper()
		if opt.Die != nil {
			t.Skip("a goroutine cannot be killed; TestKilledRankIsNamedByAllOthers kills processes")
		}
		cfg.StepTimeout = opt.StepTimeout
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(max(n, runtime.GOMAXPROCS(0))))
		errs, err := world(n, cfg, body)
		if err != nil {
			t.Fatal(err)
		}
		for r, err := range errs {
			if err != nil {
				t.Errorf("rank %d: %v", r, err)
			}
		}
	}
}

// Under the race detector 7 ranks take minutes and show no more than 4. Two ranks have paths of
// their own.
func TestConformanceOnGoMemory(t *testing.T) {
	var opt conformance.Options
	if raceEnabled {
		opt.Ranks = []int{2, 4}
	}
	conformance.RunWith(t, opt, suiteOn(local(GoMemory)))
}

func TestConformanceOnMappings(t *testing.T) {
	needsMappedMemory(t)
	conformance.Run(t, suiteOn(local(Mapped)))
}

// TestConformanceOfManyRanks has more ranks than a small machine has cores. They look at each
// other one by one, or pass news on. Short tests have the fewest ranks that pass news on.
func TestConformanceOfManyRanks(t *testing.T) {
	memory, flat, queued, called := Mapped, []int(nil), []int{5}, []int{6}
	if raceEnabled { // it finds no more in more ranks
		memory = GoMemory
	} else if long.Enabled() {
		flat, queued, called = []int{8}, []int{5, 9}, []int{11}
	}
	tree := suiteWith(Config{ChunkBytes: 1 << 10, flat: 4}, local(memory))
	if flat != nil {
		conformance.RunWith(t, conformance.Options{Ranks: flat}, suiteOn(local(memory)))
	}
	conformance.RunWith(t, conformance.Options{Ranks: queued}, tree)
	conformance.RunWith(t, conformance.Options{Ranks: called, Blocking: true}, tree)
}

func TestConformanceOnCallers(t *testing.T) {
	memory := Mapped
	if raceEnabled {
		memory = GoMemory
	}
	for _, touch := range []int{1, -1} {
		cfg := Config{ChunkBytes: 1 << 10, touch: touch}
		opt := conformance.Options{Ranks: someRanks(), Blocking: true}
		conformance.RunWith(t, opt, suiteWith(cfg, local(memory)))
	}
}

// TestConformanceOverSockets has few ranks: goroutines that wait as processes do hold up each
// other, and those of TestConformanceOfProcesses, which are as many as anywhere, meet over sockets
// as well.
func TestConformanceOverSockets(t *testing.T) {
	needsMappedMemory(t)
	conformance.RunWith(t, conformance.Options{Ranks: []int{2, 3}}, suiteOn(sockets))
}

// someRanks lists the world sizes for suites that also run with other memory or configurations.
func someRanks() []int {
	if raceEnabled {
		return []int{3}
	}
	if long.Enabled() {
		return []int{1, 2, 3, 4, 7}
	}
	return []int{1, 2, 3, 4}
}

// needsMappedMemory skips in race builds tests that hand Go memory from rank to rank through mapped
// memory.
func needsMappedMemory(t *testing.T) {
	t.Helper()
	if raceEnabled {
		t.Skip("the race detector reports false races on what is published through mapped memory; go memory stands in")
	}
}
