package cudaexec

import (
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/tensor"
)

// openLibraries sets up matrix products and convolutions of libraries. With Config.Tune each uses
// the candidate that is fastest on the slowest rank: the ranks of a group wait for each other in
// every step, so a choice that suits one rank only gains nothing.
//
// Collective: with Config.Tune, if the program has collectives, unless Config.TuneAlone. Ranks with
// the same candidates, all in one group, choose the same. A rank with other candidates, because of
// another batch size, chooses by itself. Errors: those of newProducts, products.tune and
// newConvolutions, on all ranks; the reason why a group is broken; ErrStuck.
func (x *Exec) openLibraries() error {
	c := x.council()
	list, err := x.timeLibraries()
	times, err := c.slowest(list, err)
	var short bool
	if err == nil {
		err = takeLeast(list, times)
		x.mul.choose(x.cfg.turns)
	}
	if err == nil {
		short, err = x.mul.place()
	}
	if err == nil {
		err = x.conv.place(x.p)
	}
	if short, err = c.anyone(short, err); err != nil { // also after an error of slowest, which other ranks may not have received
		return x.leave(err)
	}
	if short {
		err = x.mul.dropTurns()
	} else {
		x.mul.aim(x.own)
	}
	return errors.Join(err, x.mul.settle())
}

// timeLibraries opens the libraries and returns the trials of the steps that they do. It uses no
// group.
func (x *Exec) timeLibraries() ([]*trial, error) {
	on := x.order.on
	var err error
	if x.mul, err = newProducts(x.p, on, &x.cfg, x.streams); err != nil {
		return nil, err
	}
	if err = x.mul.tune(x); err != nil {
		return nil, err
	}
	if x.conv, err = newConvolutions(x.p, on, &x.cfg, x.streams[program.Compute]); err != nil {
		return nil, err
	}
	return append(x.mul.trials(), x.conv.trials()...), nil
}

// leave returns err. After ErrStuck it clears x, so that memory which the device may still use is
// not freed.
func (x *Exec) leave(err error) error {
	if errors.Is(err, ErrStuck) {
		*x = Exec{p: x.p, cfg: x.cfg, env: x.env, dev: x.dev}
	}
	return err
}

// council returns the ranks that agree on times: one circle for each group of the program. A group
// inside an earlier circle adds nothing and is left out.
func (x *Exec) council() *council {
	c := &council{program: x.p.Name}
	if !x.cfg.Tune || x.cfg.TuneAlone || x.comm == nil {
		return c
	}
	for _, g := range x.comm.groups {
		if g == nil || g.Size() < 2 || slices.ContainsFunc(c.circles, func(o circle) bool { return within(g.Ranks(), o.ranks) }) {
			continue
		}
		g = g.With(dist.Hints{Name: "tuning of " + x.p.Name})
		c.circles = append(c.circles, circle{g.Ranks(), func(own []float32) ([][]float32, error) { return x.gather(g, own) }})
	}
	return c
}

// within reports whether all of ranks are among others.
func within(ranks, others []int) bool {
	return !slices.ContainsFunc(ranks, func(r int) bool { return !slices.Contains(others, r) })
}

// gather is circle.gather for a group of GPUs, which must not be captured meanwhile. It uses a sum,
// to which each rank adds its own part and zeros. That is exact, and every group can do it.
//
// Errors: the reason why the group is broken, with ErrStuck if the device then makes no progress;
// those of the driver. If this rank cannot take part, these break the group, since the others would
// wait.
func (x *Exec) gather(g *dist.Group, own []float32) ([][]float32, error) {
	all := parted(own, g.Rank(), g.Size())
	bytes := int64(len(all)) * int64(tensor.F32.Size())
	at, err := x.dev.Alloc(bytes)
	if err != nil {
		return nil, errors.Join(err, g.Abort(err))
	}
	if err = x.dev.CopyFromHost(at, unsafe.Pointer(&all[0]), bytes); err == nil {
		err = x.sum(g, at, len(all))
	} else {
		err = errors.Join(err, g.Abort(err))
	}
	if err != nil && !x.drained() {
		return nil, fmt.Errorf("%w: %w", ErrStuck, err)
	}
	if err == nil {
		err = x.dev.CopyToHost(unsafe.Pointer(&all[0]), at, bytes)
	}
	if err = errors.Join(err, x.dev.Free(at)); err != nil {
		return nil, err
	}
	return slices.Collect(slices.Chunk(all, len(own))), nil
}

// sum sums the n f32 numbers at an address over g, and returns when the sums are there.
func (x *Exec) sum(g *dist.Group, at uintptr, n int) error {
	b, err := bufferAt(at, n, tensor.F32, x.dev.Tensor())
	if err != nil {
		return err
	}
	w, err := g.AllReduce(b, b, dist.Sum)
	if err != nil {
		return err
	}
	return w.Wait()
}

// parted returns the numbers of n ranks: own for rank, zeros for the others.
func parted(own []float32, rank, n int) []float32 {
	all := make([]float32, n*len(own))
	copy(all[rank*len(own):], own)
	return all
}
