package dist

// World is the group of all ranks of a job, with information about the job.
type World struct {
	*Group
	local LocalInfo
}

// Members is a *Group or a *World. Code takes it that trains or communicates over any set of ranks.
type Members interface {
	// Members returns the group.
	Members() *Group
}

// LocalInfo describes the host and the launcher of this rank.
type LocalInfo struct {
	Rank     int    // among the ranks of this host
	Size     int    // ranks on this host
	Node     int    // index of this host among those of the job, 0 on one host; -1 if unknown
	Nodes    int    // hosts of the job, 1 on one host; 0 if unknown
	Launcher string // launcher of the rank: "symgrad", "openmpi", "slurm", "none"
	Job      string // id of the job, from the launcher or rank 0; equal on all ranks, unique among jobs of the host
}

// NewWorld returns the world over t. It owns t. onClose, if not nil, is called once when the world
// is closed; it must not close the world itself, since that Close waits for onClose.
//
// Shapes/units: traceEntries as in NewGroup. Errors: those of NewGroup.
func NewWorld(t Transport, local LocalInfo, traceEntries int, onClose func() error) (*World, error) {
	g, err := NewGroup(t, traceEntries)
	if err != nil {
		return nil, err
	}
	if onClose != nil {
		if err := g.c.adopt(closeFunc(onClose)); err != nil {
			return nil, err
		}
	}
	return &World{Group: g, local: local}, nil
}

type closeFunc func() error

func (f closeFunc) Close() error { return f() }

// Local returns the description of this rank's host.
func (w *World) Local() LocalInfo { return w.local }

// Members returns the group of all ranks; nil for no world.
func (w *World) Members() *Group {
	if w == nil {
		return nil
	}
	return w.Group
}
