package gpu

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/sim"
)

// onEach runs body as every rank of a host group of n ranks, which it closes.
func onEach(t *testing.T, n int, cfg sim.Config, body func(control *dist.Group) error) {
	t.Helper()
	worlds, err := sim.New(n, cfg)
	if err != nil {
		t.Fatal(err)
	}
	var ranks sync.WaitGroup
	for _, w := range worlds {
		ranks.Go(func() {
			if err := errors.Join(body(w.Group), w.Close()); err != nil {
				t.Errorf("rank %d: %v", w.Rank(), err)
			}
		})
	}
	ranks.Wait()
}

// ledgers runs body as every rank of n, with a ledger.
func ledgers(t *testing.T, n int, compare bool, limit time.Duration, body func(p *ledger) error) {
	t.Helper()
	onEach(t, n, sim.Config{}, func(control *dist.Group) error {
		p, err := newLedger(control, compare, limit)
		if err != nil {
			return err
		}
		err = body(p)
		if e := finish(control.Blocking().Barrier()); e != nil && p.broken() == nil { // nobody unmaps before all are through
			err = errors.Join(err, e)
		}
		return errors.Join(err, p.close())
	})
}

func memberOf(control *dist.Group) *Member {
	return &Member{Rank: control.Rank(), Size: control.Size(), World: control.Ranks(), Control: control, Memory: new(Memory)}
}
