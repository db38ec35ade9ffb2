package dist

// World is the group of all ranks of a job, and what a program needs to know of the job.
type World struct {
	*Group
	local LocalInfo
}

// LocalInfo is where this rank runs.
type LocalInfo struct {
	Rank     int    // among the ranks of this host
	Size     int    // ranks on this host
	Launcher string // who started the rank: "symgrad", "openmpi", "slurm", "none"
	Job      string // id of the job; the same on all ranks
}

// NewWorld is the world over t. It owns t. onClose, if not nil, is called once when the world is closed.
//
// Shapes/units: traceEntries as in NewGroup. Errors: those of NewGroup.
func NewWorld(t Transport, local LocalInfo, traceEntries int, onClose func() error) (*World, error) {
	g, err := NewGroup(t, traceEntries)
	if err != nil {
		return nil, err
	}
	if onClose != nil {
		g.adopt(closeFunc(onClose))
	}
	return &World{Group: g, local: local}, nil
}

type closeFunc func() error

func (f closeFunc) Close() error { return f() }

// Local says where this rank runs.
func (w *World) Local() LocalInfo { return w.local }
