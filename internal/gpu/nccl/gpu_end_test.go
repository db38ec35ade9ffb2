package nccl

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/gpu"
	"github.com/symgrad/symgrad/internal/gpu/cuda/cudatest"
	"github.com/symgrad/symgrad/internal/sim"
	"github.com/symgrad/symgrad/tensor"
)

// in is this rank in a subgroup of the control group, with the engines of it; nil where it is in
// none.
func (r *rank) in(color, key int) (*rank, error) {
	g, err := r.Control.Split(color, key)
	if err != nil {
		return nil, err
	}
	var sub *gpu.Member
	if g != nil {
		sub = &gpu.Member{
			Device: r.Device, Rank: g.Rank(), Size: g.Size(), World: g.Ranks(), Control: g, Memory: new(gpu.Memory),
		}
	}
	plain, err := r.plain.Split(sub)
	if err != nil {
		return nil, err
	}
	window, err := r.window.Split(sub)
	if err != nil {
		return nil, err
	}
	if sub == nil {
		if plain != nil || window != nil {
			return nil, errors.New("a rank outside of all subgroups has an engine")
		}
		return nil, nil
	}
	s := *r
	s.Member, s.plain, s.window = sub, plain, window
	r.crew.add(&s)
	return &s, nil
}

// Subgroups by color and key compute side by side, with windows of their own, and close by
// themselves.
func TestSubgroupsWorkByThemselves(t *testing.T) {
	for _, n := range []int{2, 4} {
		t.Run(fmt.Sprintf("ranks=%d", n), func(t *testing.T) { onGPUs(t, n, (*rank).splits) })
	}
}

func (r *rank) splits() error {
	for _, c := range []struct{ color, key int }{
		{r.Rank % 2, r.Rank},            // the even and the odd
		{0, -r.Rank},                    // all, the other way round
		{min(r.Rank, 1), 0},             // one rank alone, the others together
		{map[int]int{0: -1}[r.Rank], 0}, // rank 0 in none
	} {
		sub, err := r.in(c.color, c.key)
		if err != nil {
			return err
		}
		if sub == nil {
			continue
		}
		if err = sub.works(); err != nil {
			r.fail(err) // ends those that wait here and in the other subgroups
		}
		if err := errors.Join(err, sub.plain.Close(), sub.window.Close(), sub.Control.Close()); err != nil {
			return err
		}
	}
	return nil
}

// works checks some operations of a subgroup.
func (r *rank) works() error {
	if got := r.plain.(*plain).comm; got.Rank() != r.Rank || got.Size() != r.Size {
		return fmt.Errorf("%v, but rank %d/%d of the control group", got, r.Rank, r.Size)
	}
	for _, kind := range reducing {
		for _, red := range []dist.RedKind{dist.RedSum, dist.RedMax, dist.RedAvg} {
			x := exactly(reduction{kind: kind, dt: tensor.F32, red: red, count: 1003, root: r.Size - 1}, r.Size)
			if err := r.try(r.plain, x); err != nil {
				return err
			}
		}
	}
	if r.Size == 1 || r.lib.Version() < windowVersion {
		return nil
	}
	return r.withSlab(func() error {
		x := exactly(reduction{kind: dist.KindAllReduce, dt: tensor.F32, red: dist.RedSum, count: 1003, promise: true}, r.Size)
		return r.try(r.window, x)
	})
}

// Abort from another thread ends an operation that a rank never joins, and the engine refuses later
// ones.
func TestAbortEndsWhatIsQueued(t *testing.T) {
	onGPUs(t, 2, func(r *rank) error {
		if err := r.do(r.plain, dist.Op{Kind: dist.KindBarrier}); err != nil {
			return err
		}
		began := time.Now()
		var other sync.WaitGroup
		var agreed error
		if r.Rank == 0 {
			if err := r.queue(r.plain, dist.Op{Kind: dist.KindBarrier}); err != nil {
				return err
			}
		}
		other.Go(func() {
			agreed = r.Agree(nil) // rank 0 has queued
			r.plain.Abort()
			r.plain.Abort()
		})
		err := r.s.Synchronize()
		other.Wait()
		if err := errors.Join(err, agreed); err != nil {
			return err
		}
		if took := time.Since(began); took > 5*time.Second {
			return fmt.Errorf("it took %v", took)
		}
		if err := r.queue(r.plain, dist.Op{Kind: dist.KindBarrier}); !errors.Is(err, dist.ErrAborted) {
			return fmt.Errorf("afterwards: error %w, want ErrAborted", err)
		}
		if err := r.plain.(gpu.Batcher).BeginBatch(r.s); !errors.Is(err, dist.ErrAborted) {
			return fmt.Errorf("afterwards: error %w, want ErrAborted", err)
		}
		if err := r.plain.Failed(); err != nil {
			return fmt.Errorf("afterwards: %w", err)
		}
		return nil
	})
}

// A call that itself waits for a peer, as the first message to it does while it connects, ends on
// Abort.
func TestAbortEndsACallThatWaits(t *testing.T) {
	onGPUs(t, 2, func(r *rank) error {
		op := dist.Op{Kind: dist.KindSend, Peer: 1 - r.Rank, Count: 1 << 20}
		var err error
		if op.Src, err = r.buffer(tensor.F32, op.Count, nil); err != nil {
			return err
		}
		var calls sync.WaitGroup
		var queued error
		if r.Rank == 0 {
			calls.Go(func() { queued = r.queue(r.plain, op) })
		}
		r.plain.Abort()
		calls.Wait()
		if queued != nil && !errors.Is(queued, dist.ErrAborted) {
			return fmt.Errorf("error %w, want ErrAborted", queued)
		}
		return r.s.Synchronize()
	})
}

// A communicator that not all ranks come to is given up.
func TestRanksThatDoNotComeAreATimeout(t *testing.T) {
	v := cudatest.Devices(t, 1)[0]
	lib := library(t)
	short := &Library{lib: lib.lib, t: lib.t, version: lib.version, cfg: Config{InitTimeout: 2 * time.Second}}
	id, err := short.NewUniqueID()
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	_, err = short.InitComm(v, id, 0, 2, "alone")
	if !errors.Is(err, dist.ErrTimeout) || !strings.Contains(err.Error(), "rank 0/2") {
		t.Errorf("error %v, want ErrTimeout that names the rank", err)
	}
	if took := time.Since(began); took < 2*time.Second || took > time.Minute {
		t.Errorf("it took %v", took)
	}
}

// Two ranks on one GPU are named before NCCL sees them.
func TestTwoRanksOnOneGPUAreRefused(t *testing.T) {
	v := cudatest.Devices(t, 1)[0]
	lib := library(t)
	worlds, err := sim.New(2, sim.Config{})
	if err != nil {
		t.Fatal(err)
	}
	var ranks sync.WaitGroup
	for i, w := range worlds {
		ranks.Go(func() {
			p := &gpu.Member{Device: v, Rank: i, Size: 2, World: w.Ranks(), Control: w.Group, Memory: new(gpu.Memory)}
			_, err := lib.Make(p)
			if !errors.Is(err, dist.ErrDevice) || !strings.Contains(err.Error(), "ranks 0 and 1") {
				t.Errorf("error %v, want ErrDevice that names both", err)
			}
			if err := w.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	ranks.Wait()
}

// An error of NCCL has the library's text, and the communicator still works.
func TestErrorsCarryTheLibrarysWords(t *testing.T) {
	onGPUs(t, 2, func(r *rank) error {
		e := r.plain.(*plain)
		op := dist.Op{Kind: dist.KindReduce, Root: 7, Count: 1}
		var err error
		if op.Src, err = r.buffer(tensor.F32, 1, nil); err != nil {
			return err
		}
		err = onDevice(r.Device, func() error { return e.Enqueue(&op, r.s) })
		var lib *Error
		if !errors.As(err, &lib) || !errors.Is(err, dist.ErrInvalid) {
			return fmt.Errorf("error %w, want an Error that is ErrInvalid", err)
		}
		for _, part := range []string{"ncclReduce", "reduce f32[1]", fmt.Sprintf("rank %d/2", r.Rank), "invalid argument", "root 7", r.lib.Version().String(), r.lib.Path()} {
			if !strings.Contains(err.Error(), part) {
				return fmt.Errorf("%q does not say %q", err.Error(), part)
			}
		}
		return r.do(e, dist.Op{Kind: dist.KindBarrier})
	})
}
