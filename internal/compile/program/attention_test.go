package program

import (
	"strings"
	"testing"

	"github.com/symgrad/symgrad/tensor"
)

// attending returns an Attention with a bias, which the tests modify.
func attending() *Program {
	p := &Program{Name: "attending", Clock: None}
	op := &Attention{Batch: 2, Heads: 3, M: 64, N: 128, Depth: 32, Scale: 0.5}
	add := func(name string, dt tensor.DType, shape ...int) View {
		return p.Whole(p.Add(Value{Name: name, DType: dt, Shape: shape, Place: Outside}))
	}
	rows := func(name string, n int) View { return add(name, tensor.BF16, 2, 3, n, 32) }
	in := []View{rows("q", 64), rows("k", 128), rows("v", 128), add("bias", tensor.F32, 64, 128), add("largest", tensor.F32, 1, 2), add("furthest", tensor.F32, 1, 2)}
	p.Steps = []Step{{Name: "attend", Op: op, In: in, Out: []View{rows("y", 64), add("log sum", tensor.F32, 2, 3, 64)}}}
	return p
}

func TestValidateOfAttention(t *testing.T) {
	if err := Validate(attending()); err != nil {
		t.Fatal(err)
	}
	if got, want := attending().Steps[0].Op.String(), "attention (2, 3, 64, 32) to 128"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got, want := (&AttentionGrad{*attending().Steps[0].Op.(*Attention)}).String(), "attentiongrad (2, 3, 64, 32) to 128"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	for want, change := range map[string]func(s *Step){
		"the last is to be 1, the others multiples of 8": func(s *Step) { s.In[0].Strides = []int{3 * 64 * 32, 64 * 32, 1, 64} },
		"has 5 in, for scores of 64 by 128":              func(s *Step) { s.In = s.In[:5] },
		"has 7 in; 6 are needed":                         func(s *Step) { s.In = append(s.In, s.In[5]) },
		"scale is 0":                                     func(s *Step) { s.Op.(*Attention).Scale = 0 },
		`in 1, value 3 "bias" f32(64, 128), is not bf16`: func(s *Step) { s.In[1] = View{Value: 3, Strides: []int{0, 0, 32, 1}} },
	} {
		p := attending()
		change(&p.Steps[0])
		if err := Validate(p); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// Rows whose elements are not neighbours, and rows that begin anywhere, are copied; those with
// others between them are not.
func TestPackOfLines(t *testing.T) {
	for name, c := range map[string]struct {
		view   View
		copies int
	}{
		"rows":          {View{Strides: []int{3 * 64 * 32, 64 * 32, 32, 1}}, 0},
		"heads between": {View{Strides: []int{64 * 3 * 32, 32, 3 * 32, 1}}, 0},
		"one for all":   {View{Strides: []int{0, 0, 32, 1}}, 0},
		"columns":       {View{Strides: []int{3 * 64 * 32, 64 * 32, 1, 64}}, 1},
		"from 4 on":     {View{Offset: 4, Strides: []int{0, 0, 32, 1}}, 1},
		"every 36":      {View{Strides: []int{0, 0, 36, 1}}, 1},
	} {
		p := attending()
		p.Steps[0].In[0] = c.view
		if err := Pack(p); err != nil {
			t.Fatal(err)
		}
		if copies := len(p.Steps) - 1; copies != c.copies {
			t.Errorf("%s: %d copies, want %d", name, copies, c.copies)
		}
		if err := Validate(p); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
