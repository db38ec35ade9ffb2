package machine

import (
	"errors"
	"slices"

	"github.com/symgrad/symgrad/internal/compile/cudaexec"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
)

// turns orders the runs of a machine's programs on a device.
type turns struct {
	dev     *cuda.Device
	current *cudaexec.Exec // ran last
	used    []*compiled    // programs with runs that were not waited for, the last one at the end
	turned  *cuda.Event    // orders a program after another
	next    uint64         // number of the step that current expects
	sample  uint64         // number of its first sample
}

// follow orders runs of c after those of the previous program, without a wait of the host. Programs
// of a machine share the arena, parameters, states and outputs.
func (t *turns) follow(c *compiled) (err error) {
	to := c.gpu.exec.Stream()
	if t.current != nil && t.current.Stream() != to {
		if err := t.dev.Enter(); err != nil {
			return err
		}
		defer t.dev.Leave()
		if t.turned == nil {
			if t.turned, err = t.dev.NewEvent(); err != nil {
				return err
			}
		}
		if err := errors.Join(t.current.Stream().Record(t.turned), to.Wait(t.turned)); err != nil {
			return err
		}
	}
	t.drop(c)
	t.used = append(t.used, c)
	t.current = c.gpu.exec
	return nil
}

// drop removes a program from those that have run.
func (t *turns) drop(c *compiled) {
	t.used = slices.DeleteFunc(t.used, func(u *compiled) bool { return u == c })
}

// forget is drop for a program that is about to be closed, which waits for its runs.
func (t *turns) forget(c *compiled) {
	t.drop(c)
	if t.current == c.gpu.exec {
		t.current = nil // a closed program cannot be waited for
	}
}

// wait waits for the queued runs of all programs.
func (t *turns) wait() error {
	for _, c := range t.used {
		if err := c.runner.Wait(); err != nil {
			return err
		}
	}
	if n := len(t.used); n > 1 {
		t.used = append(t.used[:0], t.used[n-1])
	}
	return nil
}

// waitForRanks waits for all programs that communicate, except one. They detect dead ranks, and the
// streams of other programs wait for theirs.
func (t *turns) waitForRanks(but *compiled) error {
	for _, c := range t.used {
		if len(c.Groups) > 0 && c != but {
			if err := c.runner.Wait(); err != nil {
				return err
			}
		}
	}
	return nil
}
