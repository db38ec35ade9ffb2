package hosts_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/conformance"
	"github.com/symgrad/symgrad/internal/net/hosts"
	"github.com/symgrad/symgrad/internal/net/wire/fake"
	"github.com/symgrad/symgrad/internal/sim"
	"github.com/symgrad/symgrad/tensor"
)

// TestJoinFindsTheHostsOfAllRanks has names of hosts that are not in the order of the ranks.
func TestJoinFindsTheHostsOfAllRanks(t *testing.T) {
	names := []string{"b", "a", "b", "c", "a"}
	want := []hosts.Place{{0, 2, 0, 3, "job"}, {0, 2, 1, 3, "job"}, {1, 2, 0, 3, "job"}, {0, 1, 2, 3, "job"}, {1, 2, 1, 3, "job"}}
	_, ends := fake.New(len(names), fake.Config{})
	inner := map[string][]dist.Transport{}
	for _, name := range []string{"a", "b", "c"} {
		n := 0
		for _, other := range names {
			if other == name {
				n++
			}
		}
		var err error
		if inner[name], err = sim.Transports(n, sim.Config{}); err != nil {
			t.Fatal(err)
		}
	}
	var all sync.WaitGroup
	for r, name := range names {
		all.Go(func() {
			near := func(ctx context.Context, rank, size int, store dist.Store) (dist.Transport, error) {
				return inner[name][rank], useStore(ctx, rank, size, store)
			}
			card := hosts.Card{Host: name}
			if r == 0 {
				card.Job = "job"
			}
			tr, place, err := hosts.Join(t.Context(), ends[r], nil, card, near, hosts.Config{})
			if err != nil {
				t.Errorf("rank %d: %v", r, err)
				return
			}
			if place != want[r] {
				t.Errorf("rank %d: %+v, want %+v", r, place, want[r])
			}
			w, err := dist.NewWorld(tr, dist.LocalInfo{}, 0, nil)
			if err != nil {
				t.Error(err)
				return
			}
			sum := tensor.Of([]float32{float32(r)})
			work, err := w.AllReduce(sum, sum, dist.Sum)
			if err == nil {
				err = work.Wait()
			}
			if data, _ := tensor.Data[float32](sum); err != nil || data[0] != 10 {
				t.Errorf("rank %d: sum %v, error %v", r, data, err)
			}
			if err := w.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

// useStore sets a key for each rank, reads those of all, and counts.
func useStore(ctx context.Context, rank, size int, store dist.Store) error {
	if err := store.Set(ctx, fmt.Sprint("key", rank), []byte{byte(rank)}); err != nil {
		return err
	}
	for r := range size {
		if value, err := store.Get(ctx, fmt.Sprint("key", r)); err != nil || len(value) != 1 || value[0] != byte(r) {
			return fmt.Errorf("key of rank %d: %v, %w", r, value, err)
		}
	}
	if n, err := store.Add(ctx, "count", 2); err != nil || n < 2 || n > int64(2*size) || n%2 != 0 {
		return fmt.Errorf("count %d: %w", n, err)
	}
	return nil
}

// TestJoinEndsWithItsContext: rank 1 never comes.
func TestJoinEndsWithItsContext(t *testing.T) {
	_, ends := fake.New(2, fake.Config{})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, _, err := hosts.Join(ctx, ends[0], nil, hosts.Card{Host: "a"}, nil, hosts.Config{})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v, want the end of the context", err)
	}
}

// TestLostHostIsNamed cuts the links of the last host, then kills it.
func TestLostHostIsNamed(t *testing.T) {
	for _, cut := range []bool{true, false} {
		t.Run(fmt.Sprintf("cut %v", cut), func(t *testing.T) {
			worlds, net := openNet(t, 3, layouts["each alone"], hosts.Config{Silence: 200 * time.Millisecond}, fake.Config{})
			var all sync.WaitGroup
			for r, w := range worlds {
				all.Go(func() {
					err := finish(w.Barrier())
					if err == nil && r == 2 {
						if cut {
							net.Cut(0, 2)
							net.Cut(1, 2)
						} else {
							net.Kill(2)
						}
					}
					for err == nil && (r != 2 || cut) { // messages of before the cut may complete one
						err = finish(w.Barrier())
					}
					var gone *dist.RankError
					if r != 2 && (!errors.As(err, &gone) || gone.Rank != 2) {
						t.Errorf("rank %d: error %v, want the death of rank 2", r, err)
					}
					// Messages of the others may have reached rank 2 before the cut.
					if r == 2 && cut && err != nil && !errors.As(err, &gone) {
						t.Errorf("rank 2: error %v, want the death of another rank", err)
					}
					_ = w.Close()
				})
			}
			all.Wait()
		})
	}
}

// TestReceiveFromARankThatLeft: the news that rank 1 has left arrives with the end of its
// connections.
func TestReceiveFromARankThatLeft(t *testing.T) {
	slow := func(_, _, bytes int) time.Duration { // news of a rank that leaves have the fewest bytes
		if bytes < 64 {
			return 20 * time.Millisecond
		}
		return 0
	}
	worlds := open(t, 2, layouts["each alone"], hosts.Config{}, fake.Config{Goodbye: true, Delay: slow})
	conformance.Drive(t, worlds, func(w *dist.World) error {
		b := tensor.Of(make([]float32, 100))
		if w.Rank() == 1 {
			return finish(w.Send(b, 0))
		}
		err := finish(w.Recv(b, 1))
		if err == nil {
			err = finish(w.Recv(b, 1))
		}
		if !errors.Is(err, dist.ErrClosed) {
			return fmt.Errorf("error %w, want %w", err, dist.ErrClosed)
		}
		return nil
	})
}

func finish(work dist.Work, err error) error {
	if err != nil {
		return err
	}
	return work.Wait()
}
