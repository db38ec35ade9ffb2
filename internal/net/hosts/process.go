package hosts

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/symgrad/symgrad/internal/net/wire"
)

// process is this process's part in all groups of a world. Its goroutine keeps the wire going and
// handles control messages, so that news arrive while no operation runs.
type process struct {
	w      wire.Wire
	cfg    Config
	rank   int
	hosts  []int    // host of each rank
	names  []string // of hosts, by rank; nil if unknown
	losses *Losses

	waiting atomic.Int32  // operations that poll the wire
	waits   atomic.Uint64 // those that ever did
	applies sync.Mutex    // held while control messages are applied, in order
	ending  chan struct{}
	ended   chan struct{}

	mu     sync.Mutex
	groups map[uint32]*Transport
	locals []*local             // groups on this host
	early  map[uint32][]control // for groups that this rank has not made yet
	nextID uint32
	added  uint32         // newest group
	dead   map[int]string // ranks of the world
	left   map[int]bool   // ranks that close the world
	out    []*outgoing
	in     [4]incoming
	next   int // of in
	beats  beats

	heaps heaps
}

// firstGroup is the number of the world. 0 is for messages about processes.
const firstGroup = 1

// channels are the purposes of messages of one group. Those of heaps serve all groups, by the tags
// of group 0.
const (
	channelControl = iota
	channelRounds
	channelMessages
	channelBodies
	channelBulk
	channelHeap
	channelHeapData
	channelResults
	channels = 8
)

// tag returns the tag of the messages of a channel.
func (t *Transport) tag(channel uint32) uint32 { return t.id*channels + channel }

type outgoing struct {
	req  wire.Request
	data []byte
}

type incoming struct {
	req wire.Request
	buf [controlBytes]byte
}

func newProcess(party Party, cfg Config) *process {
	info := party.Wire.Info()
	p := &process{
		w: party.Wire, cfg: cfg, rank: info.Rank, hosts: party.Hosts, names: party.Names, losses: party.Losses,
		groups: map[uint32]*Transport{}, early: map[uint32][]control{}, dead: map[int]string{}, left: map[int]bool{}, nextID: firstGroup + 1,
		ending: make(chan struct{}), ended: make(chan struct{}),
	}
	p.beats = newBeats(party.Hosts, info.Rank, cfg.Silence, time.Now())
	for i := range p.in {
		p.listen(&p.in[i])
	}
	return p
}

func (p *process) listen(in *incoming) {
	p.w.Recv(&in.req, wire.AnyPeer, channelControl, in.buf[:])
}

// run keeps the wire going until stop.
func (p *process) run() {
	defer close(p.ended)
	var pause wire.Backoff
	var seen uint64 // waits that had begun
	tick := time.NewTicker(25 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-p.ending:
			return
		case now := <-tick.C:
			p.tick(now)
		default:
		}
		began := p.waits.Load()
		active := began != seen || p.waiting.Load() > 0 // operations poll
		seen = began
		if active && time.Since(p.served()) > servedTime {
			select { // a thread that wakes often would take the processor from them
			case <-p.ending:
				return
			case now := <-tick.C:
				p.tick(now)
			}
			continue
		}
		if p.waiting.Load() > 0 {
			time.Sleep(restTime)
			continue
		}
		moved := p.progress()
		switch {
		case p.handle() || moved:
			pause.Reset()
		case p.heaps.service.Load() == nil: // no other rank waits for an answer
			time.Sleep(restTime)
		default:
			pause.Pause()
		}
	}
}

// Times of the goroutine of a process.
const (
	restTime   = 2 * time.Millisecond // between two looks at messages, while none is expected soon
	servedTime = time.Second          // after a request to a heap, in which others are expected
)

// tick sends heartbeats and looks for ranks that are gone. run calls it every 25 ms.
func (p *process) tick(now time.Time) {
	for _, gone := range p.losses.take() {
		if p.lost(gone.peer, gone.how, gone.own) && !gone.own {
			p.lostHost(gone.peer, gone.how)
		}
	}
	p.mu.Lock()
	groups := make([]*Transport, 0, len(p.groups))
	for _, t := range p.groups {
		groups = append(groups, t)
	}
	to, silent := p.beats.due(now)
	p.mu.Unlock()
	for _, t := range groups {
		if t.Broken() == nil {
			if err := t.inner.broken(now); err != nil {
				t.lostNear(err)
			}
		}
	}
	for _, r := range to {
		p.post(r, control{kind: controlBeat, rank: p.rank})
	}
	for _, r := range silent {
		p.lost(r, "no heartbeat for "+p.cfg.Silence.String(), true)
	}
}

// handle applies the control messages that have arrived, and reports whether there were any. While
// another goroutine does so, it returns at once.
func (p *process) handle() bool {
	if !p.applies.TryLock() {
		return false
	}
	defer p.applies.Unlock()
	return p.applyArrived()
}

// settle applies all control messages that have arrived, also more than there are receives. Another
// goroutine may be doing so.
func (p *process) settle() {
	p.applies.Lock()
	defer p.applies.Unlock()
	for p.applyArrived() {
		p.w.Progress()
	}
}

// applyArrived is handle with p.applies held.
func (p *process) applyArrived() bool {
	any := false
	for p.in[p.next].req.Done() {
		in := &p.in[p.next]
		from, n, err := in.req.Result()
		var c control
		if err == nil {
			c, err = parseControl(in.buf[:n])
		}
		p.listen(in)
		p.next = (p.next + 1) % len(p.in)
		any = true
		if err == nil {
			p.apply(from, c)
		}
	}
	p.mu.Lock()
	p.out = slices.DeleteFunc(p.out, func(o *outgoing) bool { return o.req.Done() })
	p.mu.Unlock()
	return any
}

// apply applies a control message of rank from.
func (p *process) apply(from int, c control) {
	p.mu.Lock()
	last := c.group == firstGroup && c.kind == controlLeave
	if p.beats.heard(from, last, time.Now()); last {
		p.left[from] = true
	}
	t := p.groups[c.group]
	if t == nil && c.group > p.added && len(p.early) < 1<<10 {
		p.early[c.group] = append(p.early[c.group], c)
	}
	p.mu.Unlock()
	if s := p.heaps.service.Load(); s != nil && c.kind == controlLeave && c.group == firstGroup {
		s.Left(from)
	}
	switch {
	case c.kind == controlDied:
		p.bury(c.rank, c.text, false)
	case t != nil && c.rank >= 0 && c.rank < len(t.ranks):
		t.news(c)
	}
}

// post sends a control message to a rank of the world, without waiting.
func (p *process) post(to int, c control) {
	o := &outgoing{data: c.appendTo(nil)}
	p.mu.Lock()
	if _, gone := p.dead[to]; gone {
		p.mu.Unlock()
		return
	}
	p.out = append(p.out, o)
	p.mu.Unlock()
	p.w.Send(&o.req, to, channelControl, o.data)
}

// spread sends the reason why t is broken to its other ranks.
func (p *process) spread(t *Transport, c control) {
	c.group, c.a = t.id, t.spans.met.Load()
	for r, w := range t.ranks {
		if r != t.rank {
			p.post(w, c)
		}
	}
}

// add registers a group and applies the messages that came before it.
func (p *process) add(t *Transport) {
	p.mu.Lock()
	p.groups[t.id], p.added = t, t.id
	early := p.early[t.id]
	delete(p.early, t.id)
	dead := make(map[int]string, len(p.dead))
	for r, how := range p.dead {
		dead[r] = how
	}
	p.mu.Unlock()
	for _, c := range early {
		if c.rank >= 0 && c.rank < len(t.ranks) {
			t.news(c)
		}
	}
	for rank, how := range dead { // in any order: the first one breaks the group
		t.failFor(rank, how)
	}
}

func (p *process) remove(t *Transport) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.groups, t.id)
}

// done reports whether all messages have left, and whether all processes have, if they close
// together.
func (p *process) done() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.out) > 0 || !p.w.Info().Joint {
		return len(p.out) == 0
	}
	for r := range p.hosts {
		if _, gone := p.dead[r]; r != p.rank && !gone && !p.left[r] {
			return false
		}
	}
	return true
}

// stop ends the goroutine, waits a moment for messages on their way, and closes the wire. A library
// whose processes close together may wait for messages that a process which has closed cannot take,
// so stop also waits a moment for the other processes.
func (p *process) stop() {
	select {
	case <-p.ending:
		return
	default:
	}
	close(p.ending)
	<-p.ended
	var pause wire.Backoff
	for end := time.Now().Add(p.patience()); time.Now().Before(end); {
		p.handle()
		if p.done() {
			break
		}
		if !p.progress() {
			pause.Pause()
		}
	}
	if s := p.heaps.service.Load(); s != nil {
		_ = s.Close()
	}
	for i := range p.in {
		p.w.Cancel(&p.in[i].req)
	}
	_ = p.w.Close()
}
