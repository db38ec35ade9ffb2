package hosts

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/net/wire"
)

// Defaults of Config.
const (
	defaultStepTimeout = 100 * time.Second
	defaultSlotBytes   = 48 << 10 // with the headers of some ranks, below the 64 KiB from which Open MPI asks the receiver first
	defaultChainBytes  = 64 << 10
	defaultSilence     = 4 * time.Second

	defaultMessageBytes = 20 << 10
)

// Config has the settings of a world of several hosts. The zero value is usable.
type Config struct {
	StepTimeout time.Duration // longest wait for a peer in one operation; 0 means 100 s
	Timing      bool          // time every operation, for dist.Work.Elapsed
	SlotBytes   int           // most bytes of one rank in one exchange; 0 means 48 KiB
	ChainBytes  int           // least bytes of a reduction in chunks; 0 means 64 KiB
	// MessageBytes is the bytes that a network moves in the time of a short message. It decides
	// between chains and parts. 0 means 20 KiB: 20 us at 1 GB/s.
	MessageBytes int
	Fast         bool          // large sums of floats need not have the bits of one host
	Silence      time.Duration // a host that is silent for so long is lost; 0 means 4 s
}

func (c Config) withDefaults() Config {
	if c.StepTimeout == 0 {
		c.StepTimeout = defaultStepTimeout
	}
	if c.SlotBytes == 0 {
		c.SlotBytes = defaultSlotBytes
	}
	if c.ChainBytes == 0 {
		c.ChainBytes = defaultChainBytes
	}
	if c.MessageBytes == 0 {
		c.MessageBytes = defaultMessageBytes
	}
	if c.Silence == 0 {
		c.Silence = defaultSilence
	}
	return c
}

// Party is one rank's access to the ranks of a job.
type Party struct {
	Wire   wire.Wire      // of all ranks; the number of a process is its rank
	Inner  dist.Transport // of the ranks of this host, in the order of their ranks
	Hosts  []int          // host of each rank
	Names  []string       // name of each rank's host, for errors; nil for none
	Losses *Losses        // news of processes that are gone; nil for none
}

// Losses collects the processes that are gone. Its Lost is the OnLost of the wire.
type Losses struct {
	mu   sync.Mutex
	news []loss
}

// loss is the end of a process.
type loss struct {
	peer int
	how  string
	own  bool // only this process may know
}

// Lost adds a process that the wire of this process finds gone.
func (l *Losses) Lost(peer int, how string) { l.add(loss{peer, how, true}) }

// Announced adds a process that all others hear of by the same means, as from a store.
func (l *Losses) Announced(peer int, how string) { l.add(loss{peer, how, false}) }

func (l *Losses) add(gone loss) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.news = append(l.news, gone)
}

// take returns the processes since the last call.
func (l *Losses) take() []loss {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	news := l.news
	l.news = nil
	return news
}

// check reports the first contradiction in p.
func (p *Party) check() error {
	info := p.Wire.Info()
	if len(p.Hosts) != info.Size {
		return fmt.Errorf("%w: hosts of %d ranks, and the wire has %d processes", dist.ErrInvalid, len(p.Hosts), info.Size)
	}
	near := 0
	for r, h := range p.Hosts {
		if h == p.Hosts[info.Rank] {
			if r == info.Rank && near != p.Inner.Info().Rank {
				return fmt.Errorf("%w: rank %d is rank %d of its host, and its transport says %d", dist.ErrInvalid, r, near, p.Inner.Info().Rank)
			}
			near++
		}
	}
	if have := p.Inner.Info().Size; have != near {
		return fmt.Errorf("%w: %d ranks on this host, and their transport has %d", dist.ErrInvalid, near, have)
	}
	return nil
}

// Open returns the transport of the world of all ranks. It takes the inner transport and the wire,
// which it closes with the world.
//
// Collective: all ranks, same settings. Errors: ErrInvalid of dist for a Party that contradicts
// itself; those of the inner transport's heap.
func Open(party Party, cfg Config) (dist.Transport, error) {
	if err := party.check(); err != nil {
		return nil, fmt.Errorf("hosts: %w", err)
	}
	p := newProcess(party, cfg.withDefaults())
	if party.Inner.Info().Size == len(party.Hosts) {
		w := p.newLocal(party.Inner, true)
		w.enlist()
		go p.run()
		return w, nil
	}
	ranks := make([]int, len(party.Hosts))
	for r := range ranks {
		ranks[r] = r
	}
	t, err := p.newTransport(firstGroup, ranks, party.Inner)
	if err != nil {
		return nil, fmt.Errorf("hosts: %w", err)
	}
	p.add(t)
	go p.run()
	// No rank breaks the group, and with it the transports of hosts, while another still makes its
	// end. An error here has broken the group: its operations return it.
	if err := t.agreeOnOrder(); err == nil {
		_ = t.openColumn()
	}
	return &world{t}, nil
}

// world is the transport of a world: its Close also ends the process's part.
type world struct{ *Transport }

// Close implements dist.Transport.
func (w *world) Close() error {
	err := w.Transport.Close()
	w.p.stop()
	return err
}

// layout is the places of a group's ranks.
type layout struct {
	host    int     // of this rank, in members
	members [][]int // ranks of each host, ascending; hosts in the order of their first rank
	hostOf  []int   // host of each rank, in members
	slot    []int   // place of each rank's data: host by host
	far     []int   // hosts other than this one
	leads   bool    // this rank is the first of its host, which exchanges messages for all
	ordered bool    // the ranks of each host follow each other
}

// newLayout returns the layout of a group. hosts is the host of each rank of the world.
func newLayout(ranks, hosts []int, rank int) layout {
	l := layout{hostOf: make([]int, len(ranks)), slot: make([]int, len(ranks)), ordered: true}
	var known []int
	for r, w := range ranks {
		h := slices.Index(known, hosts[w])
		if h < 0 {
			h = len(known)
			known = append(known, hosts[w])
			l.members = append(l.members, nil)
		}
		l.members[h] = append(l.members[h], r)
		l.hostOf[r] = h
	}
	next := 0
	for h, m := range l.members {
		for _, r := range m {
			l.slot[r] = next
			l.ordered = l.ordered && r == next
			next++
		}
		if h != l.hostOf[rank] {
			l.far = append(l.far, h)
		}
	}
	l.host = l.hostOf[rank]
	l.leads = l.members[l.host][0] == rank
	return l
}
