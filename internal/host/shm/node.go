package shm

import (
	"errors"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/host/reduce"
	"golang.org/x/sys/unix"
)

// Config configures a world. The zero value is usable.
type Config struct {
	StepTimeout  time.Duration // longest wait for a peer in one operation; 0 means 100 s
	InitTimeout  time.Duration // longest wait for all ranks to join; 0 means 60 s
	ChunkBytes   int           // of each of a rank's 4 staging slots; rounded up to 64, at least 8 per rank; equal on all ranks; 0 means 64 KiB
	Dir          string        // tmpfs folder for shared memory; "" means anonymous memory (memfd)
	Unchecked    bool          // do not compare operations across ranks
	Timing       bool          // time every operation, for dist.Work.Elapsed
	TraceEntries int           // of the recorder; 0 means dist.DefaultTraceEntries

	flat  int // most ranks for barriers without dissemination; 0 means flatRanks
	touch int // 1 and -1: whether readers leave lines modified; 0 means reduce.DirtyPays
}

func (c Config) withDefaults() Config {
	if c.StepTimeout == 0 {
		c.StepTimeout = 100 * time.Second
	}
	if c.InitTimeout == 0 {
		c.InitTimeout = 60 * time.Second
	}
	if c.ChunkBytes == 0 {
		c.ChunkBytes = 64 << 10
	}
	if c.flat == 0 {
		c.flat = flatRanks
	}
	if c.touch == 0 && reduce.DirtyPays {
		c.touch = 1
	}
	return c
}

// node is the state that all groups of a rank share: connections, heaps, dead ranks.
type node struct {
	cfg     Config
	rank    int // in the world
	size    int // of the world
	maker   maker
	link    link
	spins   int
	yields  int           // of a wait, before it sleeps
	poll    time.Duration // most of one sleep
	holds   bool          // a sleeping caller keeps its processor of the Go scheduler; see futexWait
	sleepy  int           // waits that skip yields after a long one
	streams int           // see streamApart
	nextID  atomic.Uint64 // numbers the segments of this rank
	heaps   atomic.Pointer[[]*Heap]

	mu     sync.Mutex
	groups []*member
	dead   map[int]string // world rank: reason
}

func newNode(cfg Config, rank, size int, m maker, l link) *node {
	nd := &node{cfg: cfg, rank: rank, size: size, maker: m, link: l, dead: map[int]string{}, spins: spinsShared, sleepy: sleepyWaits}
	if size <= cores() {
		nd.spins = spinsAlone
	}
	nd.yields, nd.poll = yieldsOf(size, cores()), pollInterval
	nd.holds = size > cores() && runtime.GOMAXPROCS(0) > 1
	nd.streams = streamsFrom("/sys/devices/system/cpu/cpu0/cache/index3/size")
	nd.heaps.Store(&[]*Heap{})
	return nd
}

// yieldsOf returns how often a rank yields in a wait before it sleeps.
func yieldsOf(ranks, cores int) int {
	if ranks > manyRanks*cores {
		return yieldsMany
	}
	return yields
}

// streamsFrom returns the total bytes from which stores bypass the cache. It depends on the size of
// the last-level cache, which the kernel reports in the file at path, such as 32768K.
func streamsFrom(path string) int {
	text, err := os.ReadFile(path)
	if err != nil {
		return streamApart
	}
	kib, err := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(string(text)), "K"))
	if err != nil || kib < streamRoomy>>10 {
		return streamApart
	}
	return streamRoomy
}

// cores returns the number of cores that this process may use.
func cores() int {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return 1
	}
	return set.Count()
}

// newID returns a segment number that is unique in the world.
func (nd *node) newID() uint64 { return uint64(nd.rank+1)<<40 | nd.nextID.Add(1) }

// gone is called when the connection to a peer ends. It breaks the peer's groups here, unless the
// peer had closed them.
func (nd *node) gone(peer int, how string) {
	nd.mu.Lock()
	defer nd.mu.Unlock()
	if _, known := nd.dead[peer]; known {
		return
	}
	nd.dead[peer] = how
	for _, m := range nd.groups {
		nd.inherit(m)
		m.lost(peer, how)
	}
}

// inherit breaks m if a death has broken another group of this rank. A rank may die as a
// consequence before it has m; m must name the first death. nd.mu is held.
func (nd *node) inherit(m *member) {
	for _, g := range nd.groups {
		var first *dist.RankError
		if g != m && errors.As(g.ctl.aborted(), &first) {
			m.lost(g.ranks[first.Rank], first.How)
		}
	}
}

func (nd *node) join(m *member) {
	nd.mu.Lock()
	defer nd.mu.Unlock()
	nd.groups = append(nd.groups, m)
	nd.inherit(m)
	for _, w := range m.ranks {
		if how, dead := nd.dead[w]; dead {
			m.lost(w, how)
		}
	}
}

// leave removes m. After that no other goroutine accesses its segment.
func (nd *node) leave(m *member) {
	nd.mu.Lock()
	defer nd.mu.Unlock()
	nd.groups = slices.DeleteFunc(nd.groups, func(x *member) bool { return x == m })
}

func (nd *node) addHeap(h *Heap) {
	nd.mu.Lock()
	defer nd.mu.Unlock()
	next := append(slices.Clone(*nd.heaps.Load()), h)
	nd.heaps.Store(&next)
}

func (nd *node) dropHeap(h *Heap) {
	nd.mu.Lock()
	defer nd.mu.Unlock()
	next := slices.DeleteFunc(slices.Clone(*nd.heaps.Load()), func(x *Heap) bool { return x == h })
	nd.heaps.Store(&next)
}
