package direct

import (
	"sync"
	"sync/atomic"

	"github.com/symgrad/symgrad/internal/gpu"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
)

// images provides the machine code of units.
type images interface {
	// cached returns the code of an earlier compilation, by any process, or nil.
	cached(u unit) []byte
	// compile compiles u, and stores the result for cached if it can.
	compile(u unit) ([]byte, error)
}

// deviceImages provides images for a device, in the cache of a compiler.
type deviceImages struct {
	c *cuda.Compiler
	v *cuda.Device
}

func (d deviceImages) cached(u unit) []byte { return d.c.Cached(d.v, u.source()) }

func (d deviceImages) compile(u unit) ([]byte, error) { return d.c.Compile(d.v, u.source()) }

// roundUnits is the number of units that a worker compiles before the ranks meet again. It takes a
// few seconds, so that no wait for a rank reaches the timeout for dead ones.
const roundUnits = 4

// gather returns the images of units, in order; nil on a rank with need unset. The ranks divide the
// units that are in no cache. In each round a rank compiles some of its part, and reads the units
// of others from the cache. If ranks have different caches, or none, the remaining units are
// divided again. In the end each rank has compiled the units that it could not find. A rank without
// work waits for others only at the end of a round.
//
// Collective: all ranks of p, same units. Errors: on all ranks.
func gather(p *gpu.Member, from images, units []unit, need bool, workers int) ([][]byte, error) {
	got := make([][]byte, len(units))
	for {
		lack := make([]byte, len(units))
		var missing []int
		for i := range units {
			if need && got[i] == nil {
				missing = append(missing, i)
			}
		}
		_ = each(workers, missing, func(i int) error {
			if got[i] = from.cached(units[i]); got[i] == nil {
				lack[i] = 1
			}
			return nil
		})
		all, err := p.Exchange(lack)
		if err != nil {
			return nil, err
		}
		own, done := share(all, p.Rank)
		if done {
			return got, nil
		}
		err = each(workers, own[:min(len(own), roundUnits*workers)], func(i int) (err error) {
			got[i], err = from.compile(units[i])
			return err
		})
		if err = p.Agree(err); err != nil {
			return nil, err
		}
	}
}

// share returns the missing units that rank must compile, and whether no rank misses any. A unit
// goes to the rank with the fewest units among those that miss it.
func share(lacks [][]byte, rank int) (own []int, done bool) {
	done = true
	has := make([]int, len(lacks))
	for i := range lacks[rank] {
		who := -1
		for r := range lacks {
			if lacks[r][i] != 0 && (who < 0 || has[r] < has[who]) {
				who = r
			}
		}
		if who < 0 {
			continue
		}
		done = false
		if has[who]++; who == rank {
			own = append(own, i)
		}
	}
	return own, done
}

// each calls f for all items, several at once. Errors: that of the first failed item.
func each(workers int, items []int, f func(i int) error) error {
	errs := make([]error, len(items))
	var next atomic.Int64
	var all sync.WaitGroup
	for range min(workers, len(items)) {
		all.Go(func() {
			for k := next.Add(1) - 1; k < int64(len(items)); k = next.Add(1) - 1 {
				errs[k] = f(items[k])
			}
		})
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
