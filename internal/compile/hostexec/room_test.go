package hostexec

import (
	"math"
	"strings"
	"testing"

	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/tensor"
)

func TestProgramsThatMemoryDoesNotHoldAreRefused(t *testing.T) {
	for _, c := range []struct {
		arena, work, machine int64
		ok                   bool
	}{
		{0, 0, 0, true},
		{900, 100, 1000, true},
		{900, 101, 1000, false},
		{1001, 0, 1000, false},
		{1 << 46, 1 << 46, 0, true},
		{1 << 47, 1, 0, false},
		{1 << 48, 0, math.MaxInt64, false},
		{-8, 0, 1000, false}, // a sum that has overflowed
	} {
		if err := fits(c.arena, c.work, c.machine); (err == nil) != c.ok {
			t.Errorf("%+v: %v", c, err)
		}
	}

	b := newBuild()
	const n = 1 << 46
	x, z := b.value("x", tensor.F32, 1), b.value("z", tensor.F32, 1)
	x.Strides, z.Strides = []int{0}, []int{0}
	y := b.Whole(b.Add(program.Value{Name: "y", DType: tensor.F32, Shape: []int{n}, Place: program.Arena}))
	load := []program.Instr{{Op: program.Load}}
	b.step(&program.Map{Space: []int{n}, Code: load, Stores: []int{0}}, views(x), views(y))
	b.step(&program.Reduce{Space: []int{n}, Reduced: []bool{true}, Code: load}, views(y), views(z))
	if err := program.Plan(&b.Program); err != nil {
		t.Fatal(err)
	}
	if _, err := New(&b.Program, Config{Threads: 1}, program.Env{}); err == nil || !strings.Contains(err.Error(), "hostexec: test: an arena of 2814749767") {
		t.Errorf("%v", err)
	}
	if arena, _, _, err := Foresee(&b.Program, Config{Threads: 1}, program.Env{}); arena < 4*n || err != nil {
		t.Errorf("foreseen: %d B, %v", arena, err)
	}
}
