package nvshmem

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/gpu"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
	"github.com/symgrad/symgrad/tensor"
)

// engineName is the name of the engine in tables and settings.
const engineName = "nvshmem"

// engine implements the operations of one group, as a gpu.Engine and gpu.Batcher.
type engine struct {
	rt         *Runtime
	member     *gpu.Member
	rank, size int
	team       *team                       // nil in a group of one
	last       atomic.Pointer[cuda.Stream] // of the last operation; nil before the first

	batch batch
	args  *cuda.Args // of the scaling kernels
	pace  func(s *cuda.Stream) error

	gone   atomic.Bool  // aborted
	used   atomic.Bool  // has queued anything, or is about to
	busy   atomic.Int32 // number of enqueueing calls in progress
	closed bool
}

var (
	_ gpu.Engine    = (*engine)(nil)
	_ gpu.Batcher   = (*engine)(nil)
	_ gpu.Unending  = (*engine)(nil)
	_ gpu.Allocator = (*Runtime)(nil)
)

// Make is a gpu.Maker. It returns the engine of the group that the runtime was started on.
//
// Collective: all ranks of p. Errors, the same on all ranks: dist.ErrUnsupported for another group;
// those of a first, checked sum over all ranks.
func (rt *Runtime) Make(p *gpu.Member) ([]gpu.Engine, error) {
	if !rt.isWorld(p) {
		return nil, refused("make", dist.ErrUnsupported, "the group is not that of the runtime, which has %d ranks", rt.member.Size)
	}
	var world *team
	if p.Size > 1 {
		if world = rt.split.teams.find(teamWorld); world == nil {
			world = rt.split.worldTeam()
		}
	}
	t, err := rt.split.splitTeam(p, world, p)
	if err != nil {
		return nil, err
	}
	e, err := rt.newEngine(p, t)
	if err != nil {
		return nil, err
	}
	return []gpu.Engine{e}, nil
}

// newEngine returns the engine of p on team t, after a first sum. Collective: all ranks of p.
func (rt *Runtime) newEngine(p *gpu.Member, t *team) (*engine, error) {
	e := &engine{rt: rt, member: p, rank: p.Rank, size: p.Size, team: t}
	args, err := cuda.NewArgs(scaleArgs)
	if err != nil {
		return nil, err
	}
	e.args = args
	if t == nil {
		return e, nil
	}
	rt.split.teams.take(t, e)
	err = p.Agree(rt.pool.reset(&t.area))
	if err == nil {
		err = p.Agree(e.firstSum())
	}
	if err != nil {
		e.Abort()
		rt.split.teams.release(t, true)
		return nil, err
	}
	return e, nil
}

// firstSumTime limits the first sum. A rank that could not queue its part reports it only
// afterwards.
const firstSumTime = time.Minute

// firstSum sums a number of each rank. It detects broken connections. NCCL connects at first use,
// and here no other operation waits for it.
func (e *engine) firstSum() (err error) {
	v, a := e.rt.dev, &e.team.area
	if err := v.Enter(); err != nil {
		return err
	}
	defer v.Leave()
	s, err := v.NewStream(0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	e.used.Store(true)
	value, want := int32(e.rank+1), int32(e.size*(e.size+1)/2)
	if err := v.CopyFromHost(a.in(), unsafe.Pointer(&value), 4); err != nil {
		return err
	}
	// The first launch loads kernels of the library, which waits for all running work: here none
	// runs.
	to := e.reduced(tensor.I32, dist.RedSum)
	err = errors.Join(e.sync(s), e.reduceCall(s, to, a.in(), 1, tensor.I32, dist.RedSum),
		e.teamCall(&e.rt.lib.t.barrier, "nvshmemx_barrier_on_stream", s))
	if err != nil {
		return err
	}
	if err := e.rt.firstSumEnds(s); err != nil {
		return err
	}
	if err := v.CopyToHost(unsafe.Pointer(&value), to, 4); err != nil {
		return err
	}
	if value != want {
		return fmt.Errorf("nvshmem: the first sum of %d ranks is %d instead of %d: %s", e.size, value, want, e.rt.lib)
	}
	e.used.Store(false)
	return nil
}

// Name implements gpu.Engine.
func (e *engine) Name() string { return engineName }

// Can implements gpu.Engine.
func (e *engine) Can(op *dist.Op) error {
	switch op.Kind {
	case dist.KindAllReduce, dist.KindReduce, dist.KindReduceScatter:
		return e.canReduce(op)
	case dist.KindSend, dist.KindRecv:
		if e.team != nil && e.team.area.slot == 0 {
			return refused(op.Kind.String(), dist.ErrUnsupported, "the staging area has mailboxes for at most %d ranks, the group has %d", mostFlags, e.size)
		}
		return nil
	case dist.KindBroadcast, dist.KindAllGather, dist.KindAllToAll, dist.KindGather, dist.KindScatter, dist.KindBarrier, dist.KindSync:
		return nil
	case dist.KindBatch:
		for i := range op.Ops {
			if err := e.Can(&op.Ops[i]); err != nil {
				return err
			}
		}
		return nil
	}
	return refused(op.Kind.String(), dist.ErrUnsupported, "NVSHMEM has no such operation")
}

// canReduce implements Can for reductions.
func (e *engine) canReduce(op *dist.Op) error {
	dt, red := op.DType(), op.Red.Kind
	if typeName(dt) == "" {
		return refused(op.Kind.String(), dist.ErrUnsupported, "elements of type %v", dt)
	}
	if red == dist.RedPreMulSum || red == dist.RedAvg && e.size > 1 {
		if e.rt.scale == nil {
			return fmt.Errorf("nvshmem: %v %v: %w: NVSHMEM lacks it, and our kernel for it is missing: %w", op.Kind, red, dist.ErrUnsupported, e.rt.why)
		}
		red = dist.RedSum
	}
	if e.size == 1 {
		return nil
	}
	if opName(red) == "" || red.Bitwise() && dt.IsFloat() {
		return refused(op.Kind.String(), dist.ErrUnsupported, "reduction %v", red)
	}
	p := &e.rt.red().reduce[dt][red]
	if op.Kind == dist.KindReduceScatter {
		p = &e.rt.red().scatter[dt][red]
		if c := e.scatterLimit(dt, red); c == 0 {
			return refused(op.Kind.String(), dist.ErrUnsupported, "the scratch memory of NVSHMEM's own kernel is too small for %d ranks", e.size)
		}
	}
	if p.Err() != nil {
		return unsupported(fmt.Sprintf("%v %v %v", op.Kind, dt, red), p)
	}
	return nil
}

// red returns the table of reductions.
func (rt *Runtime) red() *reductions { return &rt.lib.red }

// Enqueue implements gpu.Engine.
func (e *engine) Enqueue(op *dist.Op, s *cuda.Stream) error {
	e.enter()
	defer e.leave()
	if err := e.ready(op.Kind, s); err != nil {
		return err
	}
	e.last.Store(s)
	if op.Kind == dist.KindBatch {
		return e.whole(op, s)
	}
	if e.batch.open && op.Kind.PointToPoint() {
		return e.batch.add(op)
	}
	return e.run(op, s)
}

// enter and leave enclose every enqueue. An Abort before enter is seen by ready. A later Abort sees
// that an operation is or will be queued.
func (e *engine) enter() {
	e.busy.Add(1)
	e.used.Store(true)
}

func (e *engine) leave() { e.busy.Add(-1) }

// ready returns nil while operations can be queued on s.
func (e *engine) ready(kind dist.Kind, s *cuda.Stream) error {
	switch {
	case e.gone.Load():
		return refused(kind.String(), dist.ErrAborted, "the group was aborted")
	case e.closed:
		return refused(kind.String(), dist.ErrClosed, "the group is closed")
	}
	e.rt.mu.Lock()
	defer e.rt.mu.Unlock()
	if err := e.rt.open(kind.String()); err != nil {
		return err
	}
	return e.rt.usable(kind.String(), s)
}

// run queues one operation.
func (e *engine) run(op *dist.Op, s *cuda.Stream) error {
	if e.team == nil {
		return e.alone(op, s)
	}
	switch op.Kind {
	case dist.KindAllReduce:
		return e.allReduce(op, s)
	case dist.KindReduce:
		return e.reduce(op, s)
	case dist.KindReduceScatter:
		return e.reduceScatter(op, s)
	case dist.KindAllGather:
		return e.allGather(op, s)
	case dist.KindBroadcast:
		return e.broadcast(op, s)
	case dist.KindAllToAll:
		return e.allToAll(op, s)
	case dist.KindGather:
		return e.gather(op, s)
	case dist.KindScatter:
		return e.scatter(op, s)
	case dist.KindSend:
		return e.send(s, op.Peer, address(op.Src), op.Src.Bytes())
	case dist.KindRecv:
		return e.recv(s, op.Peer, address(op.Dst), op.Dst.Bytes())
	case dist.KindBarrier:
		return e.teamCall(&e.rt.lib.t.barrier, "nvshmemx_barrier_on_stream", s)
	case dist.KindSync:
		return e.sync(s)
	}
	return refused(op.Kind.String(), dist.ErrUnsupported, "NVSHMEM has no such operation")
}

// alone is run for a group of one: an operation is at most a copy.
func (e *engine) alone(op *dist.Op, s *cuda.Stream) error {
	dst, src, bytes := address(op.Dst), address(op.Src), op.Src.Bytes()
	switch {
	case op.Kind == dist.KindBarrier || op.Kind == dist.KindSync:
		return nil
	case op.Kind.PointToPoint():
		return refused(op.Kind.String(), dist.ErrUnsupported, "a message to the own rank outside of a group call")
	case op.Kind.Reduces() && op.Red.Kind == dist.RedPreMulSum:
		return e.multiply(op, s, dst, src, int64(op.Src.Len()))
	case dst == src || op.Dst.IsZero() || op.Src.IsZero():
		return nil
	}
	return s.Copy(dst, src, bytes)
}

// address returns the address of a buffer.
func address(b tensor.Buffer) uintptr { return uintptr(b.Pointer()) }

// Failed implements gpu.Engine.
func (e *engine) Failed() error {
	if e.gone.Load() {
		return refused("group", dist.ErrAborted, "the group was aborted")
	}
	return e.rt.Failed()
}

// Pace implements gpu.Unending.
func (e *engine) Pace(before func(s *cuda.Stream) error) { e.pace = before }

// paced calls the function of Pace before a collective of the library.
func (e *engine) paced(s *cuda.Stream) error {
	if e.pace == nil { // the first sum
		return nil
	}
	return e.pace(s)
}

// Abort implements gpu.Engine. NVSHMEM cannot cancel queued work: kernels that wait for a peer run
// until the process ends, which they do not delay. Other open groups go on. While such kernels run,
// memory is not allocated or freed and groups are not split, because the library would wait for the
// whole device. The library is not finalized.
func (e *engine) Abort() {
	if e.gone.Swap(true) || e.team == nil {
		return
	}
	used := e.used.Load()
	e.rt.split.teams.release(e.team, used)
	if used {
		e.rt.remains.add(e)
	}
}

// Split implements gpu.Engine.
func (e *engine) Split(sub *gpu.Member) (gpu.Engine, error) {
	if e.gone.Load() || e.closed {
		return nil, refused("split", dist.ErrClosed, "the group is closed or aborted")
	}
	t, err := e.rt.split.splitTeam(e.member, e.team, sub)
	if err != nil {
		return nil, err
	}
	var made *engine
	if sub != nil {
		made, err = e.rt.newEngine(sub, t)
	}
	if err := e.member.Agree(err); err != nil {
		if made != nil {
			err = errors.Join(err, made.Close())
		}
		return nil, err
	}
	if made == nil {
		return nil, nil // this rank is in no part
	}
	return made, nil
}

// Close implements gpu.Engine. The team is reused by the next group of the same ranks.
func (e *engine) Close() error {
	if e.closed {
		return nil
	}
	e.closed = true
	if e.team != nil && !e.gone.Load() {
		e.rt.split.teams.release(e.team, false)
	}
	return e.batch.close()
}
