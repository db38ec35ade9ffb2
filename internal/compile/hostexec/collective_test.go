package hostexec

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/internal/sim"
	"github.com/symgrad/symgrad/tensor"
)

// worldsOf is ranks that are closed with the test.
func worldsOf(t *testing.T, n int) []*dist.World {
	t.Helper()
	worlds, err := sim.New(n, sim.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, w := range worlds {
			if err := w.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	return worlds
}

// Collectives of the Comm stream run in order, also those of several groups: a sum over the columns
// of a sum over the rows. The second rank of each row comes when the first ones have started both.
func TestCollectivesOfSeveralGroupsRunInOrder(t *testing.T) {
	worlds := worldsOf(t, 4)
	started, errs := make(chan struct{}, 2), make(chan error, 4)
	step := func(rank int) error {
		row, column, err := worlds[rank].Split2D(2)
		if err != nil {
			return err
		}
		b := newBuild()
		x, y, z, sum := b.value("x", tensor.F32, 8), b.value("y", tensor.F32, 8), b.value("z", tensor.F32, 8), b.value("sum", tensor.F32, 8)
		call := program.Step{Name: "call", Op: &program.Call{}}
		overRow := program.Step{Name: "row", Op: &program.Collective{Kind: dist.KindAllReduce, Red: dist.Sum}, In: views(x), Out: views(y), Stream: program.Comm}
		overColumn := overRow
		overColumn.Name, overColumn.In, overColumn.Out = "column", views(y), views(z)
		overColumn.Op = &program.Collective{Kind: dist.KindAllReduce, Red: dist.Sum, Group: 1}
		add := program.Step{Name: "add", Op: &program.Map{Space: []int{8}, Code: loadAndAdd, Stores: []int{2}}, In: views(y, z), Out: views(sum)}
		meet := func(_, _ []tensor.Buffer) error { started <- struct{}{}; return nil }
		if rank%2 == 0 {
			add.After = []int{1}
			b.Steps = []program.Step{overRow, overColumn, call, add}
		} else {
			meet = func(_, _ []tensor.Buffer) error { <-started; return nil }
			add.After = []int{2}
			b.Steps = []program.Step{call, overRow, overColumn, add}
		}
		env := program.Env{Groups: []*dist.Group{row, column}, Calls: []func(in, out []tensor.Buffer) error{meet}}
		r, err := New(&b.Program, Config{Threads: 1}, env)
		if err != nil {
			return err
		}
		memory := contents(&b.Program, func() float64 { return float64(rank + 1) })
		bindAll(t, r, &b.Program, memory)
		if err := errors.Join(r.Run(), r.Close()); err != nil {
			return err
		}
		of := [...]float64{3 + 10, 3 + 10, 7 + 10, 7 + 10}[rank]
		if got := program.Element(tensor.F32, memory[sum.Value], 5); got != of {
			return fmt.Errorf("rank %d: %v, want %v", rank, got, of)
		}
		return nil
	}
	for rank := range 4 {
		go func() { errs <- step(rank) }()
	}
	for range 4 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}

// The error of a collective names its step, whichever step waits for it.
func TestErrorsNameTheCollectiveThatIsWaitedFor(t *testing.T) {
	for _, stream := range []program.Stream{program.Compute, program.Comm} {
		worlds, errs := worldsOf(t, 2), make(chan error, 2)
		for rank, w := range worlds {
			b := newBuild()
			n := 4 + rank // the ranks disagree
			x, y := b.value("x", tensor.F32, n), b.value("y", tensor.F32, n)
			sum := program.Step{Name: "sum", Op: &program.Collective{Kind: dist.KindAllReduce}, In: views(x), Out: views(x), Stream: program.Comm}
			add := program.Step{Name: "add", Op: &program.Map{Space: []int{n}, Code: loadAndAdd, Stores: []int{2}}, In: views(x, x), Out: views(y), Stream: stream}
			if stream == program.Compute {
				add.After = []int{0}
			}
			b.Steps = []program.Step{sum, add}
			r, err := New(&b.Program, Config{Threads: 1}, program.Env{Groups: []*dist.Group{w.Group}})
			if err != nil {
				t.Fatal(err)
			}
			bindAll(t, r, &b.Program, contents(&b.Program, func() float64 { return 1 }))
			go func() { errs <- errors.Join(r.Run(), r.Close()) }()
		}
		for range worlds {
			if err := <-errs; !errors.Is(err, dist.ErrMismatch) || !strings.HasPrefix(err.Error(), `hostexec: step 0 "sum"`) {
				t.Errorf("%v, want a mismatch of step 0", err)
			}
		}
	}
}
