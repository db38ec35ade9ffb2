package conformance

import (
	"errors"
	"fmt"
	"slices"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

// Options describes a backend to the suite. The zero value is usable for a host backend.
type Options struct {
	Large    int   // elements of the large cases: more than any chunk of the backend; 0 means 20,011
	Ranks    []int // sizes of worlds; empty means 1, 2, 3, 4 and 7
	Most     int   // limit of the ranks of all worlds; 0 means none
	Every    int   // run one of so many small calls, and fewer disagreements, where they are slow; use a prime; 0 means all
	Blocking bool  // operations run on their callers
	OneWorld bool  // opening a world is slow: run all parts in one world per size, and break only the largest

	// Memory is the memory of the group's device. nil means Go memory for buffers, and heaps on the
	// host. Litmus and Random read memory while others write it; the suite omits them if Memory is
	// set.
	Memory Memory
	// AnyOrder means that sums and products may be combined in any order and in the element's own
	// type. Results of data that rounds are then compared with an error bound instead of the bits
	// in rank order.
	AnyOrder bool
	// FMin means that min and max are those of C: a NaN loses against a number, and the zeros are
	// equal.
	FMin bool
	// FarPeers means that some peers' parts of a heap have no address: Region.Peer of another rank
	// may be dist.ErrUnsupported. The suite then reads these parts by Get.
	FarPeers bool
	// NearHeaps means that one-sided calls reach some ranks only: the suite calls no other rank.
	NearHeaps bool
	// Skip returns why the backend does not support c; "" means that it must. An error that matches
	// dist.ErrUnsupported passes only with a reason. Operations that work are checked in any case.
	// nil means no reasons.
	Skip func(c Case) string
}

func (o Options) large() int {
	if o.Large <= 0 {
		return 20011
	}
	return o.Large
}

// times returns the number of repetitions of a call that is repeated n times if all calls run.
func (s *suite) times(n int) int {
	if s.opt.Every <= 1 {
		return n
	}
	return max(n/s.opt.Every, 3)
}

// space returns an empty space on the device of g.
func (o Options) space(g *dist.Group) *space { return &space{mem: o.Memory, dev: g.Device()} }

// peerPart returns n bytes at offset at of rank's part of r. They are a copy if the part has no
// address and needs none.
func (o Options) peerPart(r symmetric.Region, own, rank int, at, n int64) (tensor.Buffer, error) {
	b, err := r.Peer(rank)
	if err == nil && b.Bytes() != r.Local().Bytes() {
		return b, fmt.Errorf("rank %d has a part of %d B, this rank %d B", rank, b.Bytes(), r.Local().Bytes())
	}
	if err == nil {
		return b.Slice(int(at), int(at+n))
	}
	if !o.FarPeers || rank == own || !errors.Is(err, dist.ErrUnsupported) {
		return b, err
	}
	b = tensor.Of(make([]byte, n))
	return b, r.Get(b, rank, at)
}

// part is a piece of the suite, run by each rank of a world. It leaves the world usable.
type part struct {
	name  string
	run   func(s *suite) error
	cases func(o Options, n int) []scenario // cases that use every row of the part among n ranks; nil if it has none
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

// Suite runs, as one rank of w, every check that leaves the world intact.
//
// Collective: all ranks of w, same options. Errors: the failures, with collective, dtype,
// reduction, length, memory and in place; nil if there are none. A call that fails ends the suite
// on this rank.
func Suite(w *dist.World, opt Options) error { return runParts(w, opt, parts) }

// Collectives is Suite for a world whose engine has only collectives: it omits messages, streams
// and the rest.
func Collectives(w *dist.World, opt Options) error { return runParts(w, opt, collectives) }

func runParts(w *dist.World, opt Options, parts []part) error {
	for _, p := range parts {
		if err := runPart(w, opt, p, nil); err != nil {
			return err
		}
	}
	return nil
}

// runPart runs p on one rank, with the rows that its process has made for p, or nil.
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
	if err == nil { // otherwise operations may still use it
		err = s.close()
	}
	if err = errors.Join(append(s.wrong, s.failed(), err)...); err != nil {
		return fmt.Errorf("%s, rank %d of %d: %w", p.name, s.rank, s.n, err)
	}
	return nil
}

// suite is the state of one part on one rank.
type suite struct {
	*space  // for buffers outside of heaps
	w       *dist.World
	g       *dist.Group
	n, rank int
	opt     Options
	rows    *rows
	heap    symmetric.Heap // nil if the backend has none
	src     symmetric.Region
	dst     symmetric.Region
	factor  symmetric.Region // scalar of premulsum
	wrong   []error
	cases   int // run so far; varies parameters that are not crossed
}

// maxWrong limits the failures that a part reports.
const maxWrong = 10

// open makes the heap for the buffers of the cases.
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

// fault records a wrong result. The suite goes on, so that ranks stay in step.
func (s *suite) fault(format string, args ...any) {
	switch {
	case len(s.wrong) < maxWrong:
		s.wrong = append(s.wrong, fmt.Errorf(format, args...))
	case len(s.wrong) == maxWrong:
		s.wrong = append(s.wrong, errors.New("and more"))
	}
}

// expect records an error other than the wanted one.
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

// private returns a private buffer of count elements of dt.
func (s *suite) private(dt tensor.DType, count int, f func(i int) uint64) (tensor.Buffer, error) {
	b := s.take(dt, count)
	if err := s.failed(); err != nil {
		return b, err
	}
	s.fill(b, f)
	return b, nil
}

// skips reports whether err is ErrUnsupported for a case that Skip has a reason for. The error
// contains the case; a group call is skipped if one of its operations is.
func (o Options) skips(err error) bool {
	if o.Skip == nil || !errors.Is(err, dist.ErrUnsupported) {
		return false
	}
	switch e := err.(type) {
	case *dist.OpError:
		for i := range e.Op.Ops {
			if o.Skip(caseOf(&e.Op.Ops[i])) != "" {
				return true
			}
		}
		return o.Skip(caseOf(&e.Op)) != ""
	case *symmetric.AccessError:
		return o.Skip(Case{Call: e.Call, Bytes: e.Bytes}) != ""
	case interface{ Unwrap() error }:
		return o.skips(e.Unwrap())
	case interface{ Unwrap() []error }:
		for _, each := range e.Unwrap() {
			if !o.skips(each) {
				return false
			}
		}
		return true
	}
	return false
}

// skipsKind is skips for calls whose errors do not contain the case.
func (o Options) skipsKind(kind dist.Kind, err error) bool {
	return o.skips(err) || o.Skip != nil && errors.Is(err, dist.ErrUnsupported) && o.Skip(Case{Kind: kind}) != ""
}
