package dist

import "sync"

// World is the group of all ranks of a job, with the facts of the job for programs.
type World struct {
	*Group
	local LocalInfo

	mu    sync.Mutex
	kinds map[string]int // of Ordinal
}

// LocalInfo is where this rank runs.
type LocalInfo struct {
	Rank     int    // among the ranks of this host
	Size     int    // ranks on this host
	Launcher string // who started the rank: "symgrad", "openmpi", "slurm", "none"
	Job      string // id of the job, the launcher's or one that rank 0 made; the same on all ranks, unlike other jobs of the host
}

// NewWorld is the world over t. It owns t. onClose, if not nil, is called once when the world is
// closed; it must not close the world itself, since that waits for the Close that has called it.
//
// Shapes/units: traceEntries as in NewGroup. Errors: those of NewGroup.
func NewWorld(t Transport, local LocalInfo, traceEntries int, onClose func() error) (*World, error) {
	g, err := NewGroup(t, traceEntries)
	if err != nil {
		return nil, err
	}
	if onClose != nil {
		if err := g.adopt(closeFunc(onClose)); err != nil {
			return nil, err
		}
	}
	return &World{Group: g, local: local}, nil
}

type closeFunc func() error

func (f closeFunc) Close() error { return f() }

// Local says where this rank runs.
func (w *World) Local() LocalInfo { return w.local }

// Ordinal is how often it has been called for a kind of thing, this time included: the number of
// one that is being made over the world. Names of operations that have it tell in errors and traces
// the second from the first.
//
// Not collective: ranks that make the same things in the same order have the same numbers.
func (w *World) Ordinal(kind string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.kinds == nil {
		w.kinds = map[string]int{}
	}
	w.kinds[kind]++
	return w.kinds[kind]
}
