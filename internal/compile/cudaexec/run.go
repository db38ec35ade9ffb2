package cudaexec

import (
	"errors"
	"fmt"
	"runtime"
	"time"
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/internal/gpu"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
	"github.com/symgrad/symgrad/tensor"
)

// warmRuns is the number of runs that are queued step by step before the program is captured. At
// their first use libraries choose algorithms, load kernels and connect to peers, most of which
// fails during a capture.
const warmRuns = 1

// Run implements program.Runner. It allocates nothing once the program is captured.
//
// Collective: with collectives. Returns: when queued; a rank that is a thousand runs ahead of
// another waits. Errors: dist.ErrInvalid, naming a value that is not bound; those of steps;
// ErrFault of an earlier run, once it is known; the reason why a group is broken.
func (x *Exec) Run() error {
	switch {
	case x.closed:
		return errClosed
	case x.unbound > 0:
		return x.missing()
	}
	if err := x.dev.Enter(); err != nil {
		return err
	}
	defer x.dev.Leave()
	if err := x.back.fault(x); err != nil {
		return err
	}
	if err := x.stage.begin(x); err != nil {
		return x.failure(err)
	}
	if err := x.launch(); err != nil {
		x.failed = true
		return x.failure(err)
	}
	x.failed = false
	if err := x.back.ran(x.home); err != nil {
		return x.failure(err)
	}
	if err := x.stage.ran(x.home); err != nil {
		return x.failure(err)
	}
	if x.comm == nil {
		return nil
	}
	if err := x.comm.announce(); err != nil {
		return x.failure(err)
	}
	return nil
}

// launch queues one run.
func (x *Exec) launch() error {
	if x.cfg.Eager || x.calls != nil || x.env.Watch != nil || x.warm < warmRuns {
		x.warm++
		return x.eager(false)
	}
	g, err := x.graphs.get(x)
	if err != nil {
		return err
	}
	return g.exec.Launch(x.home)
}

func (x *Exec) failure(err error) error {
	return fmt.Errorf("cudaexec: program %q: %w", x.p.Name, err)
}

// missing returns the error of values that are not bound.
func (x *Exec) missing() error {
	for i, b := range x.bound {
		if !b {
			return x.failure(fmt.Errorf("%w: %s is not bound, and %d more", dist.ErrInvalid, valueName(x.p, program.ID(i)), x.unbound-1))
		}
	}
	return nil
}

// eager queues all steps one by one. With apart it waits for each.
func (x *Exec) eager(apart bool) error {
	return x.queue(func(i int) error {
		if err := x.step(i); err != nil {
			return err
		}
		if apart {
			if err := x.streams[x.order.on[i]].Synchronize(); err != nil {
				return fmt.Errorf("%s: %w", stepName(x.p, i), err)
			}
		}
		if x.env.Watch != nil {
			return x.watch(i)
		}
		return nil
	})
}

// queue queues a whole run: step queues one step on its stream.
func (x *Exec) queue(step func(i int) error) error {
	if m := x.stamps; m != nil {
		if err := x.put(m, len(m.times)-2, x.home); err != nil {
			return err
		}
	}
	err := x.begins()
	if err == nil {
		err = x.steps(step)
	}
	if err = errors.Join(err, x.ends()); err != nil { // also after an error, so that a capture can end
		return err
	}
	if m := x.stamps; m != nil {
		if err := x.put(m, len(m.times)-1, x.home); err != nil {
			return err
		}
	}
	return x.back.tail(x)
}

func (x *Exec) steps(step func(i int) error) error {
	single := x.others() == [streams]*cuda.Stream{}
	for i := range x.p.Steps {
		t := &x.order.turns[i]
		s := x.streams[x.order.on[i]]
		if single { // the steps are in the right order already
			if err := step(i); err != nil {
				return err
			}
			continue
		}
		for _, e := range t.waits {
			if err := s.Wait(x.events[e]); err != nil {
				return fmt.Errorf("%s: %w", stepName(x.p, i), err)
			}
		}
		if err := step(i); err != nil {
			return err
		}
		if t.record >= 0 {
			if err := s.Record(x.events[t.record]); err != nil {
				return fmt.Errorf("%s: %w", stepName(x.p, i), err)
			}
		}
	}
	return nil
}

// step queues step i.
func (x *Exec) step(i int) error {
	s := x.streams[x.order.on[i]]
	var err error
	switch {
	case x.comm != nil && x.comm.steps[i] != nil:
		err = x.communicate(i)
	case x.calls[i] != nil:
		err = x.callHost(i)
	case x.mul.does(i):
		err = x.mul.steps[i].queue(s, x.addr, x.room)
	case x.conv.does(i):
		err = x.conv.queue(i, x.addr)
	default:
		for k := range x.code.steps[i] {
			if err = x.code.steps[i][k].queue(s, x.addr, x.room); err != nil {
				break
			}
		}
	}
	if err != nil {
		return fmt.Errorf("%s: %w", stepName(x.p, i), err)
	}
	return nil
}

// communicate queues collective i. In a graph the step after a collective that is ahead waits until
// the collective has begun.
func (x *Exec) communicate(i int) error {
	k, comm := x.comm.steps[i], x.streams[program.Comm]
	if !x.order.turns[i].ahead {
		return k.queue(&x.cfg, x.addr)
	}
	before, err := comm.Captured()
	if err != nil {
		return err
	}
	if err := k.queue(&x.cfg, x.addr); err != nil {
		return err
	}
	behind, err := comm.Captured()
	if err == nil && behind == before+1 { // a single kernel: of several kernels the wait would be for the last
		_, err = x.streams[program.Compute].WaitBegun(comm)
	}
	return err
}

// Wait implements program.Runner. With collectives it also waits until all ranks have queued the
// run. The death of a rank ends it.
//
// Errors: of the driver; ErrFault; an *dist.OpError that wraps a *dist.RankError, or the reason why
// a group is broken.
func (x *Exec) Wait() error {
	if x.closed {
		return errClosed
	}
	if err := x.settle(); err != nil {
		return x.failure(err)
	}
	return x.back.fault(x)
}

// settle returns when the device has done all queued work, or with the reason why it never will.
func (x *Exec) settle() error {
	if x.home == nil {
		return nil
	}
	if x.comm == nil {
		if err := x.before(); err != nil {
			return err
		}
		return x.home.Synchronize()
	}
	if err := x.comm.wait(); err != nil {
		return err
	}
	if x.failed { // the run is incomplete, and no announcement follows it
		return x.comm.stream.Synchronize()
	}
	return nil
}

// before calls Config.Before.
func (x *Exec) before() error {
	if x.cfg.Before == nil {
		return nil
	}
	return x.cfg.Before()
}

// patience is the time that the device of a broken group has to finish its work.
const patience = 2 * time.Second

// drained reports whether the device has finished all work of the program.
func (x *Exec) drained() bool {
	for began := time.Now(); time.Since(began) < patience; runtime.Gosched() {
		idle := true
		for _, s := range x.streams {
			ok, err := s.Idle()
			idle = idle && (ok || err != nil)
		}
		if idle {
			return true
		}
	}
	return false
}

// askFor is how long await polls the device only. After that it also asks from time to time whether
// the run has failed.
const askFor = 100 * time.Millisecond

// await returns when e is done. The driver's own wait would hang after the death of a rank.
func (x *Exec) await(e *cuda.Event) error {
	began := time.Now()
	for {
		done, err := e.Done()
		if err != nil || done {
			return err
		}
		switch waited := time.Since(began); {
		case waited < askFor:
			gpu.Rest(waited)
		case x.comm == nil:
			if err := x.before(); err != nil {
				return err
			}
			return e.Synchronize()
		default:
			if err := x.comm.wait(); err != nil {
				return err
			}
		}
	}
}

// watch passes the outputs of step i to Env.Watch.
func (x *Exec) watch(i int) error {
	s := &x.p.Steps[i]
	if err := x.quiet(i); err != nil {
		return fmt.Errorf("%s: %w", stepName(x.p, i), err)
	}
	outs := make([]tensor.Buffer, 0, len(s.Out))
	_, operands, err := x.p.Operands(s)
	if err != nil {
		return fmt.Errorf("%s: %w", stepName(x.p, i), err)
	}
	for k, v := range s.Out {
		b, err := x.fetch(v, operands[k].Space)
		if err != nil {
			return fmt.Errorf("%s: %w", stepName(x.p, i), err)
		}
		outs = append(outs, b)
	}
	if err := x.env.Watch(i, outs); err != nil {
		return fmt.Errorf("%s: %w", stepName(x.p, i), err)
	}
	return nil
}

// quiet waits for step i.
func (x *Exec) quiet(i int) error {
	if x.comm != nil && x.order.on[i] == program.Comm {
		return x.comm.stream.Synchronize()
	}
	return x.streams[x.order.on[i]].Synchronize()
}

// fetch copies the elements of v over space to the host, without gaps.
func (x *Exec) fetch(v program.View, space []int) (tensor.Buffer, error) {
	val := &x.p.Values[v.Value]
	size := val.DType.Size()
	n := 1
	for _, d := range space {
		n *= d
	}
	packed := make([]uint64, (max(n, 1)*size+7)/8) // words, for the alignment of any element
	to := unsafe.Slice((*byte)(unsafe.Pointer(&packed[0])), n*size)
	if n > 0 {
		last := 0
		for d, stride := range v.Strides {
			last += (space[d] - 1) * stride
		}
		from := make([]byte, (last+1)*size)
		if err := x.dev.CopyToHost(unsafe.Pointer(&from[0]), x.addr[v.Value]+uintptr(v.Offset*size), int64(len(from))); err != nil {
			return tensor.Buffer{}, err
		}
		pack(to, from, space, v.Strides, size)
	}
	return tensor.FromPointer(unsafe.Pointer(&packed[0]), n, val.DType, tensor.Host)
}

// pack copies elements of size bytes, at strides over space, to a buffer without gaps.
func pack(to, from []byte, space, strides []int, size int) {
	index := make([]int, len(space))
	at := 0
	for o := 0; o < len(to); o += size {
		copy(to[o:o+size], from[at*size:])
		for d := len(space) - 1; d >= 0; d-- {
			index[d]++
			at += strides[d]
			if index[d] < space[d] {
				break
			}
			at -= index[d] * strides[d]
			index[d] = 0
		}
	}
}
