package conformance

import (
	"errors"
	"fmt"
	"slices"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

// Options is what the suite must know of a backend. The zero value is usable for one of the host.
type Options struct {
	Large    int   // elements of the large cases: more than any chunk the backend cuts; 0 means 20,011
	Ranks    []int // sizes of worlds; empty means 1, 2, 3, 4 and 7
	Most     int   // no world has more ranks than this, of those that break as well; 0 means any number
	Blocking bool  // operations run on their callers
	OneWorld bool  // opening a world takes long: all parts run in one of each size, and only the largest is broken

	// Memory is that of the group's device; nil means that buffers are Go memory, and that the
	// parts of a heap are the host's. Litmus and Random look at memory while others write it and
	// are for the host only: the suite leaves them out when there is a Memory.
	Memory Memory
	// AnyOrder says that sums and products may be combined in any order and in the element's own
	// type. Their results for data that round are held against an error bound, and not against the
	// bits of the rank order.
	AnyOrder bool
	// FMin says that min and max are those of C: a NaN loses against a number, and the zeros are
	// equal.
	FMin bool
	// Skip is why the backend does not support c; "" means that it must. An error that matches
	// dist.ErrUnsupported passes only where there is a reason; what works is checked whether there
	// is one or not. nil is no reason for anything.
	Skip func(c Case) string
}

func (o Options) large() int {
	if o.Large <= 0 {
		return 20011
	}
	return o.Large
}

// space is an empty space on the device of g.
func (o Options) space(g *dist.Group) *space { return &space{mem: o.Memory, dev: g.Device()} }

// part is one piece of the suite: what one rank of a world does. It leaves the world usable.
type part struct {
	name  string
	run   func(s *suite) error
	cases func(o Options, n int) []scenario // that have every row of the part among n ranks; nil where there are none
}

var collectives = []part{
	{"Reductions", (*suite).reductions, reductionRows},
	{"Copies", (*suite).copies, copyRows},
	{"Large", (*suite).largeCases, Options.largeScenarios},
}

var parts = append(slices.Clip(collectives), []part{
	{"Properties", (*suite).properties, nil},
	{"Queue", (*suite).queue, nil},
	{"Messages", (*suite).messages, nil},
	{"Batch", (*suite).batches, nil},
	{"Streams", (*suite).streams, nil},
	{"Split", (*suite).splits, nil},
	{"Heap", (*suite).heaps, nil},
	{"Misuse", (*suite).misuse, nil},
	{"Timing", (*suite).timing, nil},
}...)

// Suite runs every check that leaves the world whole, as one rank of it.
//
// Collective: all ranks of w, same options. Errors: what was wrong, naming collective, dtype,
// reduction, length, memory and in place; nil when nothing was. A call that fails ends the suite on
// this rank.
func Suite(w *dist.World, opt Options) error { return runParts(w, opt, parts) }

// Collectives is Suite without messages, streams and all that is no collective, for a world whose
// engine has nothing else.
func Collectives(w *dist.World, opt Options) error { return runParts(w, opt, collectives) }

func runParts(w *dist.World, opt Options, parts []part) error {
	for _, p := range parts {
		if err := runPart(w, opt, p, nil); err != nil {
			return err
		}
	}
	return nil
}

// runPart is one rank's run of p, with the rows that its process has made for p; nil for none.
func runPart(w *dist.World, opt Options, p part, made *rows) error {
	s := &suite{space: opt.space(w.Group), w: w, g: w.Group, n: w.Size(), rank: w.Rank(), opt: opt}
	s.rows = newRows(s.n, made)
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
	if err == nil { // else operations may still use it
		err = s.close()
	}
	if err = errors.Join(append(s.wrong, s.failed(), err)...); err != nil {
		return fmt.Errorf("%s, rank %d of %d: %w", p.name, s.rank, s.n, err)
	}
	return nil
}

// suite is one rank's run of one part.
type suite struct {
	*space  // of buffers that are in no heap
	w       *dist.World
	g       *dist.Group
	n, rank int
	opt     Options
	rows    *rows
	heap    symmetric.Heap // nil where the backend has none
	src     symmetric.Region
	dst     symmetric.Region
	factor  symmetric.Region // scalar of premulsum
	wrong   []error
	cases   int // run so far, to vary what need not be crossed
}

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
	if !errors.Is(got, want) && !s.opt.skips(got) {
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

// elements is a private buffer of count elements of dt.
func (s *suite) private(dt tensor.DType, count int, f func(i int) uint64) (tensor.Buffer, error) {
	b := s.take(dt, count)
	if err := s.failed(); err != nil {
		return b, err
	}
	s.fill(b, f)
	return b, nil
}
