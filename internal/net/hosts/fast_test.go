package hosts_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/host/reduce"
	"github.com/symgrad/symgrad/internal/net/hosts"
	"github.com/symgrad/symgrad/internal/net/wire/fake"
	"github.com/symgrad/symgrad/internal/sim"
	"github.com/symgrad/symgrad/tensor"
)

var fastConfig = hosts.Config{ChainBytes: 64, SlotBytes: 1 << 10, Fast: true}

// Fast allreduces of integers are exact, and those of floats differ by rounding only.
func TestFastAllReducesAreCloseToThoseInRankOrder(t *testing.T) {
	const n, count = 4, 1003
	worlds := open(t, n, layouts["halves"], fastConfig, fake.Config{Limit: 512})
	defer closeAll(t, worlds)
	for _, red := range []dist.RedOp{dist.Sum, dist.Avg, dist.Max} {
		ints, floats := make([]tensor.Buffer, n), make([]tensor.Buffer, n)
		for r := range n {
			ints[r], floats[r] = memory(t, tensor.I32, count), memory(t, tensor.F32, count)
			for i := range count {
				elems[int32](ints[r])[i] = int32((i + 3) * (r - 7))
				elems[float32](floats[r])[i] = float32(math.Sin(float64(i*n + r)))
			}
		}
		wantInts, wantFloats := memory(t, tensor.I32, count), memory(t, tensor.F32, count)
		if err := errors.Join(reduce.Into(wantInts, ints, red.Kind, nil), reduce.Into(wantFloats, floats, red.Kind, nil)); err != nil {
			t.Fatal(err)
		}
		onAll(t, worlds, func(r int, w *dist.World) error {
			gotInts, in, g := memory(t, tensor.I32, count), floats[r], w.Blocking()
			if _, err := g.AllReduce(gotInts, ints[r], red); err != nil {
				return err
			}
			if _, err := g.AllReduce(in, in, red); err != nil {
				return err
			}
			if !bytes.Equal(gotInts.Raw(), wantInts.Raw()) {
				return fmt.Errorf("%v: other integers on rank %d", red, r)
			}
			for i, want := range elems[float32](wantFloats) {
				if got := elems[float32](in)[i]; math.Abs(float64(got-want)) > 1e-6 {
					return fmt.Errorf("%v: %g at %d on rank %d, want %g", red, got, i, r, want)
				}
			}
			return nil
		})
	}
}

// The death of a rank reaches ranks in another part of a fast allreduce.
func TestFastAllReducesEndWhenARankDies(t *testing.T) {
	const n, count = 4, 4096
	worlds, net := openNet(t, n, layouts["halves"], fastConfig, fake.Config{Limit: 512})
	onAll(t, worlds, func(r int, w *dist.World) error {
		if r == 3 {
			net.Kill(3)
			return nil
		}
		b := memory(t, tensor.F32, count)
		_, err := w.Blocking().AllReduce(b, b, dist.Sum)
		var gone *dist.RankError
		if !errors.As(err, &gone) || gone.Rank != 3 {
			return fmt.Errorf("rank %d: %w, want the loss of rank 3", r, err)
		}
		return nil
	})
	for _, w := range worlds {
		_ = w.Close() // the group is broken
	}
}

// Ranks with different orders get an error that names both.
func TestOrdersOfSumsMustAgree(t *testing.T) {
	where, losses := []int{0, 1}, new(hosts.Losses)
	_, ends := fake.New(2, fake.Config{})
	errs := make(chan error, 2)
	for r := range 2 {
		near, err := sim.Transports(1, sim.Config{})
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			tr, err := hosts.Open(hosts.Party{Wire: ends[r], Inner: near[0], Hosts: where, Losses: losses}, hosts.Config{Fast: r == 1})
			if err == nil {
				err = errors.Join(tr.(interface{ Broken() error }).Broken(), tr.Close())
			}
			errs <- err
		}()
	}
	for range 2 {
		if err := <-errs; !errors.Is(err, dist.ErrMismatch) || !strings.Contains(err.Error(), "rank 0 has rank, rank 1 has fast") {
			t.Errorf("%v, want a mismatch on the order", err)
		}
	}
}

// elems returns the elements of b, which has their type.
func elems[T tensor.Element](b tensor.Buffer) []T {
	e, err := tensor.Data[T](b)
	if err != nil {
		panic(err)
	}
	return e
}
