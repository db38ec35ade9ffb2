package blas

import (
	"sync"

	"github.com/symgrad/symgrad/internal/dl"
)

// frame has the arguments of one call. Fortran takes everything by address, so scalars need memory
// that does not move. A frame serves one call at a time.
type frame[T real] struct {
	words       [15]uintptr // the argument list itself
	ints        [6]int32
	alpha, beta T
	trans       [2]byte
}

// framePool lends frames, so that a call allocates nothing. The zero value is ready.
type framePool[T real] struct{ pool sync.Pool }

func (p *framePool[T]) get() *frame[T] {
	if f, ok := p.pool.Get().(*frame[T]); ok {
		return f
	}
	return new(frame[T])
}

func (p *framePool[T]) put(f *frame[T]) { p.pool.Put(f) }

// perThread sets the number of threads before each call of a library that keeps it per OS thread,
// as OpenMP does. A new OS thread starts with all cores, and Go calls from any, so a number that is
// set once would not last.
type perThread struct {
	setThreads dl.Proc   // void f(int)
	args       []uintptr // the argument, in a list made once; empty: nothing to do
}

// run calls fn on a thread whose number of threads is set.
func (p *perThread) run(fn func()) {
	if len(p.args) == 0 {
		fn()
		return
	}
	_ = dl.OnThread(func() error {
		_, err := p.setThreads.Call(p.args...)
		fn()
		return err
	})
}

// entry is a routine called with machine words.
type entry struct {
	proc   dl.Proc
	before perThread
}

// call calls e with up to 15 words; a routine ignores those that it does not take. w is memory for
// them.
//
// The pragma makes the callers' conversions valid: the compiler keeps the objects of the uintptrs
// alive, and off the moving stack, until call returns. Stored in a slice before the call they would
// not be safe.
//
// Proc.Call cannot fail here: Open refuses a library that lacks a symbol, and 15 words fit.
//
//go:uintptrescapes
func (e *entry) call(w *[15]uintptr, a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14 uintptr) {
	*w = [15]uintptr{a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14}
	e.before.run(func() { _, _ = e.proc.Call(w[:]...) })
}

// dotEntry is the routine that returns a float.
type dotEntry[T real] struct {
	fn     dotOf[T]
	before perThread
}

func (e *dotEntry[T]) call(n *int32, x *T, incX *int32, y *T, incY *int32) (sum T) {
	e.before.run(func() { sum = e.fn(n, x, incX, y, incY) })
	return sum
}
