package mpi_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/symgrad/symgrad/internal/net/wire"
)

// BenchmarkPingPong prints half the time of a round trip between two processes of this machine, the
// least and the median.
func BenchmarkPingPong(b *testing.B) {
	for _, s := range suites {
		b.Run(s.name, func(b *testing.B) {
			s.need(b)
			b.Log("\n" + s.must(b, 2, "pingpong"))
		})
	}
}

func pingpongScene() error {
	w, err := open()
	if err != nil {
		return err
	}
	for _, size := range []struct{ bytes, rounds int }{{8, 20000}, {1 << 10, 20000}, {64 << 10, 3000}, {1 << 20, 300}} {
		times := make([]time.Duration, size.rounds)
		buf := make([]byte, size.bytes)
		for i := range times {
			begin := time.Now()
			if err := pingpong(w, buf); err != nil {
				return err
			}
			times[i] = time.Since(begin) / 2
		}
		slices.Sort(times)
		if w.Info().Rank == 0 {
			fmt.Printf("%8d B  min %v  median %v\n", size.bytes, times[0], times[len(times)/2])
		}
	}
	return w.Close()
}

// pingpong sends buf to process 1 and back.
func pingpong(w wire.Wire, buf []byte) error {
	rank := w.Info().Rank
	for turn := range 2 {
		var r wire.Request
		if turn == rank {
			w.Send(&r, 1-rank, 1, buf)
		} else {
			w.Recv(&r, 1-rank, 1, buf)
		}
		if err := wire.Wait(w, nil, &r); err != nil {
			return err
		}
	}
	return nil
}
