package oracle_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/tensor"
)

// heads is attention and its gradient as package machine makes them from a graph: copies that join
// heads, products, and a softmax.
type heads struct {
	*graph
	batch, heads, rows, depth int
	bias                      []int   // strides of the bias, if there is one
	scale                     float64 // of the scores; 1 for no step
	backScale                 float64 // of their gradient
	late                      bool    // the scale follows the bias
	forward                   bool    // no gradient
	log                       bool
	copied                    int  // samples that copies join, of which the first ones attend; 0 for those only
	other                     bool // the values' gradient comes from another gradient of the output
}

func newHeads() *heads {
	return &heads{graph: newGraph("attention"), batch: 2, heads: 2, rows: 64, depth: 32, bias: []int{0, 64, 1}, scale: 0.25, backScale: 0.25}
}

// all is the space of scores, and each the space of a head's rows.
func (h *heads) all() []int { return []int{h.batch * h.heads, h.rows, h.rows} }

func (h *heads) each() []int { return []int{h.batch, h.heads, h.rows, h.depth} }

// together copies rows in which heads are neighbours.
func (h *heads) together(name string) program.ID {
	each := h.each()
	each[0] = max(h.batch, h.copied)
	from, to := h.input(name+" rows", each[0], h.rows, h.heads, h.depth), h.temp(name, each...)
	h.apply(name, program.Load, 0, each, h.p.Whole(to), view(from, h.rows*h.heads*h.depth, h.depth, h.heads*h.depth, 1))
	return to
}

// apart copies them back, and returns twice that.
func (h *heads) apart(name string, from program.ID) {
	space := []int{h.batch, h.rows, h.heads, h.depth}
	to, out := h.temp(name+" rows", space...), h.output("twice "+name, space...)
	h.apply(name+" rows", program.Load, 0, space, h.p.Whole(to), view(from, h.heads*h.rows*h.depth, h.depth, h.rows*h.depth, 1))
	h.apply("twice "+name, program.Mul, 2, space, h.p.Whole(out), h.p.Whole(to))
}

// rowsOf returns a value as the matrices of all heads, or transposed ones.
func (h *heads) rowsOf(id program.ID, columns int, turned bool) program.View {
	if turned {
		return view(id, h.rows*columns, 1, columns)
	}
	return view(id, h.rows*columns, columns, 1)
}

// times adds a product for all heads.
func (h *heads) times(name string, columns, sum int, a, b program.View) program.ID {
	to := h.temp(name, h.batch*h.heads, h.rows, columns)
	h.step(name, &program.MatMul{Batch: h.batch * h.heads, M: h.rows, N: columns, K: sum, Alpha: 1}, views(a, b), views(h.p.Whole(to)))
	return to
}

// scaled multiplies scores, or their gradient, by a number.
func (h *heads) scaled(name string, scale float64, from program.ID) program.ID {
	if scale == 1 {
		return from
	}
	to := h.temp(name, h.all()...)
	h.apply(name, program.Mul, scale, h.all(), h.p.Whole(to), h.rowsOf(from, h.rows, false))
	return to
}

func (h *heads) build() *program.Program {
	q, k, v := h.together("q"), h.together("k"), h.together("v")
	x := h.times("scores", h.rows, h.depth, h.rowsOf(q, h.depth, false), h.rowsOf(k, h.depth, true))
	if !h.late {
		x = h.scaled("scaled", h.scale, x)
	}
	if h.bias != nil {
		b, to := h.input("bias", h.batch*h.heads, h.rows, h.rows), h.temp("biased", h.all()...)
		h.apply("biased", program.Add, 0, h.all(), h.p.Whole(to), h.rowsOf(x, h.rows, false), view(b, h.bias...))
		x = to
	}
	if h.late {
		x = h.scaled("scaled", h.scale, x)
	}
	flat := func(id program.ID) program.View { return view(id, h.rows, 1, 1) }
	soft := program.Softmax{Outer: h.batch * h.heads * h.rows, Axis: h.rows, Inner: 1, Log: h.log}
	p := h.temp("shares", soft.Outer, soft.Axis, 1)
	h.step("shares", &soft, views(flat(x)), views(flat(p)))
	h.apart("y", h.times("y", h.depth, h.rows, h.rowsOf(p, h.rows, false), h.rowsOf(v, h.depth, false)))
	if h.forward {
		return h.p
	}
	g := h.together("dy")
	other := g
	if h.other {
		other = h.together("other dy")
	}
	dp := h.times("dp", h.rows, h.depth, h.rowsOf(g, h.depth, false), h.rowsOf(v, h.depth, true))
	dv := h.times("dv", h.depth, h.rows, h.rowsOf(p, h.rows, true), h.rowsOf(other, h.depth, false))
	ds := h.temp("ds", soft.Outer, soft.Axis, 1)
	h.step("ds", &program.SoftmaxGrad{Outer: soft.Outer, Axis: soft.Axis, Inner: 1, Log: h.log}, views(flat(p), flat(dp)), views(flat(ds)))
	ds = h.scaled("dscaled", h.backScale, ds)
	h.apart("dq", h.times("dq", h.depth, h.rows, h.rowsOf(ds, h.rows, false), h.rowsOf(k, h.depth, false)))
	h.apart("dk", h.times("dk", h.depth, h.rows, h.rowsOf(ds, h.rows, true), h.rowsOf(q, h.depth, false)))
	h.apart("dv", dv)
	return h.p
}

// attends optimizes with bf16 in all products, and reports whether it finds Attention. Results must
// agree if it does.
func attends(t *testing.T, p *program.Program) (best *program.Program, found bool) {
	t.Helper()
	p.Narrow = 1
	best = clone(p)
	if err := program.Optimize(best); err != nil {
		t.Fatal(err)
	}
	if ops := strings.Fields(opsOf(best)); !slices.Contains(ops, "attention") {
		return best, false
	}
	best = optimized(t, p, 0.05)
	if ops := strings.Fields(opsOf(best)); slices.Contains(ops, "softmax") || slices.Contains(ops, "matmul") || slices.Contains(ops, "softmaxgrad") {
		t.Errorf("some of it is still there:\n%v", best)
	}
	return best, true
}

// Copies disappear: the two steps read and write rows in the memory of products, in bf16.
func TestAttentionIsFound(t *testing.T) {
	for name, change := range map[string]func(h *heads){
		"as it comes":     func(*heads) {},
		"no bias":         func(h *heads) { h.bias = nil },
		"no scale":        func(h *heads) { h.scale, h.backScale = 1, 1 },
		"one head":        func(h *heads) { h.heads = 1 },
		"one of a batch":  func(h *heads) { h.batch = 1 },
		"no gradient":     func(h *heads) { h.forward = true },
		"longer and wide": func(h *heads) { h.rows, h.depth, h.bias, h.heads = 128, 64, []int{0, 128, 1}, 1 },
	} {
		t.Run(name, func(t *testing.T) {
			h := newHeads()
			change(h)
			best, found := attends(t, h.build())
			if !found {
				t.Fatalf("not found:\n%v", best)
			}
			for i := range best.Steps {
				s := &best.Steps[i]
				lines := 0
				switch op := s.Op.(type) {
				case *program.Attention:
					lines = 3
					if op.Batch != h.batch || op.Heads != h.heads || len(s.Out) == 2 == h.forward {
						t.Errorf("%v gives %d", op, len(s.Out))
					}
				case *program.AttentionGrad:
					lines = 4
				case *program.Map:
					if len(op.Code) == 1 && !strings.HasSuffix(best.Values[s.In[0].Value].Name, " rows") {
						t.Errorf("a copy of %s that is no rounding of an input:\n%v", best.Values[s.In[0].Value].Name, best)
					}
				}
				for _, v := range s.In[:lines] {
					if dt := best.Values[v.Value].DType; dt != tensor.BF16 {
						t.Errorf("%s reads %v", s.Name, dt)
					}
				}
			}
		})
	}
}

// If copies have joined more heads than attend, the steps read a part of their results.
func TestAttentionOfSomeHeads(t *testing.T) {
	h := newHeads()
	h.forward, h.copied = true, 2*h.batch
	best, found := attends(t, h.build())
	if !found {
		t.Fatalf("not found:\n%v", best)
	}
	if n := strings.Count(opsOf(best), "attention"); n != 1 {
		t.Errorf("%d attentions:\n%v", n, best)
	}
}

// The maxima of a bias's tiles are computed once for all readers.
func TestAttentionsShareWhatIsKnownOfTheirBias(t *testing.T) {
	h := newHeads()
	h.forward = true
	p := h.build()
	bias := slices.IndexFunc(p.Values, func(v program.Value) bool { return v.Name == "bias" })
	second := newHeads()
	second.graph, second.forward = h.graph, true
	second.build()
	again := slices.IndexFunc(p.Values[bias+1:], func(v program.Value) bool { return v.Name == "bias" }) + bias + 1
	for i := range p.Steps {
		for k := range p.Steps[i].In {
			if v := &p.Steps[i].In[k]; v.Value == program.ID(again) {
				v.Value = program.ID(bias)
			}
		}
	}
	best, _ := attends(t, p)
	if ops := opsOf(best); strings.Count(ops, "attention") != 2 || strings.Count(ops, "max") != 2 {
		t.Errorf("steps %s", ops)
	}
}

func TestWhatIsNoAttentionStaysAsItIs(t *testing.T) {
	for name, change := range map[string]func(h *heads){
		"a bias for each head":    func(h *heads) { h.bias = []int{64 * 64, 64, 1} },
		"a row for all as a bias": func(h *heads) { h.bias = []int{0, 0, 1} },
		"a scale of the bias":     func(h *heads) { h.late = true },
		"another scale back":      func(h *heads) { h.backScale = 0.5 },
		"a negative scale":        func(h *heads) { h.scale, h.backScale = -0.25, -0.25 },
		"rows of 48":              func(h *heads) { h.depth = 48 },
		"96 rows":                 func(h *heads) { h.rows, h.bias = 96, []int{0, 96, 1} },
		"logarithms":              func(h *heads) { h.log = true },
		"another gradient":        func(h *heads) { h.other = true },
	} {
		t.Run(name, func(t *testing.T) {
			h := newHeads()
			change(h)
			if best, found := attends(t, h.build()); found {
				t.Errorf("found:\n%v", best)
			}
		})
	}
	for name, change := range map[string]func(p *program.Program){
		"somebody wants the shares": func(p *program.Program) { named(p, "shares").Role = program.Output },
		"somebody wants the scores": func(p *program.Program) { named(p, "scores").Role = program.Output },
		"somebody wants the scores with a bias": func(p *program.Program) {
			i := slices.IndexFunc(p.Steps, func(s program.Step) bool { return s.Name == "biased" })
			j := slices.IndexFunc(p.Steps, func(s program.Step) bool { return s.Name == "shares" })
			m, _ := p.Steps[i].Op.(*program.Map)
			m.Stores = append(m.Stores, 0) // the softmax is of scores without it
			without := p.Add(program.Value{Name: "without", DType: tensor.F32, Shape: m.Space})
			p.Steps[i].Out = append(p.Steps[i].Out, p.Whole(without))
			p.Steps[j].In[0].Value = without
			named(p, "biased").Role = program.Output
		},
		"a softmax of all scores": func(p *program.Program) {
			for i := range p.Steps {
				switch op := p.Steps[i].Op.(type) {
				case *program.Softmax:
					op.Outer, op.Axis = 2, 64*64
				case *program.SoftmaxGrad:
					op.Outer, op.Axis = 2, 64*64
				default:
					continue
				}
				for _, views := range [][]program.View{p.Steps[i].In, p.Steps[i].Out} {
					for k := range views {
						views[k].Strides = []int{64 * 64, 1, 1}
					}
				}
			}
		},
		"a softmax of columns": func(p *program.Program) {
			i := slices.IndexFunc(p.Steps, func(s program.Step) bool { return s.Name == "shares" })
			p.Steps[i].In[0].Strides = []int{1, 128, 1}
		},
		"a gradient of columns": func(p *program.Program) {
			i := slices.IndexFunc(p.Steps, func(s program.Step) bool { return s.Name == "ds" })
			p.Steps[i].In[1].Strides = []int{1, 128, 1}
		},
		"a gradient of logarithms": func(p *program.Program) {
			i := slices.IndexFunc(p.Steps, func(s program.Step) bool { return s.Name == "ds" })
			p.Steps[i].Op.(*program.SoftmaxGrad).Log = true
		},
		"no gradient of keys": func(p *program.Program) {
			p.Steps = slices.DeleteFunc(p.Steps, func(s program.Step) bool { return strings.Contains(s.Name, "dk") })
		},
		"queries that change": func(p *program.Program) {
			rows := slices.IndexFunc(p.Values, func(v program.Value) bool { return v.Name == "q rows" })
			for i := range p.Steps {
				for k := range p.Steps[i].In {
					if v := &p.Steps[i].In[k]; p.Values[v.Value].Name == "q" {
						v.Value = program.ID(rows)
					}
				}
			}
			one := &program.Map{Space: p.Values[rows].Shape, Code: []program.Instr{{Op: program.Const, Value: 1}}, Stores: []int{0}}
			p.Steps = append(p.Steps, program.Step{Name: "change", Op: one, Out: views(p.Whole(program.ID(rows)))})
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHeads()
			h.heads = 1
			p := h.build()
			change(p)
			if best, found := attends(t, p); found {
				t.Errorf("found:\n%v", best)
			}
		})
	}
}

// named returns the value with a name.
func named(p *program.Program, name string) *program.Value {
	return &p.Values[slices.IndexFunc(p.Values, func(v program.Value) bool { return v.Name == name })]
}
