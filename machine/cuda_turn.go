package machine

import (
	"errors"
	"slices"

	"github.com/symgrad/symgrad/tensor"
)

// turn makes c the current program, ordered after the previous one.
func (c *compiled) turn() error {
	d, x := c.m.device, c.gpu.exec
	if d.current != x {
		if err := d.follow(c); err != nil {
			return err
		}
		d.next = c.m.clock[0] + 1 // differs from the clock, so that it is set
	}
	if d.next != c.m.clock[0] || d.sample != c.m.clock[1] {
		if err := x.SetClock(c.m.clock[0], c.m.clock[1]); err != nil {
			return err
		}
		d.next, d.sample = c.m.clock[0], c.m.clock[1]
	}
	return d.from.quiet()
}

// follow orders runs of c after those of the previous program, without a wait of the host. Programs
// of a machine share the arena, parameters, states and outputs.
func (d *device) follow(c *compiled) (err error) {
	to := c.gpu.exec.Stream()
	if d.current != nil && d.current.Stream() != to {
		if err := d.dev.Enter(); err != nil {
			return err
		}
		defer d.dev.Leave()
		if d.turned == nil {
			if d.turned, err = d.dev.NewEvent(); err != nil {
				return err
			}
		}
		if err := errors.Join(d.current.Stream().Record(d.turned), to.Wait(d.turned)); err != nil {
			return err
		}
	}
	d.drop(c)
	d.used = append(d.used, c)
	d.current = c.gpu.exec
	return nil
}

// drop removes a program from those that have run.
func (d *device) drop(c *compiled) {
	d.used = slices.DeleteFunc(d.used, func(u *compiled) bool { return u == c })
}

// forget is drop for a program that is about to be closed, which waits for its runs.
func (d *device) forget(c *compiled) {
	d.drop(c)
	if d.current == c.gpu.exec {
		d.current = nil // a closed program cannot be waited for
	}
}

// wait waits for the queued runs of all programs.
func (d *device) wait() error {
	for _, c := range d.used {
		if err := c.runner.Wait(); err != nil {
			return err
		}
	}
	if n := len(d.used); n > 1 {
		d.used = append(d.used[:0], d.used[n-1])
	}
	return nil
}

// waitForRanks waits for all programs that communicate, except one. They detect dead ranks, and the
// streams of other programs wait for theirs.
func (d *device) waitForRanks(but *compiled) error {
	for _, c := range d.used {
		if len(c.Groups) > 0 && c != but {
			if err := c.runner.Wait(); err != nil {
				return err
			}
		}
	}
	return nil
}

// arena returns memory for the arena of a program; the zero Buffer for none. Programs share one
// that is large enough, since runs follow each other and nothing in an arena outlasts a run.
func (d *device) arena(bytes int64) (tensor.Buffer, error) {
	if bytes == 0 {
		return tensor.Buffer{}, nil
	}
	for _, b := range d.arenas {
		if b.Bytes() >= bytes {
			return b, nil
		}
	}
	b, err := d.dev.AllocBuffer(bytes)
	if err != nil {
		return tensor.Buffer{}, err
	}
	d.own, d.arenas = append(d.own, b), append(d.arenas, b)
	return b, nil
}

// free frees an arena that no program uses.
func (d *device) free(arena tensor.Buffer) error {
	i := slices.Index(d.arenas, arena)
	if i < 0 {
		return nil
	}
	d.arenas = slices.Delete(d.arenas, i, i+1)
	d.own = slices.DeleteFunc(d.own, func(b tensor.Buffer) bool { return b == arena })
	return d.dev.FreeBuffer(arena)
}
