package gpu

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

// times is the products of values that only the program knows: those of constants are exact until
// they are stored.
func times[T float32 | float64](factor T, in ...T) []T {
	out := make([]T, len(in))
	for i, v := range in {
		out[i] = v * factor
	}
	return out
}

func TestGroupOfOneScales(t *testing.T) {
	onGPUs(t, 1, nil, func(m member) error {
		return errors.Join(
			scales(m, []float32{1, -2.5, 1e30}, 0.3, times[float32](0.3, 1, -2.5, 1e30)),
			scales(m, []float64{1, 3}, 0.1, times(0.1, 1, 3)),
			scales(m, []int8{100, -100}, 3, []int8{44, -44}),
			scales(m, []int16{20000}, 2, []int16{-25536}),
			scales(m, []int32{1 << 30}, 5, []int32{1 << 30}),
			scales(m, []int64{-7}, 3, []int64{-21}),
			scales(m, []uint8{200}, 2, []uint8{144}),
			scales(m, []uint16{40000}, 2, []uint16{14464}),
			scales(m, []uint32{1 << 31}, 3, []uint32{1 << 31}),
			scales(m, []uint64{1 << 63}, 3, []uint64{1 << 63}),
			scales(m, []tensor.Float16{tensor.ToFloat16(1.5), tensor.ToFloat16(-0.1)}, tensor.ToFloat16(0.3), []tensor.Float16{
				tensor.ToFloat16(1.5 * tensor.ToFloat16(0.3).Float32()),
				tensor.ToFloat16(tensor.ToFloat16(-0.1).Float32() * tensor.ToFloat16(0.3).Float32()),
			}),
			scales(m, []tensor.BFloat16{tensor.ToBFloat16(1.5)}, tensor.ToBFloat16(0.3), []tensor.BFloat16{
				tensor.ToBFloat16(1.5 * tensor.ToBFloat16(0.3).Float32()),
			}))
	})
}

// scales compares a premulsum, with the factor as a value and in memory, in place and not.
func scales[T tensor.Element](m member, in []T, factor T, result []T) error {
	src, free, err := m.upload(tensor.Of(in))
	if err != nil {
		return err
	}
	dst, free2, err := m.upload(tensor.Of(make([]T, len(in))))
	if err != nil {
		return err
	}
	at, free3, err := m.upload(tensor.Of([]T{factor}))
	if err != nil {
		return err
	}
	var errs []error
	for _, c := range []struct {
		dst tensor.Buffer
		red dist.RedOp
	}{{dst, dist.PreMulSum(factor)}, {dst, dist.PreMulSumAt(at)}, {src, dist.PreMulSumAt(at)}} {
		got := make([]T, len(in))
		err := errors.Join(finish(m.AllReduce(c.dst, src, c.red)), m.download(tensor.Of(got), c.dst))
		for i := range got {
			if err == nil && got[i] != result[i] {
				err = fmt.Errorf("%v: %v times %v is %v, want %v", src.DType(), in[i], factor, got[i], result[i])
			}
		}
		errs = append(errs, err)
	}
	return errors.Join(append(errs, free(), free2(), free3())...)
}

func TestGroupOfOneCopiesItsMessages(t *testing.T) {
	onGPUs(t, 1, nil, func(m member) error {
		src, free, err := m.upload(tensor.Of([]int16{1, 2, 3}))
		if err != nil {
			return err
		}
		dst, free2, err := m.upload(tensor.Of(make([]int16, 3)))
		if err != nil {
			return err
		}
		got := make([]int16, 3)
		err = errors.Join(finish(m.Batch(func(g *dist.Group) error {
			_, err := g.Recv(dst, 0)
			_, err2 := g.Send(src, 0)
			return errors.Join(err, err2)
		})), m.download(tensor.Of(got), dst), free(), free2())
		if err == nil && (got[0] != 1 || got[2] != 3) {
			err = fmt.Errorf("a message to oneself is %v", got)
		}
		_, alone := m.Batch(func(g *dist.Group) error {
			_, err := g.Send(src, 0)
			return err
		})
		return errors.Join(err, want(alone, dist.ErrRoot))
	})
}

func TestGathersFromAllHeaps(t *testing.T) {
	onGroups(t, nil, func(m member) error {
		h, err := m.Heap(1 << 16)
		if err != nil {
			return err
		}
		r, all, err := m.blocks(h)
		if err != nil {
			return err
		}
		if err := m.gathers(m.Group, r, all); err != nil {
			return err
		}
		numbers, err := r.Local().As(tensor.U8)
		if err != nil {
			return err
		}
		_, unsupported := m.AllReduce(numbers, numbers, dist.Sum)
		private, free, err := m.upload(tensor.Of(make([]byte, blockBytes)))
		if err != nil {
			return err
		}
		m.meet()
		misplaced := finish(m.Group.With(dist.Hints{Symmetric: true}).AllGather(all.Local(), private))
		return errors.Join(want(unsupported, dist.ErrUnsupported, "flags"),
			want(misplaced, dist.ErrInvalid, "source", "no symmetric heap"), want(finish(m.Barrier()), dist.ErrMismatch), free())
	})
}

const blockBytes = 64

// blocks is a region of one block, and one of a block for every rank.
func (m member) blocks(h symmetric.Heap) (r, all symmetric.Region, err error) {
	if r, err = h.Alloc(blockBytes); err == nil {
		all, err = h.Alloc(int64(blockBytes * m.Size()))
	}
	return r, all, err
}

// gathers is an error unless the blocks of g's ranks, which are those of m in some order, come to
// all in that order.
func (m member) gathers(g *dist.Group, r, all symmetric.Region) error {
	if err := m.v.Fill(address(r.Local()), byte(1+m.Rank()), blockBytes); err != nil {
		return err
	}
	if err := finish(g.With(dist.Hints{Symmetric: true}).AllGather(all.Local(), r.Local())); err != nil {
		return err
	}
	got := make([]byte, blockBytes*m.Size())
	if err := m.download(tensor.Of(got), all.Local()); err != nil {
		return err
	}
	for i, v := range got {
		if want := byte(1 + g.Ranks()[i/blockBytes]); v != want {
			return fmt.Errorf("byte %d is %d, want %d", i, v, want)
		}
	}
	return nil
}

func TestRanksThatDifferAreToldOnGPUs(t *testing.T) {
	onGroups(t, nil, func(m member) error {
		m.meet()
		call := m.Barrier
		if m.Rank() == 1 {
			call = m.Sync
		}
		first := finish(call())
		_, split := m.Split(0, 0)
		return errors.Join(want(first, dist.ErrMismatch, "operation", "barrier", "sync"),
			want(finish(m.Barrier()), dist.ErrMismatch), want(split, dist.ErrMismatch))
	})
}

func TestRankThatDoesNotComeIsNamed(t *testing.T) {
	onGroups(t, func(c *Config) { c.StepTimeout = time.Second }, func(m member) error {
		m.meet()
		if m.Rank() == 1 {
			return want(m.t.ledger.awaitVerdict(), dist.ErrTimeout, "rank 1")
		}
		return errors.Join(want(finish(m.Barrier()), dist.ErrTimeout, "rank 1"), want(finish(m.Barrier()), dist.ErrTimeout))
	})
}

func TestAbortEndsPendingWork(t *testing.T) {
	onGroups(t, nil, func(m member) error {
		m.meet()
		if m.Rank() == 1 {
			return m.Abort(errors.New("the disk is full"))
		}
		return want(finish(m.Barrier()), dist.ErrAborted, "the disk is full")
	})
}

// lasting is an Unending engine of flags.
type lasting struct{ *flags }

func (lasting) Abort()                          {}
func (lasting) Pace(func(s *cuda.Stream) error) {}

// only is an engine for operations of one kind.
type only struct {
	Engine
	kind dist.Kind
}

func (o only) Name() string { return o.kind.String() }

func (o only) Can(op *dist.Op) error {
	if op.Kind != o.kind {
		return fmt.Errorf("%w: it is for %v", dist.ErrUnsupported, o.kind)
	}
	return nil
}

// lastingSyncs is lasting, for syncs.
type lastingSyncs struct{ only }

func (lastingSyncs) Pace(func(s *cuda.Stream) error) {}

// Small operations have few events. A wait for a stuck operation after a hundred of them must not
// need a new event.
func TestOneThatNobodyCanEndBehindManyOthers(t *testing.T) {
	both := func(c *Config) {
		c.Make = func(p *Member) ([]Engine, error) {
			plain, err := newFlags(p)
			if err != nil {
				return nil, err
			}
			lasts, err := newFlags(p)
			return []Engine{only{plain, dist.KindBarrier}, lastingSyncs{only{lasts, dist.KindSync}}}, err
		}
	}
	onGroups(t, both, func(m member) error {
		for i := range 3 * mostBehind {
			call := m.Barrier
			if i%(mostBehind+mostBehind/2+1) == mostBehind+mostBehind/2 {
				call = m.Sync
			}
			if _, err := call(); err != nil {
				return err
			}
		}
		return finish(m.Barrier())
	})
}

// After stuck operations the driver would block a caller for ever once its queue is full.
func TestOperationsThatNobodyCanEndDoNotFillTheirStream(t *testing.T) {
	lasts := func(c *Config) {
		c.Make = func(p *Member) ([]Engine, error) {
			f, err := newFlags(p)
			return []Engine{lasting{f}}, err
		}
	}
	onGroups(t, lasts, func(m member) error {
		m.meet()
		if m.Rank() == 1 {
			for r := range m.Size() { // all others: a flag that is let go is set once more by the operations behind it
				for began := time.Now(); r != 1 && m.t.ledger.load(r, postedAt) < mostBehind; Rest(time.Since(began)) {
					if time.Since(began) > 10*time.Second {
						return fmt.Errorf("rank %d has issued %d operations only", r, m.t.ledger.load(r, postedAt))
					}
				}
			}
			return m.Abort(errors.New("the disk is full"))
		}
		var err error
		for i := 0; i < 2*mostBehind && err == nil; i++ {
			_, err = m.Barrier()
		}
		if issued := m.t.ledger.round; issued != mostBehind {
			err = errors.Join(err, fmt.Errorf("%d operations were queued before the group broke, want %d", issued, mostBehind))
		}
		err = errors.Join(err, want(finish(m.Barrier()), dist.ErrAborted, "the disk is full"))
		if e, ok := m.t.engines.list[0].(lasting); ok {
			e.flags.Abort() // the process has more tests to run
		}
		return err
	})
}

func TestPartsWorkAndTheWorldAfterThem(t *testing.T) {
	onGroups(t, nil, func(m member) error {
		same, err := m.Split(0, -m.Rank())
		if err != nil {
			return err
		}
		own, err := m.Split(m.Rank(), 0)
		if err != nil {
			return err
		}
		half, err := m.Split(m.Rank()%2, 0)
		if err != nil {
			return err
		}
		if same.Rank() != m.Size()-1-m.Rank() || own.Size() != 1 || half.Size() != (m.Size()+1-m.Rank()%2)/2 {
			return fmt.Errorf("rank %d of the whole, one of %d, one of %d", same.Rank(), own.Size(), half.Size())
		}
		return errors.Join(finish(same.Barrier()), finish(own.Barrier()), finish(half.Barrier()), same.Close(), own.Close(),
			half.Close(), finish(m.Barrier()))
	})
}

func TestPartsKnowTheHeapsMadeBeforeThem(t *testing.T) {
	onGroups(t, nil, func(m member) error {
		before, err := m.Heap(1 << 16)
		if err != nil {
			return err
		}
		part, err := m.Split(0, -m.Rank())
		if err != nil {
			return err
		}
		after, err := m.Heap(1 << 16)
		if err != nil {
			return err
		}
		r, all, err := m.blocks(before)
		if err != nil {
			return err
		}
		late, lateAll, err := m.blocks(after)
		if err != nil {
			return err
		}
		known, whole := m.gathers(part, r, all), m.gathers(m.Group, late, lateAll)
		unknown := finish(part.With(dist.Hints{Symmetric: true}).AllGather(lateAll.Local(), late.Local()))
		return errors.Join(known, whole, want(unknown, dist.ErrInvalid, "made before Split"), part.Close(), after.Close(),
			before.Close(), finish(m.Barrier()))
	})
}

func TestTuneMakesATable(t *testing.T) {
	onGroups(t, nil, func(m member) error {
		table, err := Tune(m.t, Tuning{Kinds: []dist.Kind{dist.KindAllGather}, Smallest: 1 << 10, Largest: 1 << 12, Rounds: 5, Repeats: 3})
		if err != nil {
			return err
		}
		if len(table.Rows) != 3 || !table.Fits(m.v.Name()) || !table.Rows[0].Symmetric || table.Rows[2].Timings[0].Engine != "flags" {
			return fmt.Errorf("table %+v", table)
		}
		all, err := m.t.member.Exchange([]byte(table.Hash()))
		for r := range all {
			if string(all[r]) != string(all[0]) {
				err = errors.Join(err, fmt.Errorf("ranks 0 and %d have different tables", r))
			}
		}
		return err
	})
}
