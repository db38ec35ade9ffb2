package nvshmem

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
	"github.com/symgrad/symgrad/tensor"
)

func TestAnAbortSeesWhatIsAboutToBeQueued(t *testing.T) {
	e := engineOf(4, true)
	e.enter() // an operation has begun, and nothing of it is queued yet
	e.Abort()
	if !e.rt.remains.any() || e.rt.remains.ended() {
		t.Error("the operation that was under way when the group was aborted is taken for ended")
	}
	if err := e.rt.remains.settle("alloc"); !errors.Is(err, dist.ErrAborted) {
		t.Errorf("error %v while an operation of an aborted group is being queued, want ErrAborted", err)
	}
	if err := e.rt.finished(); !errors.Is(err, dist.ErrAborted) {
		t.Errorf("error %v at the end, want ErrAborted", err)
	}
	e.leave()
	if !e.rt.remains.ended() {
		t.Error("nothing is under way any more, and it has not ended")
	}
	if err := e.rt.finished(); !errors.Is(err, dist.ErrAborted) {
		t.Errorf("error %v at the end, want ErrAborted also when nothing is left here: it may be elsewhere", err)
	}
}

func TestACloseDoesNotWaitForACallThatHangs(t *testing.T) {
	rt := bare()
	rt.mu.Lock() // a call of the library, which waits for ever
	if err := rt.finished(); !errors.Is(err, dist.ErrTimeout) {
		t.Errorf("error %v, want ErrTimeout", err)
	}
	rt.mu.Unlock()
	if rt.Left() != nil {
		t.Errorf("left before Close: %v", rt.Left())
	}
	first, second := errors.New("first"), errors.New("second")
	rt.leave(first)
	rt.leave(second)
	if rt.Left() != first {
		t.Errorf("left for %v, want the first reason", rt.Left())
	}
}

func TestWithinEndsBothWays(t *testing.T) {
	turns := 0
	if !within(time.Hour, func() bool { turns++; return turns == 3 }) || turns != 3 {
		t.Errorf("%d turns, want an end after 3", turns)
	}
	if within(0, func() bool { return false }) {
		t.Error("what is never done was done")
	}
}

func TestAGroupWithoutOperationsIsQuiet(t *testing.T) {
	e := engineOf(4, true)
	e.rt.split.teams.add(e.team)
	if err := e.rt.split.quiesce(e.team); err != nil {
		t.Errorf("a team without a group: %v", err)
	}
	e.rt.split.teams.take(e.team, e)
	if err := e.rt.split.quiesce(e.team); err != nil {
		t.Errorf("a group that has queued nothing: %v", err)
	}
	e.last.Store(new(cuda.Stream)) // closed by its owner, who has waited for it
	if err := e.rt.split.quiesce(e.team); err != nil {
		t.Errorf("a group whose stream is closed: %v", err)
	}
	e.used.Store(true)
	e.Abort()
	if !e.rt.remains.any() || !e.rt.remains.ended() {
		t.Error("operations on a stream that was closed before the abort have not ended")
	}
	other := engineOf(4, true)
	other.rt.split.teams.add(other.team)
	other.rt.split.teams.take(other.team, other)
	other.enter()
	other.gone.Store(true)
	if err := other.rt.split.quiesce(other.team); !errors.Is(err, dist.ErrAborted) {
		t.Errorf("a group that is aborted while its operations are waited for: error %v, want ErrAborted", err)
	}
}

// closedStreams parts a group again and again whose last operation ran on a stream that is closed
// by then, into parts of several ranks and of one, and closes them.
func closedStreams(r *rank) error {
	rt, world, err := r.started(small())
	if err != nil {
		return err
	}
	b, err := newBench(r, rt, world, int64(8*3000*r.n()))
	if err != nil {
		return err
	}
	for round := range 3 {
		for _, p := range partsOfTheWorld {
			if err := b.onNewStream(100); err != nil {
				return fmt.Errorf("round %d, before %s: %w", round, p.name, err)
			}
			if err := r.partOnNewStream(b, world, p); err != nil {
				return fmt.Errorf("round %d, %s: %w", round, p.name, err)
			}
		}
	}
	if err := errors.Join(b.close(), world.Close(), rt.Close()); err != nil {
		return err
	}
	if rt.Left() != nil {
		return fmt.Errorf("the library was left: %w", rt.Left())
	}
	return nil
}

// abortedPart aborts a part whose operations have ended, on a stream that is closed by then: memory
// is allocated and freed, and the world parted again, as before; only the library is not finalized.
func abortedPart(r *rank) error {
	rt, world, err := r.started(small())
	if err != nil {
		return err
	}
	b, err := newBench(r, rt, world, int64(8*3000*r.n()))
	if err != nil {
		return err
	}
	for range 2 {
		sub, err := r.split(world.member, 0, r.me())
		if err != nil {
			return err
		}
		part, err := world.Split(sub)
		if err != nil {
			return err
		}
		if err := b.of(part.(*engine)).onNewStream(100); err != nil {
			return err
		}
		if err := sub.Agree(nil); err != nil { // all have ended
			return err
		}
		part.Abort()
		slab, err := rt.Alloc(r.member, 8)
		if err != nil {
			return err
		}
		if err := errors.Join(part.Close(), sub.Control.Close(), slab.Free(), b.onNewStream(100)); err != nil {
			return err
		}
	}
	return errors.Join(b.close(), world.Close(), left(rt))
}

// onNewStream runs an operation on a stream that is closed when it is done.
func (b *bench) onNewStream(count int) error {
	on := *b
	var err error
	if on.stream, err = b.r.dev.NewStream(0); err != nil {
		return err
	}
	err = on.run(example{kind: dist.KindAllReduce, dt: tensor.F32, red: dist.RedSum, count: count, at: placements[2]})
	return errors.Join(err, on.stream.Close())
}

// partOnNewStream parts the world, runs an operation in the part on a stream that is closed then,
// parts that as well, and closes all.
func (r *rank) partOnNewStream(b *bench, world *engine, p part) error {
	color, key := p.of(world.rank, world.size)
	sub, err := r.split(world.member, color, key)
	if err != nil {
		return err
	}
	made, err := world.Split(sub)
	if err != nil || sub == nil {
		return err
	}
	s := made.(*engine)
	in := b.of(s)
	if err := in.onNewStream(10); err != nil {
		return err
	}
	again, err := r.split(sub, 0, sub.Rank)
	if err != nil {
		return err
	}
	nested, err := s.Split(again)
	if err != nil {
		return err
	}
	return errors.Join(b.of(nested.(*engine)).onNewStream(10), nested.Close(), again.Control.Close(), s.Close(), sub.Control.Close())
}

// left is nil when Close leaves the library to the end of the process, without an error.
func left(rt *Runtime) error {
	if err := rt.Close(); err != nil {
		return err
	}
	if rt.Left() == nil {
		return errors.New("the library was finalized")
	}
	fmt.Println("left:", rt.Left())
	return nil
}

// aborts leaves an operation on the GPU that never ends: later calls fail, nothing waits for it,
// and the process ends.
func aborts(r *rank) error {
	rt, e, err := r.started(small())
	if err != nil {
		return err
	}
	b, err := newBench(r, rt, e, 8*1000*8)
	if err != nil {
		return err
	}
	if err := b.copies([]int{100}); err != nil {
		return err
	}
	op, _, err := b.op(example{kind: dist.KindAllReduce, dt: tensor.F32, count: 100, at: placements[0]})
	if err != nil {
		return err
	}
	if err := r.dev.Enter(); err != nil {
		return err
	}
	defer r.dev.Leave()
	if r.me() > 0 { // rank 0 never comes
		if err := e.Enqueue(op, b.stream); err != nil {
			return err
		}
	}
	e.Abort()
	if err := e.Enqueue(op, b.stream); !errors.Is(err, dist.ErrAborted) {
		return fmt.Errorf("an operation after the abort: error %v, want ErrAborted", err)
	}
	if err := e.Close(); err != nil {
		return err
	}
	if r.me() > 0 {
		if idle, err := b.stream.Idle(); idle || err != nil {
			return fmt.Errorf("the stream is idle: %v, error %v, with an operation that cannot end", idle, err)
		}
	}
	if _, err := rt.Alloc(r.member, 8); !errors.Is(err, dist.ErrAborted) {
		return fmt.Errorf("alloc after the abort: error %v, want ErrAborted", err)
	}
	if err := left(rt); err != nil {
		return err
	}
	l := rt.Library()
	if _, err := Start(l, r.member); !errors.Is(err, dist.ErrInvalid) {
		return fmt.Errorf("a start after the abort: error %v, want ErrInvalid", err)
	}
	return nil
}

// oneAborts has one rank abort a group of which all operations have ended: all ranks leave the
// library as it is.
func oneAborts(r *rank) error {
	rt, e, err := r.started(small())
	if err != nil {
		return err
	}
	b, err := newBench(r, rt, e, 8*1000*8)
	if err != nil {
		return err
	}
	if err := errors.Join(b.copies([]int{100}), b.close()); err != nil {
		return err
	}
	if r.me() == r.n()-1 {
		e.Abort()
	}
	return errors.Join(e.Close(), left(rt))
}

// unused aborts a group that has queued nothing: the library is still finalized.
func unused(r *rank) error {
	rt, e, err := r.started(small())
	if err != nil {
		return err
	}
	e.Abort()
	if err := errors.Join(e.Close(), rt.Close()); err != nil {
		return err
	}
	if rt.Left() != nil {
		return fmt.Errorf("the library was left: %w", rt.Left())
	}
	return nil
}

// endless leaves an operation on the GPU that never ends, in a group that no rank has aborted: all
// ranks leave the library.
func endless(r *rank) error {
	rt, e, err := r.started(small())
	if err != nil {
		return err
	}
	b, err := newBench(r, rt, e, 8*1000*8)
	if err != nil {
		return err
	}
	if err := b.copies([]int{100}); err != nil {
		return err
	}
	op, _, err := b.op(example{kind: dist.KindAllReduce, dt: tensor.F32, count: 100, at: placements[0]})
	if err != nil {
		return err
	}
	if r.me() > 0 { // rank 0 never comes
		if err := b.enqueue(op); err != nil {
			return err
		}
	}
	return errors.Join(e.Close(), left(rt))
}

// enqueue queues an operation and does not wait.
func (b *bench) enqueue(op *dist.Op) error {
	if err := b.r.dev.Enter(); err != nil {
		return err
	}
	defer b.r.dev.Leave()
	return b.e.Enqueue(op, b.stream)
}

// abortsAtOnce aborts a group while the first operation of its kind is being queued, on all ranks
// but one, where there is none: whichever comes first, all ranks leave the library, and the process
// ends.
func abortsAtOnce(r *rank) error {
	rt, e, err := r.started(small())
	if err != nil {
		return err
	}
	b, err := newBench(r, rt, e, 8*1000*8)
	if err != nil {
		return err
	}
	op, _, err := b.op(example{kind: dist.KindBroadcast, dt: tensor.F32, count: 100, at: placements[2]})
	if err != nil {
		return err
	}
	if r.me() > 0 {
		var queued error
		var both sync.WaitGroup
		both.Go(func() { queued = b.enqueue(op) })
		if !within(rankTime, e.used.Load) {
			return errors.New("the operation has not begun")
		}
		e.Abort()
		both.Wait()
		if queued != nil && !errors.Is(queued, dist.ErrAborted) {
			return queued
		}
	}
	return errors.Join(e.Close(), left(rt))
}
