package conformance

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/sim"
	"github.com/symgrad/symgrad/symmetric"
)

// crooked is a backend with a bug: it changes operations before they run, or the memory around
// them.
type crooked struct {
	dist.Transport
	bend func(op *dist.Op)
	heap func(symmetric.Heap, error) (symmetric.Heap, error)
}

func (c *crooked) Start(op dist.Op, s dist.Stream) (dist.Work, error) {
	if c.bend != nil {
		c.bend(&op)
	}
	return c.Transport.Start(op, s)
}

func (c *crooked) Heap(bytes int64) (symmetric.Heap, error) {
	h, err := c.Transport.Heap(bytes)
	if c.heap != nil {
		return c.heap(h, err)
	}
	return h, err
}

// drive runs body on n ranks of worlds over wrapped transports and joins the errors.
func drive(t *testing.T, n int, cfg sim.Config, wrap func(dist.Transport) dist.Transport, body func(*dist.World) error) error {
	t.Helper()
	ends, err := sim.Transports(n, cfg)
	if err != nil {
		t.Fatal(err)
	}
	var ranks sync.WaitGroup
	errs := make([]error, n)
	for r, end := range ends {
		ranks.Go(func() {
			w, err := dist.NewWorld(wrap(end), dist.LocalInfo{Rank: r, Size: n}, 16, nil)
			if err != nil {
				errs[r] = err
				return
			}
			errs[r] = errors.Join(body(w), w.Close())
		})
	}
	ranks.Wait()
	return errors.Join(errs...)
}

func straight(t dist.Transport) dist.Transport { return t }

func TestSuitePassesASoundBackend(t *testing.T) {
	err := drive(t, 3, sim.Config{}, straight, func(w *dist.World) error { return Suite(w, Options{Large: 5003}) })
	if err != nil {
		t.Error(err)
	}
}

func TestSuitePassesABackendWithoutHeaps(t *testing.T) {
	wrap := func(end dist.Transport) dist.Transport {
		return &crooked{Transport: end, heap: func(h symmetric.Heap, _ error) (symmetric.Heap, error) {
			return nil, errors.Join(dist.ErrUnsupported, h.Close())
		}}
	}
	err := drive(t, 2, sim.Config{}, wrap, func(w *dist.World) error { return Suite(w, Options{Large: 1009}) })
	if err != nil {
		t.Error(err)
	}
}

// beyond returns a pointer to the byte after the destination.
func beyond(op *dist.Op) *byte {
	return (*byte)(unsafe.Add(op.Dst.Pointer(), op.Dst.Bytes()))
}

func TestSuiteFindsBugs(t *testing.T) {
	for _, tt := range []struct {
		name string
		part string
		bend func(op *dist.Op)
		want []string // in the error
	}{
		{"maximum instead of sum", "Reductions", func(op *dist.Op) {
			if op.Kind == dist.KindReduceScatter && op.Red.Kind == dist.RedSum {
				op.Red.Kind = dist.RedMax
			}
		}, []string{"reducescatter", "sum", "want"}},
		{"sum instead of average, of one type", "Reductions", func(op *dist.Op) {
			if op.Kind.Reduces() && op.Red.Kind == dist.RedAvg && op.DType().String() == "u16" {
				op.Red.Kind = dist.RedSum
			}
		}, []string{"u16", "avg"}},
		{"one factor for all ranks", "Reductions", func(op *dist.Op) {
			if op.Kind.Reduces() && op.Red.Kind == dist.RedPreMulSum && op.Red.Scalar.At.IsZero() {
				op.Red.Scalar.Bits = fromInt(op.DType(), 1)
			}
		}, []string{"premulsum"}},
		{"writes behind the destination", "Reductions", func(op *dist.Op) {
			if op.Kind == dist.KindReduce && op.Count == 13 && !op.Dst.IsZero() {
				*beyond(op) ^= 1
			}
		}, []string{"[13]", "outside of the result"}},
		{"writes behind the source that it works in", "Reductions", func(op *dist.Op) {
			if op.Kind == dist.KindReduceScatter && op.Count == 13 && beyond(op) == (*byte)(unsafe.Add(op.Src.Pointer(), op.Src.Bytes())) {
				*beyond(op) ^= 1
			}
		}, []string{"reducescatter", "[13]", "in place", "was written"}},
		{"changes the source", "Copies", func(op *dist.Op) {
			if op.Kind == dist.KindAllToAll && op.Count > 1 {
				op.Src.Raw()[0] ^= 1
			}
		}, []string{"alltoall", "the source was changed"}},
		{"moves one element too few", "Copies", func(op *dist.Op) {
			if op.Kind == dist.KindBroadcast && op.Count == 13 {
				op.Count = 12
			}
		}, []string{"broadcast", "element 12"}},
		{"moves one element too few of large buffers", "Large", func(op *dist.Op) {
			if op.Kind == dist.KindBroadcast && op.Count == 1009 {
				op.Count = 1008
			}
		}, []string{"broadcast", "element 1008"}},
		{"swaps messages", "Messages", func(op *dist.Op) {
			if n := len(op.Ops); n > 2 {
				op.Ops[0].Dst, op.Ops[n-2].Dst = op.Ops[n-2].Dst, op.Ops[0].Dst
			}
		}, []string{"message"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			wrap := func(end dist.Transport) dist.Transport { return &crooked{Transport: end, bend: tt.bend} }
			err := drive(t, 3, sim.Config{StepTimeout: time.Minute}, wrap, func(w *dist.World) error {
				for _, p := range parts {
					if p.name == tt.part {
						return runPart(w, Options{Large: 1009}, p, nil)
					}
				}
				return errors.New("no such part")
			})
			if err == nil {
				t.Fatal("the bug was not found")
			}
			for _, word := range append(tt.want, tt.part) {
				if !strings.Contains(err.Error(), word) {
					t.Errorf("the error does not say %q:\n%v", word, err)
				}
			}
		})
	}
}

// dirty is a heap that does not clear new regions.
type dirty struct{ symmetric.Heap }

func (d dirty) Alloc(bytes int64) (symmetric.Region, error) {
	r, err := d.Heap.Alloc(bytes)
	if err == nil && bytes > 0 {
		r.Local().Raw()[bytes-1] = 1
	}
	return r, err
}

func TestSuiteFindsDirtyRegions(t *testing.T) {
	wrap := func(end dist.Transport) dist.Transport {
		return &crooked{Transport: end, heap: func(h symmetric.Heap, err error) (symmetric.Heap, error) { return dirty{h}, err }}
	}
	err := drive(t, 2, sim.Config{}, wrap, func(w *dist.World) error { return Suite(w, Options{Large: 101}) })
	if err == nil || !strings.Contains(err.Error(), "fresh region") {
		t.Errorf("error %v, want one about a fresh region", err)
	}
}

func TestMismatchPartFindsABackendThatDoesNotCompare(t *testing.T) {
	for _, d := range disagreements {
		switch d.word {
		case "reduction", "root": // what an unchecked world cannot stumble over
		default:
			continue
		}
		t.Run(d.name, func(t *testing.T) {
			err := drive(t, 2, sim.Config{Unchecked: true}, straight, Options{}.breaking(d.body))
			if err == nil || !strings.Contains(err.Error(), "want ranks disagree") {
				t.Errorf("error %v, want a complaint", err)
			}
		})
	}
}

func TestFaultsAreBounded(t *testing.T) {
	s := &suite{}
	for range 100 {
		s.fault("wrong")
	}
	if len(s.wrong) != maxWrong+1 {
		t.Errorf("%d errors, want %d", len(s.wrong), maxWrong+1)
	}
}
