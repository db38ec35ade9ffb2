package machine

import (
	"fmt"

	"github.com/symgrad/symgrad/internal/cudaexec"
)

// Timeline has the times of a run on a GPU, by the clock of the device: the whole run, its
// computation, its communication, the exposed part of that, and each step. String returns a table.
type Timeline = cudaexec.Timeline

// Profile measures so many runs of the program that ran last, on a GPU: without marks, with marks
// around collectives, and with marks around each step, so many of each kind and a few to warm up.
// They are real runs on the present inputs: with Config.Solver the parameters are updated and the
// solver counts them as steps.
//
// Collective: attached to ranks, all ranks with the same number. Shapes/units: runs is 1 to 10000.
// Errors: ErrDevice on the CPU, whose times ddp.Timeline and runtime/pprof tell; ErrNoValue before
// the first run; those of a run.
func (m *Machine) Profile(runs int) (Timeline, error) {
	fail := func(err error) (Timeline, error) {
		return Timeline{}, fmt.Errorf("machine %s: profile: %w", m.cfg.Name, err)
	}
	switch {
	case m.closed:
		return fail(ErrClosed)
	case m.device == nil:
		return fail(fmt.Errorf("%w: the program runs on the CPU", ErrDevice))
	case m.device.current == nil || m.now.gpu.exec != m.device.current:
		return fail(fmt.Errorf("%w: nothing has run", ErrNoValue))
	}
	if err := m.prepareProfile(); err != nil {
		return fail(err)
	}
	x := m.device.current
	before := x.Runs()
	t, err := x.Profile(runs)
	m.profiled(x.Runs() - before)
	if err != nil {
		return fail(err)
	}
	return t, nil
}

// profiled notes runs that the device has counted by itself.
func (m *Machine) profiled(runs uint64) {
	m.clock[0] += runs
	m.device.next = m.clock[0]
	if e := m.now.deposits(); e != nil && !e.manner.local() {
		for range runs {
			e.d.Ran(nil)
		}
	}
	if m.solve != nil && m.solve.fused {
		m.solve.steps += int(runs)
	}
}

// prepareProfile sets the host's inputs of the runs: this rank's weight, and the rate.
func (m *Machine) prepareProfile() error {
	d := m.device
	if err := d.dev.Enter(); err != nil {
		return err
	}
	defer d.dev.Leave()
	if err := d.from.quiet(); err != nil {
		return err
	}
	if err := m.solve.prepare(m.now); err != nil {
		return err
	}
	return m.now.prepareExchange()
}
