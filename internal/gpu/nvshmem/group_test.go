package nvshmem

import (
	"errors"
	"fmt"
	"slices"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/gpu"
	"github.com/symgrad/symgrad/tensor"
)

// split is the member of this rank after a Split of p's control group; nil for none.
func (r *rank) split(p *gpu.Member, color, key int) (*gpu.Member, error) {
	g, err := p.Control.Split(color, key)
	if err != nil || g == nil {
		return nil, err
	}
	return &gpu.Member{Device: r.dev, Rank: g.Rank(), Size: g.Size(), World: g.Ranks(), Control: g.Blocking(), Memory: p.Memory}, nil
}

// part is a color and a key for every rank.
type part struct {
	name string
	of   func(rank, n int) (color, key int)
}

var partsOfTheWorld = []part{
	{"everyone", func(rank, _ int) (int, int) { return 0, rank }},
	{"backwards", func(rank, n int) (int, int) { return 0, n - rank }},
	{"halves", func(rank, n int) (int, int) { return rank / (n / 2), rank }},
	{"even and odd", func(rank, _ int) (int, int) { return rank % 2, rank }},
	{"even and odd, backwards", func(rank, n int) (int, int) { return rank % 2, -rank }},
	{"all but the first", func(rank, _ int) (int, int) { return min(rank, 1) - 1, rank }},
	{"shuffled", func(rank, n int) (int, int) { return 0, rank * 7 % n * 10 }},
	{"everyone alone", func(rank, _ int) (int, int) { return rank, 0 }},
}

func groups(r *rank) error {
	rt, world, err := r.started(small())
	if err != nil {
		return err
	}
	b, err := newBench(r, rt, world, int64(8*3000*r.n()))
	if err != nil {
		return err
	}
	// Twice, and then nested: the second round takes the teams of the first.
	var after [2]int
	for round := range after {
		for _, p := range partsOfTheWorld {
			if err := r.inParts(b, world, p, 2); err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
		}
		used := rt.split.teams.used()
		after[round] = used.count()
	}
	if after[0] != after[1] {
		return fmt.Errorf("%d teams after the first round, %d after the second", after[0], after[1])
	}
	if err := b.copies([]int{100}); err != nil { // the world still works
		return err
	}
	return errors.Join(b.close(), world.Close(), rt.Close())
}

// inParts splits a group, runs operations in the parts, and splits these again until depth is 0.
func (r *rank) inParts(b *bench, e *engine, p part, depth int) error {
	color, key := p.of(e.rank, e.size)
	sub, err := r.split(e.member, color, key)
	if err != nil {
		return err
	}
	made, err := e.Split(sub)
	if err != nil || sub == nil {
		if made != nil {
			return errors.New("a rank in no part has an engine")
		}
		return err
	}
	s := made.(*engine)
	if s.rank != sub.Rank || s.size != sub.Size {
		return fmt.Errorf("the engine has rank %d of %d, the group %d of %d", s.rank, s.size, sub.Rank, sub.Size)
	}
	in := b.of(s)
	for _, x := range []example{
		{kind: dist.KindAllReduce, dt: tensor.F32, red: dist.RedSum, count: 3000},
		{kind: dist.KindAllReduce, dt: tensor.I16, red: dist.RedMax, count: 100},
		{kind: dist.KindReduceScatter, dt: tensor.F64, red: dist.RedAvg, count: 500},
		{kind: dist.KindAllGather, dt: tensor.I32, count: 1000},
		{kind: dist.KindBroadcast, dt: tensor.U8, count: 999, root: s.size - 1},
		{kind: dist.KindScatter, dt: tensor.F16, count: 77},
	} {
		for _, at := range []placement{placements[0], placements[2]} {
			x.at = at
			if err := in.run(x); err != nil {
				return err
			}
		}
	}
	if err := in.meet(); err != nil {
		return err
	}
	if depth > 1 && s.size > 1 {
		for _, again := range []part{partsOfTheWorld[1], partsOfTheWorld[3]} {
			if err := r.inParts(in, s, again, depth-1); err != nil {
				return fmt.Errorf("%s: %w", again.name, err)
			}
		}
	}
	return errors.Join(s.Close(), sub.Control.Close())
}

// teamLimit splits until no team is left: that is an error on every rank, which names the limit,
// and nothing more.
func teamLimit(r *rank) error {
	c := small()
	c.MaxTeams = ownTeams + 3
	rt, world, err := r.started(c)
	if err != nil {
		return err
	}
	var open []gpu.Engine
	for i := range 4 {
		sub, err := r.split(r.member, 0, r.me())
		if err != nil {
			return err
		}
		e, err := world.Split(sub)
		if i == 3 {
			if !errors.Is(err, dist.ErrUnsupported) {
				return fmt.Errorf("group %d of %d ids: error %v, want ErrUnsupported", i, c.MaxTeams, err)
			}
			fmt.Println("refused:", err)
			break
		}
		if err != nil {
			return fmt.Errorf("group %d: %w", i, err)
		}
		open = append(open, e)
	}
	b, err := newBench(r, rt, world, 8*1000*8)
	if err != nil {
		return err
	}
	for _, e := range open { // all at one time, each with a team of its own
		if err := b.of(e.(*engine)).run(example{kind: dist.KindAllReduce, dt: tensor.F32, count: 1000, at: placements[2]}); err != nil {
			return err
		}
	}
	errs := []error{b.close()}
	for _, e := range open {
		errs = append(errs, e.Close())
	}
	return errors.Join(append(errs, world.Close(), rt.Close())...)
}

// lifecycle starts, is refused a second start, stops, and starts again.
func lifecycle(r *rank) error {
	l, err := r.library(small())
	if err != nil {
		return err
	}
	major, minor := l.Spec()
	path, version, ok := l.NCCL()
	fmt.Printf("%v\nplugin %s\nOpenSHMEM %d.%d, NCCL inside: %v %d %s, missing: %v\n", l, l.Plugin(), major, minor, ok, version, path, l.Missing())
	for round := range 2 {
		rt, err := Start(l, r.member)
		if err != nil {
			return fmt.Errorf("start %d: %w", round, err)
		}
		if rt.Rank() != r.me() || rt.Size() != r.n() || rt.Library() != l || rt.Failed() != nil {
			return fmt.Errorf("rank %d of %d, failed %v", rt.Rank(), rt.Size(), rt.Failed())
		}
		if _, err := Start(l, r.member); !errors.Is(err, dist.ErrInvalid) {
			return fmt.Errorf("a second start: error %v, want ErrInvalid", err)
		}
		engines, err := rt.Make(r.member)
		if err != nil {
			return err
		}
		if err := errors.Join(engines[0].Close(), engines[0].Close(), rt.Close(), rt.Close()); err != nil {
			return err
		}
		if _, err := rt.Alloc(r.member, 8); !errors.Is(err, dist.ErrClosed) {
			return fmt.Errorf("alloc after close: error %v, want ErrClosed", err)
		}
	}
	return nil
}

// messages sends every rank's data around, inside and outside of group calls.
func messages(r *rank) error {
	rt, e, err := r.started(small())
	if err != nil {
		return err
	}
	b, err := newBench(r, rt, e, 1<<20)
	if err != nil {
		return err
	}
	for _, bytes := range []int{1, 4096, int(e.team.area.slot), int(e.team.area.slot) + 1, 200000} {
		for _, f := range []func(*bench, int) error{around, pairwise, bothWays, manyToOne} {
			if err := f(b, bytes); err != nil {
				return fmt.Errorf("%d B: %w", bytes, err)
			}
		}
	}
	return errors.Join(b.close(), e.Close(), rt.Close())
}

// letter is message i from one rank to another.
func letter(from, to, i, bytes int) []byte {
	return elements(tensor.U8, bytes, func(k int) int { return (from*5 + to*11 + i*17 + k) % 251 })
}

// post is one message of a script: slot i of the sender's or receiver's room.
func (b *bench) post(kind dist.Kind, peer, i, bytes int) (*dist.Op, error) {
	if kind == dist.KindSend {
		buf, err := b.private.buffer(tensor.U8, b.half+int64(i*bytes), bytes)
		if err != nil {
			return nil, err
		}
		return &dist.Op{Kind: kind, Peer: peer, Count: bytes, Src: buf}, b.private.write(buf, letter(b.rank, peer, i, bytes))
	}
	buf, err := b.private.buffer(tensor.U8, int64(i*bytes), bytes)
	return &dist.Op{Kind: kind, Peer: peer, Count: bytes, Dst: buf}, err
}

// queue runs ops, as one group call or one after the other, and checks the received messages:
// message i of a rank is the i-th that its sender has for it.
func (b *bench) queue(batch bool, ops []*dist.Op, numbers []int) error {
	if err := b.r.dev.Enter(); err != nil {
		return err
	}
	defer b.r.dev.Leave()
	if batch {
		if err := b.e.BeginBatch(b.stream); err != nil {
			return err
		}
	}
	for _, op := range ops {
		if err := b.e.Enqueue(op, b.stream); err != nil {
			return err
		}
	}
	if batch {
		if err := b.e.EndBatch(b.stream); err != nil {
			return err
		}
	}
	if err := b.stream.Synchronize(); err != nil {
		return err
	}
	for i, op := range ops {
		if op.Kind != dist.KindRecv {
			continue
		}
		got, err := b.private.read(op.Dst)
		if err != nil {
			return err
		}
		want := letter(op.Peer, b.rank, numbers[i], op.Count)
		if err := differ(fmt.Sprintf("message %d from rank %d", numbers[i], op.Peer), tensor.U8, got, want); err != nil {
			return err
		}
	}
	return nil
}

// script is ops made from (kind, peer, number) triples.
func (b *bench) script(batch bool, bytes int, steps ...[3]int) error {
	var ops []*dist.Op
	var numbers []int
	for slot, s := range steps {
		number := s[2]
		op, err := b.post(dist.Kind(s[0]), s[1], slot, bytes)
		if err != nil {
			return err
		}
		if op.Kind == dist.KindSend {
			if err := b.private.write(op.Src, letter(b.rank, s[1], number, bytes)); err != nil {
				return err
			}
		}
		ops, numbers = append(ops, op), append(numbers, number)
	}
	return b.queue(batch, ops, numbers)
}

const (
	sends = int(dist.KindSend)
	recvs = int(dist.KindRecv)
)

// around passes a message to the next rank, in a group call.
func around(b *bench, bytes int) error {
	next, previous := (b.rank+1)%b.n, (b.rank+b.n-1)%b.n
	for _, steps := range [][][3]int{
		{{sends, next, 0}, {recvs, previous, 0}},
		{{recvs, previous, 0}, {sends, next, 0}},
	} {
		if err := b.script(true, bytes, steps...); err != nil {
			return fmt.Errorf("around: %w", err)
		}
	}
	return nil
}

// pairwise sends outside of group calls: even ranks first.
func pairwise(b *bench, bytes int) error {
	peer := b.rank ^ 1
	steps := [][3]int{{sends, peer, 0}, {recvs, peer, 0}}
	if b.rank%2 == 1 {
		slices.Reverse(steps)
	}
	if err := b.script(false, bytes, steps...); err != nil {
		return fmt.Errorf("pairwise: %w", err)
	}
	return nil
}

// bothWays has three messages to every peer and from it in one group call, and two to oneself.
func bothWays(b *bench, bytes int) error {
	var steps [][3]int
	for number := range 3 {
		for peer := range b.n {
			if peer != b.rank {
				steps = append(steps, [3]int{sends, peer, number}, [3]int{recvs, peer, number})
			}
		}
	}
	if bytes*len(steps) > 1<<20 {
		return nil // the room is too small for all of them
	}
	steps = append(steps, [3]int{recvs, b.rank, 0}, [3]int{sends, b.rank, 0})
	if err := b.script(true, min(bytes, 1<<20/len(steps)), steps...); err != nil {
		return fmt.Errorf("both ways: %w", err)
	}
	return nil
}

// manyToOne is a gather to rank 0 by messages, where 0 does not receive in the order of the ranks.
func manyToOne(b *bench, bytes int) error {
	steps := [][3]int{{sends, 0, 0}}
	if b.rank == 0 {
		steps = nil
		for peer := b.n - 1; peer > 0; peer-- {
			steps = append(steps, [3]int{recvs, peer, 0})
		}
	}
	if err := b.script(false, bytes, steps...); err != nil {
		return fmt.Errorf("many to one: %w", err)
	}
	return nil
}
