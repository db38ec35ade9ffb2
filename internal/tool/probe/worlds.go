package probe

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/backend"
	"github.com/symgrad/symgrad/internal/host/shm"
	"github.com/symgrad/symgrad/tensor"
)

// World is the result of opening a world in this process.
type World struct {
	Backend string `json:"backend"`
	Ranks   int    `json:"ranks"`
	OK      bool   `json:"ok"`
	Problem string `json:"problem"`
}

const (
	trialRanks   = 2
	trialLength  = 1000 // elements, more than the shortcuts for small operations handle
	trialTimeout = 20 * time.Second
)

// TryWorlds opens a world of two ranks for each backend that runs inside one process, and sums a
// vector over it.
func TryWorlds() []World {
	return []World{
		tryWorld(backend.SHM, trySHM),
		tryWorld(backend.Sim, func() error {
			return backend.Simulate(trialRanks, backend.Config{StepTimeout: trialTimeout}, sum)
		}),
	}
}

func tryWorld(name string, run func() error) World {
	w := World{Backend: name, Ranks: trialRanks}
	if err := run(); err != nil {
		w.Problem = err.Error()
	} else {
		w.OK = true
	}
	return w
}

// trySHM runs goroutines as ranks. They share memory as processes would.
func trySHM() error {
	transports, err := shm.Local(trialRanks, shm.Mapped, shm.Config{StepTimeout: trialTimeout, InitTimeout: trialTimeout})
	if err != nil {
		return err
	}
	errs := make([]error, len(transports))
	var ranks sync.WaitGroup
	for i, t := range transports {
		ranks.Go(func() {
			w, err := dist.NewWorld(t, dist.LocalInfo{Rank: i, Size: len(transports)}, 0, nil)
			if err != nil {
				errs[i] = errors.Join(err, t.Abort(err), t.Close())
				return
			}
			errs[i] = sum(w)
			if errs[i] != nil {
				errs[i] = errors.Join(fmt.Errorf("rank %d: %w", i, errs[i]), w.Abort(errs[i]))
			}
			errs[i] = errors.Join(errs[i], w.Close())
		})
	}
	ranks.Wait()
	return errors.Join(errs...)
}

// sum sums a vector over the ranks of w and checks the result.
func sum(w *dist.World) error {
	values := make([]float32, trialLength)
	for i := range values {
		values[i] = float32(i * (w.Rank() + 1))
	}
	buf := tensor.Of(values)
	work, err := w.AllReduce(buf, buf, dist.Sum)
	if err != nil {
		return err
	}
	if err := work.Wait(); err != nil {
		return err
	}
	for i, v := range values {
		if want := float32(i * w.Size() * (w.Size() + 1) / 2); v != want {
			return fmt.Errorf("element %d of the sum is %v, want %v", i, v, want)
		}
	}
	return nil
}
