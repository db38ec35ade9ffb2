//go:build !race

// The race detector reports false races on data published through mapped memory.

package hosts_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/host/shm"
	"github.com/symgrad/symgrad/internal/net/hosts"
	"github.com/symgrad/symgrad/internal/net/wire/fake"
)

// TestGroupOnOneHostRunsOnItsCaller: over shared memory, a group on one host runs operations on
// their callers.
func TestGroupOnOneHostRunsOnItsCaller(t *testing.T) {
	parties, _ := parties(t, 4, layouts["halves"], hosts.Config{}, fake.Config{})
	for first := 0; first < 4; first += 2 {
		ends, err := shm.Local(2, shm.Mapped, shm.Config{})
		if err != nil {
			t.Fatal(err)
		}
		parties[first].Inner, parties[first+1].Inner = ends[0], ends[1]
	}
	openAll(t, parties, hosts.Config{}, func(w *dist.World) error {
		g, err := w.Split(w.Rank()/2, 0)
		if err != nil {
			return err
		}
		work, err := g.Blocking().Barrier()
		if err == nil && work != (dist.Work{}) {
			err = fmt.Errorf("a barrier of a blocking view was queued: %+v", work)
		}
		return errors.Join(err, sumsOf(g), sumsOf(g.Blocking()), w.Close())
	})
}

// TestLostRankBreaksAGroupOfSharedMemory: the ranks of a host learn of a death from outside.
func TestLostRankBreaksAGroupOfSharedMemory(t *testing.T) {
	parties, net := parties(t, 3, layouts["first alone"], hosts.Config{}, fake.Config{})
	ends, err := shm.Local(2, shm.Mapped, shm.Config{})
	if err != nil {
		t.Fatal(err)
	}
	parties[1].Inner, parties[2].Inner = ends[0], ends[1]
	told := make(chan struct{})
	openAll(t, parties, hosts.Config{}, func(w *dist.World) error {
		g, err := w.Split(min(w.Rank(), 1), -w.Rank())
		switch {
		case err != nil:
		case w.Rank() == 2:
			net.Kill(2)
			<-told // its host does not know
		case w.Rank() == 1:
			err = errors.Join(lostRank(finish(g.Barrier()), 0), lostRank(finish(g.Blocking().Barrier()), 0), lostRank(finish(w.Barrier()), 2))
			close(told)
		default:
			err = lostRank(finish(w.Barrier()), 2)
		}
		return errors.Join(err, w.Close())
	})
}
