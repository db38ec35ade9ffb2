package hosts_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/long"
	"github.com/symgrad/symgrad/internal/net/hosts"
	"github.com/symgrad/symgrad/internal/net/wire/fake"
	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

// onRanks runs body on every rank with a region of 64 bytes, and closes the worlds.
func onRanks(t *testing.T, worlds []*dist.World, body func(w *dist.World, r symmetric.Region) error) {
	t.Helper()
	var all sync.WaitGroup
	for rank, w := range worlds {
		all.Go(func() {
			h, err := w.Heap(1 << 12)
			if err == nil {
				var r symmetric.Region
				if r, err = h.Alloc(64); err == nil {
					err = body(w, r)
				}
			}
			if err != nil {
				t.Errorf("rank %d: %v", rank, err)
			}
			_ = w.Close()
		})
	}
	all.Wait()
}

// lostRank returns an error unless err is the death of rank.
func lostRank(err error, rank int) error {
	var gone *dist.RankError
	if !errors.As(err, &gone) || gone.Rank != rank {
		return fmt.Errorf("error %w, want the death of rank %d", err, rank)
	}
	return nil
}

// TestLostHostEndsOneSidedCalls kills the process of rank 2. Rank 0 then waits for its signal, and
// rank 1 reads its memory.
func TestLostHostEndsOneSidedCalls(t *testing.T) {
	worlds, net := openNet(t, 3, layouts["last alone"], hosts.Config{}, fake.Config{})
	onRanks(t, worlds, func(w *dist.World, r symmetric.Region) error {
		if err := finish(w.Barrier()); err != nil {
			return err
		}
		switch w.Rank() {
		case 0:
			_, err := symmetric.SignalWait(context.Background(), r, 0, symmetric.Ge, 1)
			return lostRank(err, 2)
		case 1:
			for {
				if _, err := symmetric.G[uint64](r, 2, 0); err != nil {
					return lostRank(err, 2)
				}
			}
		}
		net.Kill(2)
		return nil
	})
}

// TestWaitersOfOneHostGetTheSameReason kills rank 1. Ranks 0 and 2 wait on one host, and the first
// of them that has the news aborts the other.
func TestWaitersOfOneHostGetTheSameReason(t *testing.T) {
	for range long.Times(2, 5) {
		worlds, net := openNet(t, 4, layouts["in turns"], hosts.Config{}, fake.Config{})
		onRanks(t, worlds, func(w *dist.World, r symmetric.Region) error {
			if err := finish(w.Barrier()); err != nil {
				return err
			}
			if w.Rank() == 1 {
				net.Kill(1)
				return nil
			}
			_, err := symmetric.SignalWait(context.Background(), r, 0, symmetric.Ge, 1)
			return lostRank(err, 1)
		})
	}
}

// TestLastCallsOfARankArrive: a rank puts data and a signal, and closes its heap and world at once.
func TestLastCallsOfARankArrive(t *testing.T) {
	for range 20 {
		worlds := open(t, 2, layouts["each alone"], hosts.Config{}, fake.Config{})
		onRanks(t, worlds, func(w *dist.World, r symmetric.Region) error {
			if w.Rank() == 0 {
				return r.PutSignal(1, 8, tensor.Of([]uint64{7}), symmetric.Signal{In: r, At: 0, Op: symmetric.SignalSet, Value: 1})
			}
			if _, err := symmetric.SignalWait(context.Background(), r, 0, symmetric.Ge, 1); err != nil {
				return err
			}
			if v, err := symmetric.G[uint64](r, 1, 8); err != nil || v != 7 {
				return fmt.Errorf("data %d, %w, want 7", v, err)
			}
			return nil
		})
	}
}

// TestCallToARankThatLeft: a read of a part whose rank has closed its world is an error, also if
// the rank leaves meanwhile.
func TestCallToARankThatLeft(t *testing.T) {
	worlds := open(t, 2, layouts["each alone"], hosts.Config{}, fake.Config{})
	onRanks(t, worlds, func(w *dist.World, r symmetric.Region) error {
		if w.Rank() == 0 {
			return nil
		}
		for {
			if _, err := symmetric.G[uint64](r, 0, 0); err != nil {
				if !errors.Is(err, dist.ErrClosed) {
					return fmt.Errorf("error %w, want %w", err, dist.ErrClosed)
				}
				return nil
			}
		}
	})
}

// TestPeerOfAnotherHost: a far part has no address, a near one has.
func TestPeerOfAnotherHost(t *testing.T) {
	worlds := open(t, 4, layouts["in turns"], hosts.Config{}, fake.Config{})
	onRanks(t, worlds, func(w *dist.World, r symmetric.Region) error {
		for peer := range w.Size() {
			_, err := r.Peer(peer)
			switch near := peer%2 == w.Rank()%2; {
			case near && err != nil:
				return err
			case !near && (!errors.Is(err, dist.ErrUnsupported) || !strings.Contains(err.Error(), "another host")):
				return fmt.Errorf("rank %d: error %w, want %w", peer, err, dist.ErrUnsupported)
			}
		}
		return finish(w.Barrier())
	})
}
