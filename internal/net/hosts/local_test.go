package hosts_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/conformance"
	"github.com/symgrad/symgrad/internal/net/hosts"
	"github.com/symgrad/symgrad/internal/net/wire/fake"
	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

// TestGroupOnOneHostSendsNothing: operations and one-sided calls of the ranks of one host, and of
// parts of them, send no messages.
func TestGroupOnOneHostSendsNothing(t *testing.T) {
	var sent atomic.Int64
	count := func(_, _, bytes int) time.Duration {
		if bytes >= 64 { // news about processes have fewer
			sent.Add(1)
		}
		return 0
	}
	worlds := open(t, 4, layouts["in turns"], hosts.Config{}, fake.Config{Delay: count})
	var before, after sync.WaitGroup
	before.Add(4)
	after.Add(4)
	conformance.Drive(t, worlds, func(w *dist.World) error {
		g, err := w.Split(w.Rank()%2, -w.Rank())
		if err != nil {
			return err
		}
		if want := []int{w.Rank()%2 + 2, w.Rank() % 2}; !slices.Equal(g.Ranks(), want) || g.Backend() != "fake" {
			return fmt.Errorf("ranks %v over %s, want %v", g.Ranks(), g.Backend(), want)
		}
		before.Done()
		before.Wait()
		was := sent.Load()
		err = errors.Join(sumsOf(g), sumsOf(g.Blocking()))
		after.Done()
		after.Wait()
		if now := sent.Load(); now != was {
			return fmt.Errorf("%d messages, and error %w", now-was, err)
		}
		return err
	})
}

// sumsOf does operations on g, on a part of it, and on a heap.
func sumsOf(g *dist.Group) error {
	same, err := g.Split(0, 0)
	if err != nil {
		return err
	}
	h, err := same.Heap(1 << 12)
	if err != nil {
		return err
	}
	r, err := h.Alloc(8)
	if err != nil {
		return err
	}
	sum := tensor.Of([]float32{float32(g.Rank() + 1)})
	err = errors.Join(
		symmetric.P(r, 1-g.Rank(), 0, uint64(7)),
		finish(same.Barrier()),
		finish(g.AllReduce(sum, sum, dist.Sum)),
	)
	if v, _ := tensor.Data[float32](sum); err == nil && (v[0] != 3 || r.Local().Raw()[0] != 7) {
		err = fmt.Errorf("sum %v, put %d, want 3 and 7", v, r.Local().Raw()[0])
	}
	return errors.Join(err, same.Close())
}

// TestLostRankBreaksItsGroupOnOneHost: the wire finds rank 3 gone, and the group of its host has it
// as rank 0. Later operations report it too.
func TestLostRankBreaksItsGroupOnOneHost(t *testing.T) {
	worlds, net := openNet(t, 4, layouts["first alone"], hosts.Config{}, fake.Config{})
	var told sync.WaitGroup
	told.Add(2)
	conformance.Drive(t, worlds, func(w *dist.World) error {
		g, err := w.Split(min(w.Rank(), 1), -w.Rank())
		if err != nil || w.Rank() == 0 {
			return errors.Join(err, lostRank(finish(w.Barrier()), 3))
		}
		if w.Rank() == 3 {
			net.Kill(3)
			told.Wait() // its host does not know, and a rank that closes its end has not died
			return nil
		}
		defer told.Done()
		return errors.Join(lostRank(finish(g.Barrier()), 0), lostRank(finish(g.Barrier()), 0), lostRank(finish(w.Barrier()), 3))
	})
}

// TestBarrierOfOneHostCompletesPuts: a put to another host is complete after a barrier of the ranks
// of this host.
func TestBarrierOfOneHostCompletesPuts(t *testing.T) {
	worlds := open(t, 3, layouts["last alone"], hosts.Config{}, fake.Config{})
	var put sync.WaitGroup
	put.Add(2)
	onRanks(t, worlds, func(w *dist.World, r symmetric.Region) error {
		g, err := w.Split(w.Rank()/2, 0)
		if err != nil {
			return err
		}
		if w.Rank() < 2 {
			err = errors.Join(r.PutNBI(2, int64(8*w.Rank()), tensor.Of([]uint64{5})), finish(g.Barrier()))
			put.Done()
			return errors.Join(err, finish(w.Barrier()))
		}
		put.Wait()
		if v := tensor.Of(slices.Clone(r.Local().Raw()[:16])).Raw(); v[0] != 5 || v[8] != 5 {
			err = fmt.Errorf("data %v", v)
		}
		return errors.Join(err, finish(w.Barrier()))
	})
}
