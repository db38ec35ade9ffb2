package shm

import (
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/conformance"
)

// suiteOn is a conformance.Launch over ranks of this process, with chunks so small that most cases need several.
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

func TestConformanceOnGoMemory(t *testing.T) { conformance.Run(t, suiteOn(local(GoMemory))) }

func TestConformanceOnMappings(t *testing.T) {
	needsMappedMemory(t)
	conformance.Run(t, suiteOn(local(Mapped)))
}

// More ranks than a small machine has cores, looking at each other one by one, and passing the news on. Under the race
// detector, which many ranks make slow and which sees no more in them, it is as many as pass news on at all.
func TestConformanceOfManyRanks(t *testing.T) {
	memory, flat, queued, called := Mapped, []int{8}, []int{5, 9}, []int{11}
	if raceEnabled {
		memory, flat, queued, called = GoMemory, nil, []int{5}, []int{6}
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
		conformance.RunWith(t, conformance.Options{Blocking: true}, suiteWith(Config{ChunkBytes: 1 << 10, touch: touch}, local(memory)))
	}
}

// TestConformanceOverSockets has few ranks: goroutines that wait as processes do hold up each other, and those of
// TestConformanceOfProcesses, which are as many as anywhere, meet over sockets as well.
func TestConformanceOverSockets(t *testing.T) {
	needsMappedMemory(t)
	conformance.RunWith(t, conformance.Options{Ranks: []int{2, 3}}, suiteOn(sockets))
}

// needsMappedMemory skips in race builds tests that hand Go memory from rank to rank through mapped memory.
func needsMappedMemory(t *testing.T) {
	t.Helper()
	if raceEnabled {
		t.Skip("the race detector reports false races on what is published through mapped memory; go memory stands in")
	}
}
