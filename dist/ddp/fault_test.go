package ddp_test

import (
	"errors"
	"fmt"
	"hash"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chewxy/hm"
	"go.uber.org/goleak"
	G "gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/internal/long"
	"github.com/symgrad/symgrad/internal/sim"
	"github.com/symgrad/symgrad/ops"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// gate is the identity; in the backward pass it calls back.
type gate struct {
	name string
	back func() error
}

func (o *gate) Arity() int    { return 1 }
func (o *gate) Type() hm.Type { return hm.NewFnType(hm.TypeVariable('a'), hm.TypeVariable('a')) }
func (o *gate) InferShape(ds ...G.DimSizer) (gtensor.Shape, error) {
	return ds[0].(gtensor.Shape).Clone(), nil
}
func (o *gate) Do(in ...G.Value) (G.Value, error) { return G.CloneValue(in[0]) }
func (o *gate) ReturnsPtr() bool                  { return true }
func (o *gate) CallsExtern() bool                 { return false }
func (o *gate) OverwritesInput() int              { return -1 }
func (o *gate) WriteHash(h hash.Hash)             { fmt.Fprint(h, o) }
func (o *gate) Hashcode() uint32                  { return uint32(len(o.String())) }
func (o *gate) String() string                    { return "gate " + o.name }
func (o *gate) DiffWRT(n int) []bool              { return []bool{true} }
func (o *gate) SymDiff(_ G.Nodes, _, grad *G.Node) (G.Nodes, error) {
	n, err := G.ApplyOp(&gateBack{gate{o.name + " back", o.back}}, grad)
	return G.Nodes{n}, err
}

type gateBack struct{ gate }

func (o *gateBack) Do(in ...G.Value) (G.Value, error) {
	if err := o.back(); err != nil {
		return nil, err
	}
	return G.CloneValue(in[0])
}

// gated is the perceptron with a gate between its first and its second layer: when the backward
// pass comes to it, the gradients of the layers above are there, 976 bytes of them, and those of
// the first are not.
func gated(back func() error) family {
	f := mlp
	f.layers = func(b *build, x *G.Node) *G.Node {
		h := G.Must(G.Tanh(affine(b, x, "0", 6, 13)))
		h = G.Must(G.ApplyOp(&gate{"0", back}, h))
		h = G.Must(G.Tanh(affine(b, h, "1", 13, 7)))
		return affine(b, h, "2", 7, 3)
	}
	return f
}

// poll calls done until it is true, and fails when that takes so long that it must hang.
func poll(what string, done func() bool) error {
	for deadline := time.Now().Add(20 * time.Second); !done(); runtime.Gosched() {
		if time.Now().After(deadline) {
			return fmt.Errorf("%s: nothing happens", what)
		}
	}
	return nil
}

// ended is how many buckets have been reduced in this world since the given number of records.
func ended(w *dist.World, from int) int {
	n := 0
	for _, r := range w.Recorder().Records()[from:] {
		if strings.HasPrefix(r.Name, "bucket ") && r.Ended > 0 {
			n++
		}
	}
	return n
}

// TestEarlyBucketsAreReducedBeforeTheBackwardPassEnds stops the backward pass until the upper
// layers' bucket has been reduced on this rank: without overlap that would never be.
func TestEarlyBucketsAreReducedBeforeTheBackwardPassEnds(t *testing.T) {
	onRanks(t, 3, func(w *dist.World) error {
		from := 0
		f := gated(func() error {
			return poll("waiting for bucket 0", func() bool { return ended(w, from) >= 1 })
		})
		a, err := attach(w, f, 3, ddp.Config{BucketMB: 1.0 / 1024}, 1) // 1 KiB: the upper layers, then the first
		if err != nil {
			return err
		}
		for step := range 3 {
			from = len(w.Recorder().Records())
			if err := a.run(indices(0, 3)); err != nil {
				return err
			}
			line := a.d.Timeline()
			first, last := line.Buckets[0], line.Buckets[len(line.Buckets)-1]
			order := []time.Duration{1, line.BackwardStart, first.Ready, first.Started, first.Ended, last.Ready, line.BackwardEnd, line.End}
			if !slices.IsSorted(order) || line.Step != step+1 || len(line.Buckets) < 2 {
				return fmt.Errorf("step %d: the timeline is %+v", step, line)
			}
			if last.Started < last.Ready || last.Ended > line.End {
				return fmt.Errorf("step %d: the last bucket's times are %+v, the end %v", step, last, line.End)
			}
			exposed, part := a.d.ExposedComm()
			if exposed != line.Exposed || exposed < 0 || exposed > line.End-line.BackwardEnd || part < 0 || part > 1 {
				return fmt.Errorf("step %d: exposed %v, %v of %v", step, exposed, part, line.Period)
			}
		}
		return a.close()
	})
}

func TestWithoutOverlapNoBucketStartsBeforeTheBackwardPassEnds(t *testing.T) {
	onRanks(t, 2, func(w *dist.World) error {
		early := 0
		f := gated(func() error { early = ended(w, 0); return nil })
		a, err := attach(w, f, 3, ddp.Config{BucketMB: 1.0 / 1024, NoOverlap: true}, 0)
		if err != nil {
			return err
		}
		if err := a.run(indices(0, 3)); err != nil {
			return err
		}
		line := a.d.Timeline()
		for _, b := range line.Buckets {
			if b.Ready < line.BackwardEnd {
				return fmt.Errorf("bucket %d is started at %v, the backward pass ends at %v", b.Bucket, b.Ready, line.BackwardEnd)
			}
		}
		if early != 0 || len(line.Buckets) < 2 {
			return fmt.Errorf("%d buckets were reduced in the backward pass; the timeline is %+v", early, line)
		}
		return a.close()
	})
}

// attachOps is how many operations Attach and each step of the gated perceptron have: the plan, 6
// parameters; the weights, then the buckets.
const attachOps = 1 + 6

func TestADeadRankIsNamedByAllOthers(t *testing.T) {
	for _, c := range []struct {
		name string
		op   int
	}{
		{"at the weights", attachOps + 1},
		{"at the first bucket", attachOps + 2},
		{"at the second bucket", attachOps + 3},
		{"in the second step", attachOps + 5},
	} {
		t.Run(c.name, func(t *testing.T) {
			errs := runRanks(t, 3, sim.Config{Script: fmt.Sprintf("die rank=1 op=%d", c.op)}, func(w *dist.World) error {
				a, err := attach(w, mlp, 3, ddp.Config{BucketMB: 1.0 / 1024}, 0)
				if err != nil {
					return err
				}
				for range 2 {
					if err = a.run(indices(0, 3)); err != nil {
						break
					}
				}
				if again := a.run(indices(0, 3)); again == nil || !errors.Is(ops.Cause(again), dist.ErrAborted) {
					return fmt.Errorf("the run after the error is %v, want ErrAborted", again)
				}
				return errors.Join(ops.Cause(err), a.close())
			})
			for _, r := range []int{0, 2} {
				if !errors.Is(errs[r], dist.ErrAborted) || !strings.Contains(errs[r].Error(), "rank 1 died") {
					t.Errorf("rank %d: %v, want that rank 1 died", r, errs[r])
				}
				for _, word := range []string{fmt.Sprintf("rank %d/3", r), "ddp step", "gradient of", "allreduce"} {
					if !strings.Contains(errs[r].Error(), word) {
						t.Errorf("rank %d: %v, want %q in it", r, errs[r], word)
					}
				}
			}
		})
	}
}

// TestAStepThatFailsOnAllRanksAlikeIsFollowedByACleanOne fails in the middle of the backward pass,
// with buckets in flight.
func TestAStepThatFailsOnAllRanksAlikeIsFollowedByACleanOne(t *testing.T) {
	boom := errors.New("boom")
	want := plainGradient(t, gated(func() error { return nil }), indices(0, 6))
	for machine := range machines {
		onRanks(t, 2, func(w *dist.World) error {
			fail := true
			f := gated(func() error {
				if fail {
					return boom
				}
				return nil
			})
			a, err := attach(w, f, 3, ddp.Config{BucketMB: 1.0 / 1024}, machine)
			if err != nil {
				return err
			}
			part := indices(3*w.Rank(), 3*w.Rank()+3)
			fail = false
			if err := a.d.NoSync(func() error { return a.run(indices(50, 53)) }); err != nil {
				return err
			}
			fail = true
			if err := a.run(part); !errors.Is(ops.Cause(err), boom) {
				return fmt.Errorf("RunAll is %v, want boom", err)
			}
			fail = false
			for range 2 { // the failed step has dropped the accumulated gradients
				if err := a.run(part); err != nil {
					return err
				}
				if e := relative(a.grads(), want); !(e <= 1e-14) {
					return fmt.Errorf("gradient off by %g", e)
				}
				zeroGrads(a.m.params)
			}
			return a.close()
		})
	}
}

// TestAStepThatFailsOnOneRankBreaksTheGroup ends on every rank with an error: the others wait for a
// bucket when the one begins anew.
func TestAStepThatFailsOnOneRankBreaksTheGroup(t *testing.T) {
	boom := errors.New("boom")
	for r, err := range runRanks(t, 2, sim.Config{}, func(w *dist.World) error {
		fail := w.Rank() == 1
		f := gated(func() error {
			if fail {
				return boom
			}
			return nil
		})
		a, err := attach(w, f, 3, ddp.Config{BucketMB: 1.0 / 1024}, 0)
		if err != nil {
			return err
		}
		err = a.run(indices(0, 3))
		if w.Rank() == 1 {
			if !errors.Is(ops.Cause(err), boom) {
				return fmt.Errorf("RunAll is %v, want boom", err)
			}
			fail = false
			err = a.run(indices(0, 3))
		}
		if !errors.Is(ops.Cause(err), dist.ErrMismatch) {
			return fmt.Errorf("RunAll is %v, want ErrMismatch", err)
		}
		return a.close()
	}) {
		if err != nil {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}

// TestAMachineMustBeResetAfterAnError is gorgonia's: without Reset, RunAll goes on where it failed.
// The program that forgets gets no wrong gradient.
func TestAMachineMustBeResetAfterAnError(t *testing.T) {
	onRanks(t, 1, func(w *dist.World) error {
		var fail atomic.Bool
		fail.Store(true)
		f := gated(func() error {
			if fail.Load() {
				return errors.New("boom")
			}
			return nil
		})
		a, err := attach(w, f, 3, ddp.Config{}, 0)
		if err != nil {
			return err
		}
		if err := a.run(indices(0, 3)); err == nil {
			return errors.New("no error")
		}
		fail.Store(false)
		if err := a.run(indices(0, 3)); err != nil { // resets
			return err
		}
		return a.close()
	})
}

// TestAttachLeavesNothingBehind makes and closes many worlds; TestMain looks for goroutines.
func TestAttachLeavesNothingBehind(t *testing.T) {
	for range long.Times(10, 50) {
		onRanks(t, 2, func(w *dist.World) error {
			a, err := attach(w, mlp, 3, ddp.Config{}, 0)
			if err != nil {
				return err
			}
			return errors.Join(a.run(indices(0, 3)), a.close())
		})
	}
}
