package sim

import (
	"fmt"
	"sync"
	"time"

	"github.com/symgrad/symgrad/dist"
)

// defaultStepTimeout is the value of a zero StepTimeout.
const defaultStepTimeout = 100 * time.Second

// Config has the settings of a simulated world. The zero value is usable.
type Config struct {
	StepTimeout  time.Duration // longest wait for a peer in one operation; 0 means 100 s
	Unchecked    bool          // do not compare operations across ranks
	Timing       bool          // time every operation, for dist.Work.Elapsed
	TraceEntries int           // of each group's recorder; 0 means dist.DefaultTraceEntries
	Script       string        // faults, see the package comment; "" means none
}

// Validate reports the first wrong setting of a world of n ranks.
//
// Errors: dist.ErrInvalid; one in the script names its line.
func (c Config) Validate(n int) error {
	switch {
	case n < 1:
		return fmt.Errorf("sim: %w: a world of %d ranks", dist.ErrInvalid, n)
	case c.StepTimeout < 0:
		return fmt.Errorf("sim: %w: negative step timeout %v", dist.ErrInvalid, c.StepTimeout)
	case c.TraceEntries < 0:
		return fmt.Errorf("sim: %w: negative number of trace entries %d", dist.ErrInvalid, c.TraceEntries)
	}
	_, err := parseScript(c.Script, n)
	return err
}

// New returns a world of n ranks; the index in the result is the rank. Each may be used from its
// own goroutine.
//
// Owns: the caller closes every one. Errors: those of Config.Validate.
func New(n int, cfg Config) ([]*dist.World, error) {
	ends, err := Transports(n, cfg)
	if err != nil {
		return nil, err
	}
	worlds := make([]*dist.World, n)
	for r, t := range ends {
		local := dist.LocalInfo{Rank: r, Size: n, Nodes: 1, Launcher: "none", Job: "sim"}
		if worlds[r], err = dist.NewWorld(t, local, cfg.TraceEntries, nil); err != nil {
			for _, w := range worlds[:r] {
				_ = w.Close()
			}
			return nil, err
		}
	}
	return worlds, nil
}

// Transports returns the ends of a world of n ranks, for callers that wrap them before they make
// groups. It ignores TraceEntries.
//
// Owns: the caller closes every one. Errors: those of Config.Validate.
func Transports(n int, cfg Config) ([]dist.Transport, error) {
	if err := cfg.Validate(n); err != nil {
		return nil, err
	}
	faults, err := parseScript(cfg.Script, n)
	if err != nil {
		return nil, err
	}
	if cfg.StepTimeout == 0 {
		cfg.StepTimeout = defaultStepTimeout
	}
	u := &universe{cfg: cfg, faults: faults, begun: make([]uint64, n)}
	ranks := make([]int, n)
	for r := range ranks {
		ranks[r] = r
	}
	b := u.newBoard(ranks)
	b.scripted = true
	ends := make([]dist.Transport, n)
	for r := range ends {
		ends[r] = newTransport(b, r)
	}
	return ends, nil
}

// universe is shared by all ranks of a simulated world.
type universe struct {
	cfg    Config
	faults []fault

	mu     sync.Mutex // guards everything below, and every board
	begun  []uint64   // by world rank: the newest operation begun in the world's group
	boards []*board
	heaps  int // number of heaps so far, to name them
}

// kill breaks every group of a world rank. The lock is not held.
func (u *universe) kill(rank int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, b := range u.boards {
		b.bury(rank)
	}
}
