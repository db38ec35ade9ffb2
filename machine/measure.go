package machine

import (
	"errors"
	"fmt"
	"time"

	"github.com/symgrad/symgrad/internal/compile/cudaexec"
	"github.com/symgrad/symgrad/internal/compile/program"
)

// Timeline is the time of a run on a GPU by the device's clock: the whole run, computation,
// communication, exposed communication, and each step. String returns a table.
type Timeline = cudaexec.Timeline

// Profile measures the program that ran last on a GPU. After a few runs to warm up it makes n runs
// without marks, n with marks around collectives, and n with marks around each step. They are real
// runs on the current inputs: with Config.Solver they update the parameters and count as steps.
//
// Collective: with ddp, all ranks with the same n. Shapes/units: n is 1 to 10000. Errors:
// ErrDevice on the CPU, where ddp.Timeline and runtime/pprof measure times; ErrNoValue before the
// first run; those of a run.
func (m *Machine) Profile(n int) (Timeline, error) {
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
	t, err := x.Profile(n)
	m.profiled(x.Runs() - before)
	if err != nil {
		return fail(err)
	}
	return t, nil
}

// profiled counts runs that Profile has made on the device.
func (m *Machine) profiled(runs uint64) {
	m.clock[0] += runs
	m.device.next = m.clock[0]
	if e := m.now.deposits(); e != nil && !e.Manner.Local() {
		for range runs {
			e.DDP.Machine().Ran(nil)
		}
	}
	if m.solve != nil && m.solve.alone == nil {
		m.solve.steps += int(runs)
	}
}

// prepareProfile sets this rank's weight and the learning rate for the runs.
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
	return m.now.gpu.prepareExchange()
}

// Mark records when the runs queued so far end, for Intervals. On a GPU the device records the
// time, so the host does not wait, and later runs are not delayed.
//
// Errors: on a GPU, ErrNoValue before the first run and those of the device; ErrClosed.
func (m *Machine) Mark() error {
	switch {
	case m.closed:
		return fmt.Errorf("machine %s: %w", m.cfg.Name, ErrClosed)
	case m.device != nil && m.device.current == nil:
		return fmt.Errorf("machine %s: mark: %w: nothing has run", m.cfg.Name, ErrNoValue)
	case m.device == nil:
		m.runEnds = append(m.runEnds, runEnd{at: time.Now()})
		return nil
	}
	timer, err := m.device.dev.NewTimer()
	if err == nil {
		m.runEnds = append(m.runEnds, runEnd{timer: timer})
		err = m.device.current.Stream().Record(timer)
	}
	if err != nil {
		return fmt.Errorf("machine %s: mark: %w", m.cfg.Name, err)
	}
	return nil
}

// Intervals returns the times from each call of Mark to the next, and clears them.
//
// Returns: when the runs are done; one interval less than calls. Errors: those of the runs;
// ErrClosed.
func (m *Machine) Intervals() ([]time.Duration, error) {
	if m.closed {
		return nil, fmt.Errorf("machine %s: %w", m.cfg.Name, ErrClosed)
	}
	times, err := m.runEnds.measure(m.device)
	if err = errors.Join(err, m.runEnds.close()); err != nil {
		return nil, fmt.Errorf("machine %s: intervals: %w", m.cfg.Name, err)
	}
	return times, nil
}

// FLOP returns the floating-point operations of the matrix products, convolutions and attention in
// one run of the program for the current shapes, on this rank. Divided by the rows of the batch, it
// is metrics.Config.FLOPPerSample. After Close it is 0.
//
// Source: Chowdhery et al., PaLM, 2022, appendix B: elementwise work does not count, and masked
// positions of attention do.
func (m *Machine) FLOP() int64 {
	if m.now == nil || m.closed {
		return 0
	}
	return program.FLOP(m.now.Program)
}

// Footprint returns the memory of the program for the current shapes.
func (m *Machine) Footprint() Footprint {
	var f Footprint
	if m.now == nil || m.closed {
		return f
	}
	switch r := m.now.runner.(type) {
	case interface {
		Footprint() (arena, constants, scratch int64)
	}:
		f.Arena, f.Constants, f.Scratch = r.Footprint()
	case *cudaexec.Exec:
		f.Arena, f.Constants, f.Scratch, f.Inputs = r.Footprint()
	}
	values := m.memory
	if m.device != nil {
		values = m.device.memory
	}
	for p, b := range values { // a sum, in any order
		if !p.dual {
			f.Outputs += b.Bytes()
		}
	}
	for i := range m.now.hooks.places {
		f.Gradients += m.now.hooks.places[i].own.Bytes()
	}
	f.Moments, f.Precision = moments(m.now.Program), precisionOf(m.now.Program)
	return f
}
