package shm

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

// onMapped runs body as rank 0 of a world of two and peer as rank 1, with a region of the given
// size.
func onMapped(b *testing.B, bytes int64, body, peer func(r symmetric.Region) error) {
	b.Helper()
	ts, err := Local(2, Mapped, Config{})
	if err != nil {
		b.Fatal(err)
	}
	var ranks sync.WaitGroup
	errs := make([]error, 2)
	for rank, t := range ts {
		ranks.Go(func() {
			errs[rank] = func() error {
				w, err := dist.NewWorld(t, dist.LocalInfo{Rank: rank, Size: 2}, 0, nil)
				if err != nil {
					return err
				}
				h, err := w.Heap(bytes + symmetric.Alignment)
				if err != nil {
					return err
				}
				r, err := h.Alloc(bytes)
				if err != nil {
					return err
				}
				return errors.Join([]func(symmetric.Region) error{body, peer}[rank](r), done(w.Barrier()), w.Close())
			}()
		})
	}
	ranks.Wait()
	if err := errors.Join(errs...); err != nil {
		b.Fatal(err)
	}
}

func idle(symmetric.Region) error { return nil }

func BenchmarkOneSided(b *testing.B) {
	word, sig := tensor.Of([]uint64{7}), int64(64)
	for _, c := range []struct {
		name string
		call func(r symmetric.Region) error
	}{
		{"p", func(r symmetric.Region) error { return symmetric.P(r, 1, 0, uint64(1)) }},
		{"g", func(r symmetric.Region) error { _, err := symmetric.G[uint64](r, 1, 0); return err }},
		{"put", func(r symmetric.Region) error { return r.Put(1, 0, word) }},
		{"put-signal", func(r symmetric.Region) error {
			return r.PutSignal(1, 0, word, symmetric.Signal{In: r, At: sig, Op: symmetric.SignalSet, Value: 1})
		}},
		{"fetch-add", func(r symmetric.Region) error { _, err := symmetric.FetchAdd(r, 1, 0, uint64(1)); return err }},
		{"test", func(r symmetric.Region) error { _, err := symmetric.Test(r, 0, symmetric.Eq, uint64(1)); return err }},
		{"wait", func(r symmetric.Region) error {
			_, err := symmetric.SignalWait(context.Background(), r, 0, symmetric.Eq, 0)
			return err
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			onMapped(b, symmetric.Alignment, func(r symmetric.Region) error {
				b.ReportAllocs()
				for b.Loop() {
					if err := c.call(r); err != nil {
						return err
					}
				}
				return nil
			}, idle)
		})
	}
}

func BenchmarkPut(b *testing.B) {
	for _, n := range []int64{64, 1 << 10, 64 << 10, 4 << 20} {
		b.Run(fmt.Sprintf("%dB", n), func(b *testing.B) {
			src := tensor.Of(make([]byte, n))
			onMapped(b, n, func(r symmetric.Region) error {
				b.SetBytes(n)
				for b.Loop() {
					if err := r.Put(1, 0, src); err != nil {
						return err
					}
				}
				return nil
			}, idle)
		})
	}
}

// BenchmarkPingPong is a signal there and back.
func BenchmarkPingPong(b *testing.B) {
	ctx := context.Background()
	onMapped(b, symmetric.Alignment, func(r symmetric.Region) error {
		turn := uint64(0)
		for b.Loop() {
			turn++
			_, err := symmetric.SignalWait(ctx, r, 0, symmetric.Ge, turn)
			if err := errors.Join(err, r.Signal(1, 0, symmetric.SignalSet, turn)); err != nil {
				return err
			}
		}
		return r.Signal(1, 8, symmetric.SignalSet, math.MaxUint64)
	}, func(r symmetric.Region) error {
		for turn := uint64(1); ; turn++ {
			if err := r.Signal(0, 0, symmetric.SignalSet, turn); err != nil {
				return err
			}
			if i, err := symmetric.WaitUntilAny(ctx, r, 0, 2, symmetric.Ge, turn); err != nil || i != 0 {
				return err
			}
		}
	})
}
