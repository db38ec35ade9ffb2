package hostexec

import (
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/tensor"
)

// ErrClosed is returned by the methods of a runner after Close.
var ErrClosed = errors.New("runner is closed")

// ErrUnbound is returned by Run when an Outside value has no memory yet.
var ErrUnbound = errors.New("value is not bound")

// runner is a loaded program.
type runner struct {
	p       *program.Program // the caller's
	mem     *memory          // of p's values and of those that loading added
	env     program.Env
	crew    *crew
	steps   []step
	needed  []program.ID // the Outside values that steps touch
	bound   bool         // all of needed have memory
	pending []dist.Work  // collectives that have been started, by step
	open    []int        // steps of pending that have not been waited for, oldest first
	watched []tensor.Buffer
	closed  bool
}

// step is a prepared step: phases, each of which ends before the next starts; or a collective, or a
// call.
type step struct {
	index  int // in the program
	phases []phase
	coll   *collective
	call   *call
	comm   bool
	after  []int // collectives that must be done before
}

// phase is a task and its pieces, which may run in parallel.
type phase struct {
	task   task
	pieces int
}

// New loads a program, which has been planned, to run on the host. It allocates the arena and the
// constants, prepares every step and starts the goroutines that compute.
//
// Returns: a runner, which the caller closes. Owns: p and env stay the caller's and must not change
// while the runner is open. Errors: program.ErrInvalid; a step that cannot be run, by name; a group
// or a call that is missing in env; an arena larger than the memory.
func New(p *program.Program, cfg Config, env program.Env) (program.Runner, error) {
	r, err := load(p, cfg, env, best())
	if err != nil {
		return nil, err
	}
	return r, nil
}

// load is New with the kernels of an instruction set. nil is plain Go.
func load(p *program.Program, cfg Config, env program.Env, l *level) (*runner, error) {
	k, err := ready(p, cfg, env, l)
	if err != nil {
		return nil, err
	}
	if err := fits(k.p.Arena, int64(k.work)+int64(k.threads)*int64(k.scratch), machineBytes()); err != nil {
		return nil, fmt.Errorf("hostexec: %s: %w", p.Name, err)
	}
	mem, err := newMemory(k.p, k.work)
	if err != nil {
		return nil, fmt.Errorf("hostexec: %w", err)
	}
	r := &runner{p: p, mem: mem, env: env, steps: k.steps, pending: make([]dist.Work, len(p.Steps)), open: make([]int, 0, len(p.Steps))}
	r.needed = outside(p)
	r.crew = newCrew(cfg.threads(), k.scratch, k.slots, mem)
	return r, nil
}

// ready prepares every step, without allocating the memory that steps work on.
func ready(p *program.Program, cfg Config, env program.Env, l *level) (_ *maker, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("hostexec: %s: BUG: panic: %v\n%s", p.Name, v, debug.Stack())
		}
	}()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if err := program.Validate(p); err != nil {
		return nil, fmt.Errorf("hostexec: %w", err)
	}
	k := newMaker(p, cfg, env, l)
	for i := range p.Steps {
		if err := k.step(i); err != nil {
			return nil, fmt.Errorf("hostexec: %w", stepError(p, i, err))
		}
	}
	return k, nil
}

// outside returns the Outside values that steps use, and the clock.
func outside(p *program.Program) []program.ID {
	used := make([]bool, len(p.Values))
	for i := range p.Steps {
		for _, v := range p.Steps[i].In {
			used[v.Value] = true
		}
		for _, v := range p.Steps[i].Out {
			used[v.Value] = true
		}
		if draws(p.Steps[i].Op) {
			used[p.Clock] = true
		}
	}
	var ids []program.ID
	for i := range used {
		if used[i] && p.Values[i].Place == program.Outside {
			ids = append(ids, program.ID(i))
		}
	}
	return ids
}

// draws reports whether an operation draws random numbers.
func draws(op program.Op) bool {
	var code []program.Instr
	switch o := op.(type) {
	case *program.Map:
		code = o.Code
	case *program.Reduce:
		code = o.Code
	}
	for i := range code {
		if code[i].Op == program.Rand {
			return true
		}
	}
	return false
}

// stepError adds the step's name to an error.
func stepError(p *program.Program, i int, err error) error {
	s := &p.Steps[i]
	return fmt.Errorf("step %d %q (%v): %w", i, s.Name, s.Op, err)
}

// Bind implements program.Runner.
func (r *runner) Bind(id program.ID, b tensor.Buffer) error {
	if r.closed {
		return fmt.Errorf("hostexec: bind: %w", ErrClosed)
	}
	err := r.mem.bind(id, b)
	if err == nil {
		r.crew.forget()
	}
	return err
}

// Memory implements program.Runner.
func (r *runner) Memory(id program.ID) (tensor.Buffer, error) {
	switch {
	case r.closed:
		return tensor.Buffer{}, fmt.Errorf("hostexec: memory: %w", ErrClosed)
	case id < 0 || int(id) >= len(r.p.Values):
		return tensor.Buffer{}, fmt.Errorf("hostexec: memory: value %d of %d", id, len(r.p.Values))
	case r.mem.base[id] == nil:
		return tensor.Buffer{}, fmt.Errorf("hostexec: memory: value %d %q: %w", id, r.p.Values[id].Name, ErrUnbound)
	}
	return r.mem.buffer(id, 0, r.p.Values[id].Len())
}

// Run implements program.Runner.
func (r *runner) Run() (err error) {
	if r.closed {
		return fmt.Errorf("hostexec: run: %w", ErrClosed)
	}
	if err := r.ready(); err != nil {
		return err
	}
	at := 0
	defer func() {
		if v := recover(); v != nil {
			err = stepError(r.p, r.steps[at].index, fmt.Errorf("BUG: panic: %v\n%s", v, debug.Stack()))
		}
		if err != nil {
			r.settle() // buffers belong to the group until then; the first error counts
			err = fmt.Errorf("hostexec: %w", err)
		}
	}()
	for at = range r.steps {
		if err := r.step(&r.steps[at]); err != nil {
			return err
		}
	}
	return r.settle()
}

// ready returns an error if an Outside value has no memory.
func (r *runner) ready() error {
	if r.bound {
		return nil
	}
	for _, id := range r.needed {
		if r.mem.base[id] == nil {
			return fmt.Errorf("hostexec: run: value %d %q: %w", id, r.p.Values[id].Name, ErrUnbound)
		}
	}
	r.bound = true
	return nil
}

// step does a step after the steps that it waits for. Errors: name their step, which may be an
// earlier one.
func (r *runner) step(s *step) error {
	for _, i := range s.after {
		if err := r.await(i); err != nil {
			return err
		}
	}
	if s.comm && s.coll == nil { // in order after the collectives of its stream
		if err := r.settle(); err != nil {
			return err
		}
	}
	if err := r.do(s); err != nil {
		return stepError(r.p, s.index, err)
	}
	if r.env.Watch == nil {
		return nil
	}
	if err := r.settle(); err != nil {
		return err
	}
	if err := r.watch(s); err != nil {
		return stepError(r.p, s.index, err)
	}
	return nil
}

func (r *runner) do(s *step) error {
	switch {
	case s.coll != nil:
		return r.collect(s)
	case s.call != nil:
		return s.call.run(r.mem)
	}
	for i := range s.phases {
		if err := r.crew.run(s.phases[i].task, s.phases[i].pieces); err != nil {
			return err
		}
	}
	return nil
}

// watch passes the Outs of a step to the environment.
func (r *runner) watch(s *step) error {
	r.watched = r.watched[:0]
	for _, v := range r.p.Steps[s.index].Out {
		n := r.p.Values[v.Value].Len() - v.Offset
		b, err := r.mem.buffer(v.Value, v.Offset, n)
		if err != nil {
			return err
		}
		r.watched = append(r.watched, b)
	}
	return r.env.Watch(s.index, r.watched)
}

// Wait implements program.Runner. Run has already waited for everything.
func (r *runner) Wait() error {
	if r.closed {
		return fmt.Errorf("hostexec: wait: %w", ErrClosed)
	}
	return nil
}

// Close implements program.Runner.
func (r *runner) Close() error {
	if !r.closed {
		r.closed = true
		r.crew.close()
		r.crew.forget()
		clear(r.mem.base)
		clear(r.watched[:cap(r.watched)])
	}
	return nil
}

// Foresee returns the Footprint of the runner that New would make, without allocating memory or
// starting goroutines.
//
// Errors: those of New, except for a lack of memory.
func Foresee(p *program.Program, cfg Config, env program.Env) (arena, constants, scratch int64, err error) {
	k, err := ready(p, cfg, env, best())
	if err != nil {
		return 0, 0, 0, err
	}
	for i := range k.p.Values {
		if v := &k.p.Values[i]; v.Place == program.Constant {
			constants += int64(blockBytes(len(v.Data)))
		}
	}
	scratch = int64(blockBytes(k.work)) + int64(cfg.threads())*int64(blockBytes(k.scratch))
	return int64(blockBytes(int(k.p.Arena))), constants, scratch, nil
}

// Footprint returns the bytes of a loaded program, without bound memory: the arena, the constants,
// and the memory that steps work in, including the goroutines' share.
func (r *runner) Footprint() (arena, constants, scratch int64) {
	for _, b := range r.mem.fixed {
		constants += b.bytes()
	}
	scratch = r.mem.work.bytes()
	for _, b := range r.crew.blocks {
		scratch += b.bytes()
	}
	return r.mem.arena.bytes(), constants, scratch
}

func (b block) bytes() int64 { return 8 * int64(len(b.raw)) }
