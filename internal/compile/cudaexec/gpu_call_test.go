package cudaexec

import (
	"errors"
	"strings"
	"testing"

	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/tensor"
)

// TestHostFunctionsRunOnCopies has a host function between two kernels. It reads the results of the
// first in the same run, and the second reads its results. An error of the function is the error of
// the run.
func TestHostFunctionsRunOnCopies(t *testing.T) {
	b := newBuilder("call", 7)
	x := b.outside("x", program.Input, 1, 2, 4)
	twice, tripled := b.temp("twice", 4), b.temp("tripled", 4)
	y := b.outside("y", program.Output, 0, 0, 4)
	double := &program.Map{Space: []int{4}, Code: []program.Instr{load(0), {Op: program.Add}}, Stores: []int{1}}
	b.step("first", double, views(b.p.Whole(x)), views(b.p.Whole(twice)))
	b.step("host", &program.Call{Label: "triple", Copies: true}, views(b.p.Whole(twice)), views(b.p.Whole(tripled)))
	b.step("last", double, views(b.p.Whole(tripled)), views(b.p.Whole(y)))
	if err := program.Plan(b.p); err != nil {
		t.Fatal(err)
	}
	var failure error
	triple := func(in, out []tensor.Buffer) error {
		from, err := tensor.Data[float32](in[0])
		if err != nil {
			return err
		}
		to, err := tensor.Data[float32](out[0])
		if err != nil {
			return err
		}
		for i := range from {
			to[i] = 3 * from[i]
		}
		return failure
	}
	r := newRig(t, b, Config{}, program.Env{Calls: []func(in, out []tensor.Buffer) error{triple}})
	for range 3 { // more runs than come before a capture
		if err := errors.Join(r.Run(), r.Wait()); err != nil {
			t.Fatal(err)
		}
		got, err := r.elements(y)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 4 {
			want := float64(float32(3*float32(2*program.Element(tensor.F32, b.memory[x], i))) * 2)
			if have := program.Element(tensor.F32, got, i); have != want {
				t.Errorf("element %d is %v, want %v", i, have, want)
			}
		}
	}
	failure = errors.New("no more data")
	if err := r.Run(); !errors.Is(err, failure) || !strings.Contains(err.Error(), `step 1 "host" (call triple)`) {
		t.Errorf("error %v, want the step and the function's", err)
	}
}
