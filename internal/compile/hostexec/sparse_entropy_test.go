package hostexec

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/tensor"
)

// sparseEntropy is a program with labels and ignored labels.
func sparseEntropy(dt tensor.DType, rows, classes int, smoothing float64, graded bool) (*build, map[program.ID][]byte) {
	b := newBuild()
	out := views(b.value("loss", dt), b.value("dx", dt, rows, classes))
	if !graded {
		out = out[:1]
	}
	op := &program.SparseCrossEntropy{Rows: rows, Classes: classes, First: 70, Ignore: -100, Smoothing: smoothing, Scale: 2}
	b.step(op, views(b.value("x", dt, rows, classes), b.value("labels", tensor.I64, rows), b.value("weight", dt)), out)
	r := rand.New(rand.NewPCG(3, 4))
	memory := contents(&b.Program, normal(r))
	for i := range rows {
		label := r.IntN(classes)
		if i%5 == 3 {
			label = -100
		}
		program.SetElement(tensor.I64, memory[b.Steps[0].In[1].Value], i, float64(label))
	}
	program.SetElement(dt, memory[b.Steps[0].In[2].Value], 0, 1/float64(rows))
	return b, memory
}

func TestSparseCrossEntropyEqualsTheOracle(t *testing.T) {
	for _, s := range [][2]int{{1, 1}, {128, 10}, {3, 257}, {7, 1000}, {500, 33}} {
		for _, dt := range floats {
			for _, graded := range []bool{false, true} {
				for _, smoothing := range []float64{0, 0.1} {
					t.Run(fmt.Sprint(s, dt, graded, smoothing), func(t *testing.T) {
						b, memory := sparseEntropy(dt, s[0], s[1], smoothing, graded)
						agree(t, t, &b.Program, memory, 3e-6)
					})
				}
			}
		}
	}
}

// The gradient may take the memory of the logits.
func TestSparseCrossEntropyWorksInPlace(t *testing.T) {
	for _, classes := range []int{9, 300} {
		b, memory := sparseEntropy(tensor.F32, 8, classes, 0.1, true)
		b.Steps[0].Out[1] = b.Steps[0].In[0]
		agree(t, t, &b.Program, memory, 3e-6)
	}
}

func TestALabelThatIsNoClassIsAnErrorWithItsRow(t *testing.T) {
	for _, label := range []float64{-1, 10, 1 << 40} {
		b, memory := sparseEntropy(tensor.F32, 8, 10, 0, true)
		program.SetElement(tensor.I64, memory[b.Steps[0].In[1].Value], 5, label)
		r, err := New(&b.Program, Config{Threads: 2}, program.Env{})
		if err != nil {
			t.Fatal(err)
		}
		bindAll(t, r, &b.Program, memory)
		err = r.Run()
		if want := fmt.Sprintf("row 75 has target %.0f, want 0 to 9, or -100", label); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
}
