package conformance

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

// Options is what the suite must know of a backend. The zero value is usable.
type Options struct {
	Large    int   // elements of the large cases: more than any chunk the backend cuts; 0 means 20,011
	Ranks    []int // sizes of worlds; empty means 1, 2, 3, 4 and 7
	Blocking bool  // operations run on their callers
}

func (o Options) large() int {
	if o.Large <= 0 {
		return 20011
	}
	return o.Large
}

// part is one piece of the suite: what one rank of a world does. It leaves the world usable.
type part struct {
	name string
	run  func(s *suite) error
}

var parts = []part{
	{"Reductions", (*suite).reductions},
	{"Copies", (*suite).copies},
	{"Large", (*suite).largeCases},
	{"Properties", (*suite).properties},
	{"Queue", (*suite).queue},
	{"Messages", (*suite).messages},
	{"Batch", (*suite).batches},
	{"Streams", (*suite).streams},
	{"Split", (*suite).splits},
	{"Heap", (*suite).heaps},
	{"Misuse", (*suite).misuse},
}

// Suite runs every check that leaves the world whole, as one rank of it.
//
// Collective: all ranks of w, same options. Errors: what was wrong, naming collective, dtype, reduction, length, memory and
// in place; nil when nothing was. A call that fails ends the suite on this rank.
func Suite(w *dist.World, opt Options) error {
	for _, p := range parts {
		if err := runPart(w, opt, p); err != nil {
			return err
		}
	}
	return nil
}

func runPart(w *dist.World, opt Options, p part) error {
	s := &suite{w: w, g: w.Group, n: w.Size(), rank: w.Rank(), opt: opt}
	if opt.Blocking {
		s.g = w.Blocking()
	}
	err := s.open()
	if err == nil {
		err = p.run(s)
	}
	if s.heap != nil && err == nil {
		err = s.heap.Close()
	}
	if err = errors.Join(append(s.wrong, err)...); err != nil {
		return fmt.Errorf("%s, rank %d of %d: %w", p.name, s.rank, s.n, err)
	}
	return nil
}

// suite is one rank's run of one part.
type suite struct {
	w       *dist.World
	g       *dist.Group
	n, rank int
	opt     Options
	heap    symmetric.Heap // nil where the backend has none
	src     symmetric.Region
	dst     symmetric.Region
	factor  symmetric.Region // scalar of premulsum
	wrong   []error
	cases   int // run so far, to vary what need not be crossed
}

// pad is the elements kept free on either side of a buffer, to see what is written there.
const pad = 4

// maxWrong bounds how much one part reports.
const maxWrong = 10

// open makes the heap in which buffers of the cases lie.
func (s *suite) open() error {
	region := int64(8 * (s.opt.large() + s.n*8 + 2*pad + 8))
	h, err := s.g.Heap(3*region + 8*symmetric.Alignment)
	if errors.Is(err, dist.ErrUnsupported) {
		return nil
	}
	if err != nil {
		return err
	}
	s.heap = h
	for _, r := range []*symmetric.Region{&s.src, &s.dst, &s.factor} {
		if *r, err = h.Alloc(region); err != nil {
			return err
		}
	}
	return nil
}

// fault notes a wrong result; the suite goes on, so that ranks stay in step.
func (s *suite) fault(format string, args ...any) {
	switch {
	case len(s.wrong) < maxWrong:
		s.wrong = append(s.wrong, fmt.Errorf(format, args...))
	case len(s.wrong) == maxWrong:
		s.wrong = append(s.wrong, errors.New("and more"))
	}
}

// expect notes an error that is not the wanted one.
func (s *suite) expect(what string, got, want error) {
	if !errors.Is(got, want) {
		s.fault("%s: error %v, want %v", what, got, want)
	}
}

// finish waits for an operation that was just issued.
func finish(w dist.Work, err error) error {
	if err != nil {
		return err
	}
	return w.Wait()
}

// window is a buffer with free elements around it, all of which hold the canary until somebody writes them.
type window struct {
	whole tensor.Buffer
	buf   tensor.Buffer
}

const canary = 0xa5a5a5a5a5a5a5a5

// window is a window of n elements in region, or in fresh private memory when region is nil.
func (s *suite) window(region symmetric.Region, dt tensor.DType, n int) (window, error) {
	total := n + 2*pad
	var at unsafe.Pointer
	if region == nil {
		at = unsafe.Pointer(unsafe.SliceData(make([]uint64, (total*dt.Size()+7)/8)))
	} else {
		local := region.Local()
		if local.Bytes() < int64(total*dt.Size()) {
			return window{}, fmt.Errorf("suite: a region of %d B for %d elements of %v", local.Bytes(), total, dt)
		}
		at = local.Pointer()
	}
	whole, err := tensor.FromPointer(at, total, dt, tensor.Host)
	if err != nil {
		return window{}, err
	}
	raw := whole.Raw()
	for i := range total {
		put(raw, dt, i, canary)
	}
	buf, err := whole.Slice(pad, pad+n)
	return window{whole, buf}, err
}

// intact reports the first element of the window outside elements 0 to n of its buffer that is no canary.
func (w window) intact(n int) error {
	dt, raw := w.whole.DType(), w.whole.Raw()
	for i := range w.whole.Len() {
		if (i < pad || i >= pad+n) && get(raw, dt, i) != canary&mask(dt) {
			return fmt.Errorf("element %d, outside of the result, was written", i-pad)
		}
	}
	return nil
}

// fill sets the elements of b to f.
func fill(b tensor.Buffer, f func(i int) uint64) {
	raw, dt := b.Raw(), b.DType()
	for i := range b.Len() {
		put(raw, dt, i, f(i))
	}
}

// holds reports the first of the n elements at the start of b that is not f.
func holds(b tensor.Buffer, n int, f func(i int) uint64) error {
	raw, dt := b.Raw(), b.DType()
	for i := range n {
		if got, want := get(raw, dt, i), f(i); !sameBits(dt, got, want) {
			return fmt.Errorf("element %d is %s, want %s", i, format(dt, got), format(dt, want))
		}
	}
	return nil
}
