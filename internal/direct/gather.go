package direct

import (
	"sync"
	"sync/atomic"

	"github.com/symgrad/symgrad/internal/cuda"
	"github.com/symgrad/symgrad/internal/gpu"
)

// images is the machine code of units.
type images interface {
	// cached is what was compiled before, by any process; nil where it must be compiled.
	cached(u unit) []byte
	// compile is what the compiler makes of u. It is kept where cached finds it, if it can be.
	compile(u unit) ([]byte, error)
}

// deviceImages is the images for a device, in the cache of a compiler.
type deviceImages struct {
	c *cuda.Compiler
	v *cuda.Device
}

func (d deviceImages) cached(u unit) []byte { return d.c.Cached(d.v, u.source()) }

func (d deviceImages) compile(u unit) ([]byte, error) { return d.c.Compile(d.v, u.source()) }

// roundUnits is how many units a worker compiles before the ranks meet again: a few seconds, so
// that no rank waits for another as long as for one that is dead.
const roundUnits = 4

// gather is the images of units, in their order; nil on a rank that does not need them. What is in
// no cache the ranks share out: in each round a rank compiles some of its part, and takes from the
// cache what others have done meanwhile. Where ranks have different caches, or none, what one has
// compiled goes on missing on the others, which share it out again, so that in the end each has
// compiled what it could not find. No rank waits for the compiler of another without work of its
// own to do, but for the end of a round.
//
// Collective: all ranks of p, same units. Errors: on all ranks alike.
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

// share is what rank has to compile of what ranks lack, and whether none lacks anything. A unit is
// for the one of those that lack it that has the fewest so far.
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

// each calls f for all items, several at once. Errors: that of the first item that has one.
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
