package conformance

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/sim"
	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

// copied is host memory that the suite accesses like a device's: by copies. It records the calls.
type copied struct {
	mu       sync.Mutex
	blocks   map[uintptr]tensor.Buffer
	copies   int
	full     bool // Alloc fails
	broken   bool // Read fails
	misplace bool // Write writes elsewhere
}

var errNoMemory = errors.New("no memory left")

func newCopied() *copied { return &copied{blocks: map[uintptr]tensor.Buffer{}} }

func (c *copied) Alloc(dev tensor.Device, bytes int64) (tensor.Buffer, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.full {
		return tensor.Buffer{}, errNoMemory
	}
	words := tensor.Of(make([]uint64, (bytes+7)/8))
	b, err := tensor.FromPointer(words.Pointer(), int(bytes), tensor.U8, dev)
	c.blocks[uintptr(b.Pointer())] = b
	return b, err
}

func (c *copied) Free(b tensor.Buffer) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.blocks[uintptr(b.Pointer())] != b {
		return fmt.Errorf("free of %v, which is not allocated", b)
	}
	delete(c.blocks, uintptr(b.Pointer()))
	return nil
}

func (c *copied) Write(b tensor.Buffer, src []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.copies++
	if c.misplace {
		return nil
	}
	copy(b.Raw(), src)
	return nil
}

func (c *copied) Read(dst []byte, b tensor.Buffer) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.copies++
	if c.broken {
		return errNoMemory
	}
	copy(dst, b.Raw())
	return nil
}

func TestSuiteWorksByCopies(t *testing.T) {
	for _, n := range []int{1, 3} {
		mem := newCopied()
		err := drive(t, n, sim.Config{}, straight, func(w *dist.World) error {
			return Suite(w, Options{Large: 1009, Memory: mem})
		})
		if err != nil {
			t.Errorf("%d ranks: %v", n, err)
		}
		if len(mem.blocks) != 0 || mem.copies < 1000 {
			t.Errorf("%d ranks: %d blocks are left, %d copies were made", n, len(mem.blocks), mem.copies)
		}
	}
}

func TestBrokenWorldsWorkByCopies(t *testing.T) {
	launch := func(t *testing.T, n int, opt LaunchOptions, body func(w *dist.World) error) {
		cfg := sim.Config{StepTimeout: opt.StepTimeout}
		if opt.Die != nil {
			cfg.Script = fmt.Sprintf("die rank=%d op=%d", opt.Die.Rank, opt.Die.Op)
		}
		worlds, err := sim.New(n, cfg)
		if err != nil {
			t.Fatal(err)
		}
		Drive(t, worlds, body)
	}
	opt := Options{Large: 101, Memory: newCopied(), Most: 2, OneWorld: true}
	RunWith(t, opt, launch)
	RunOneSidedWith(t, opt, launch)
}

// A promise of equal offsets is made in some cases, and kept in all of them.
func TestSuiteKeepsItsPromise(t *testing.T) {
	var mu sync.Mutex
	places := map[string]map[string]bool{} // the offsets of each promised operation, over the ranks
	heaps := map[int]uintptr{}
	wrap := func(end dist.Transport) dist.Transport {
		rank := end.Info().Rank
		return &crooked{Transport: end, bend: func(op *dist.Op) {
			if !op.Symmetric {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			at := func(b tensor.Buffer) string {
				if b.IsZero() {
					return "-"
				}
				return fmt.Sprint(uintptr(b.Pointer()) - heaps[rank])
			}
			src, dst := op.Src, op.Dst
			if tensor.Overlap(src, dst) { // in place: where the larger one is
				if src.Len() < dst.Len() {
					src = dst
				} else {
					dst = src
				}
			}
			key := fmt.Sprintf("%d %v %v", op.Seq, op.Kind, op.Signature())
			if places[key] == nil {
				places[key] = map[string]bool{}
			}
			places[key][at(src)+" "+at(dst)] = true
		}, heap: func(h symmetric.Heap, err error) (symmetric.Heap, error) {
			return firstRegion{h, func(r symmetric.Region) {
				mu.Lock()
				defer mu.Unlock()
				heaps[rank] = uintptr(r.Local().Pointer())
			}}, err
		}}
	}
	err := drive(t, 3, sim.Config{}, wrap, func(w *dist.World) error {
		for _, p := range parts[:3] {
			if err := runPart(w, Options{Large: 1009, Memory: newCopied()}, p, nil); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if len(places) < 1000 {
		t.Errorf("%d operations were promised", len(places))
	}
	for key, offsets := range places {
		var src, dst string
		for pair := range offsets {
			s, d, _ := strings.Cut(pair, " ")
			if s != "-" && src != "" && s != src || d != "-" && dst != "" && d != dst {
				t.Fatalf("%s: offsets %v", key, offsets)
			}
			if s != "-" {
				src = s
			}
			if d != "-" {
				dst = d
			}
		}
	}
}

// firstRegion is a heap that reports its first region.
type firstRegion struct {
	symmetric.Heap
	tell func(symmetric.Region)
}

func (f firstRegion) Alloc(bytes int64) (symmetric.Region, error) {
	r, err := f.Heap.Alloc(bytes)
	if err == nil && r.Offset() == 0 {
		f.tell(r)
	}
	return r, err
}

func TestSuiteTellsOfMemoryThatFails(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(*copied)
		want  string
	}{
		"full":     {func(m *copied) { m.full = true }, "no memory left"},
		"broken":   {func(m *copied) { m.broken = true }, "copy from"},
		"misplace": {func(m *copied) { m.misplace = true }, "outside of the result"},
	} {
		mem := newCopied()
		c.spoil(mem)
		err := drive(t, 1, sim.Config{}, straight, func(w *dist.World) error { return Suite(w, Options{Large: 101, Memory: mem}) })
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

// refusing is a transport that does not support some operations.
func refusing(what func(op *dist.Op) bool) func(dist.Transport) dist.Transport {
	return func(end dist.Transport) dist.Transport { return &refuser{end, what} }
}

type refuser struct {
	dist.Transport
	what func(op *dist.Op) bool
}

func (r *refuser) Start(op dist.Op, s dist.Stream) (dist.Work, error) {
	if r.what(&op) {
		return dist.Work{}, fmt.Errorf("%w here", dist.ErrUnsupported)
	}
	for i := range op.Ops {
		if r.what(&op.Ops[i]) {
			return dist.Work{}, fmt.Errorf("%w here", dist.ErrUnsupported)
		}
	}
	return r.Transport.Start(op, s)
}

func TestSuiteSkipsOnlyForAReason(t *testing.T) {
	for name, refused := range map[string]func(k dist.Kind, dt tensor.DType, red dist.RedKind) bool{
		"a type":   func(_ dist.Kind, dt tensor.DType, _ dist.RedKind) bool { return dt == tensor.I16 },
		"integers": func(k dist.Kind, dt tensor.DType, _ dist.RedKind) bool { return k.Reduces() && !dt.IsFloat() },
		"messages": func(k dist.Kind, _ tensor.DType, _ dist.RedKind) bool { return k.PointToPoint() },
		"a reduction": func(k dist.Kind, _ tensor.DType, red dist.RedKind) bool {
			return k.Reduces() && red == dist.RedPreMulSum
		},
		"gathering": func(k dist.Kind, _ tensor.DType, _ dist.RedKind) bool { return k == dist.KindGather },
	} {
		t.Run(name, func(t *testing.T) {
			wrap := refusing(func(op *dist.Op) bool { return refused(op.Kind, op.DType(), op.Red.Kind) })
			opt := Options{Large: 101, Skip: func(c Case) string {
				if refused(c.Kind, c.DType, c.Red) {
					return "it is refused"
				}
				return ""
			}}
			suite := func(opt Options) error {
				return drive(t, 2, sim.Config{}, wrap, func(w *dist.World) error { return Suite(w, opt) })
			}
			if err := suite(opt); err != nil {
				t.Errorf("with a reason: %v", err)
			}
			if err := suite(Options{Large: 101}); !errors.Is(err, dist.ErrUnsupported) {
				t.Errorf("without a reason: %v", err)
			}
			if name != "a type" {
				return
			}
			opt.Skip = func(Case) string { return "" }
			if err := suite(opt); !errors.Is(err, dist.ErrUnsupported) {
				t.Errorf("with no reason for this: %v", err)
			}
		})
	}
}

func TestSkipLooksAtEveryErrorThatIsJoined(t *testing.T) {
	op := dist.Op{Kind: dist.KindBarrier}
	refused := &dist.OpError{Op: op, Err: dist.ErrUnsupported}
	access := &symmetric.AccessError{Call: "iput", Err: dist.ErrUnsupported}
	opt := Options{Skip: func(c Case) string {
		if c.String() == "barrier" || c.String() == "iput" {
			return "so it is"
		}
		return ""
	}}
	for _, c := range []struct {
		err  error
		want bool
	}{
		{nil, false},
		{refused, true},
		{fmt.Errorf("case: %w", refused), true},
		{errors.Join(refused, access), true},
		{errors.Join(refused, errors.New("something else")), false},
		{fmt.Errorf("heap: %w", dist.ErrUnsupported), false},
		{&symmetric.AccessError{Call: "get", Err: dist.ErrUnsupported}, false},
	} {
		if got := opt.skips(c.err); got != c.want {
			t.Errorf("%v is skipped: %v", c.err, got)
		}
	}
}

func TestAnyOrderAcceptsEveryOrderAndNothingElse(t *testing.T) {
	const n = 4
	for _, dt := range []tensor.DType{tensor.F16, tensor.BF16, tensor.F32, tensor.F64} {
		for _, red := range []dist.RedKind{dist.RedSum, dist.RedProd, dist.RedAvg, dist.RedPreMulSum} {
			data := Options{AnyOrder: true}.rounding(red)
			for i := range 200 {
				column, scalars := make([]uint64, n), make([]uint64, n)
				for r := range n {
					column[r], scalars[r] = input(data, dt, red, n, r, i), scalar(data, dt, n, r)
				}
				for shift := range n {
					got := roundedEverywhere(dt, red, column, scalars, shift)
					if err := nearOne(dt, red, got, column, scalars); err != nil {
						t.Fatalf("%v %v, order %d: %v", dt, red, shift, err)
					}
				}
				want, magnitude := reduceExactly(dt, red, column, scalars)
				value, _ := want.Float64()
				far := fromFloat(dt, value+2.5*tolerance(dt, red, n, magnitude)+2*unit(dt)*math.Abs(value))
				if err := nearOne(dt, red, far, column, scalars); err == nil {
					t.Fatalf("%v %v: %v passes for %v", dt, red, asFloat(dt, far), value)
				}
			}
		}
	}
	inf := fromFloat(tensor.F32, math.Inf(1))
	if nearOne(tensor.F32, dist.RedSum, inf, []uint64{0, 0}, nil) == nil {
		t.Error("infinity passes for 0")
	}
}

// roundedEverywhere combines in the element's own type, beginning with rank shift, as a ring does.
func roundedEverywhere(dt tensor.DType, red dist.RedKind, column, scalars []uint64, shift int) uint64 {
	n := len(column)
	round := func(v float64) float64 { return asFloat(dt, fromFloat(dt, v)) }
	term := func(r int) float64 {
		x := asFloat(dt, column[r%n])
		switch red {
		case dist.RedPreMulSum:
			x = round(x * asFloat(dt, scalars[r%n]))
		case dist.RedAvg:
			x = round(x * round(1/float64(n)))
		}
		return x
	}
	acc := term(shift)
	for r := 1; r < n; r++ {
		if x := term(shift + r); red == dist.RedProd {
			acc = round(acc * x)
		} else {
			acc = round(acc + x)
		}
	}
	return fromFloat(dt, acc)
}

func TestAnyOrderStillFindsALostRank(t *testing.T) {
	lost := func(end dist.Transport) dist.Transport {
		return &crooked{Transport: end, bend: func(op *dist.Op) {
			if op.Kind == dist.KindAllReduce && op.Red.Kind == dist.RedSum && op.DType() == tensor.BF16 && op.Count == 13 {
				op.Red.Kind = dist.RedMax
			}
		}}
	}
	opt := Options{Large: 101, AnyOrder: true}
	err := drive(t, 2, sim.Config{}, lost, func(w *dist.World) error { return runPart(w, opt, parts[0], nil) })
	if err == nil || !strings.Contains(err.Error(), "roundings allow") {
		t.Errorf("error %v", err)
	}
	if err := drive(t, 3, sim.Config{}, straight, func(w *dist.World) error { return Suite(w, opt) }); err != nil {
		t.Errorf("rank order is no order: %v", err)
	}
}

// Collectives is for engines with nothing else: here messages are rejected, and a wrong sum is
// found.
func TestCollectivesAlone(t *testing.T) {
	opt := Options{Large: 101}
	sends := func(op *dist.Op) {
		if op.Kind.PointToPoint() || op.Kind == dist.KindBatch {
			t.Errorf("a %v", op.Kind)
		}
	}
	for name, bend := range map[string]func(op *dist.Op){"": sends, "reducescatter": func(op *dist.Op) {
		if op.Kind == dist.KindReduceScatter && op.Red.Kind == dist.RedSum && op.DType() == tensor.F16 {
			op.Red.Kind = dist.RedMax
		}
	}} {
		wrap := func(end dist.Transport) dist.Transport { return &crooked{Transport: end, bend: bend} }
		err := drive(t, 2, sim.Config{}, wrap, func(w *dist.World) error { return Collectives(w, opt) })
		if name == "" && err != nil || name != "" && (err == nil || !strings.Contains(err.Error(), name)) {
			t.Errorf("%q: error %v", name, err)
		}
	}
}

func TestFMin(t *testing.T) {
	nan, inf := fromFloat(tensor.BF16, math.NaN()), fromFloat(tensor.BF16, math.Inf(-1))
	one, minus := fromFloat(tensor.BF16, 1), fromFloat(tensor.BF16, math.Copysign(0, -1))
	for _, c := range []struct {
		red    dist.RedKind
		column []uint64
		want   float64
	}{
		{dist.RedMin, []uint64{nan, one}, 1},
		{dist.RedMax, []uint64{one, nan, inf}, 1},
		{dist.RedMin, []uint64{one, inf}, math.Inf(-1)},
		{dist.RedMax, []uint64{minus, 0}, 0},
		{dist.RedMin, []uint64{nan, nan}, math.NaN()},
	} {
		if got := fminOf(tensor.BF16, c.red, c.column); got != c.want && !(math.IsNaN(got) && math.IsNaN(c.want)) {
			t.Errorf("%v of %x is %v, want %v", c.red, c.column, got, c.want)
		}
	}
	opt := Options{Large: 101, FMin: true}
	err := drive(t, 2, sim.Config{}, straight, func(w *dist.World) error { return runPart(w, opt, parts[0], nil) })
	if err == nil || !strings.Contains(err.Error(), "special data") {
		t.Errorf("a backend that keeps NaNs passes for C's minimum: %v", err)
	}
}
