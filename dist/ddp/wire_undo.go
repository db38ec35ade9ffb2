package ddp

import "github.com/symgrad/symgrad/tensor"

// measurable reports whether all elements and their squares are finite. Otherwise solvers skip the
// step.
func measurable(b tensor.Buffer) bool {
	if b.DType() == tensor.F32 {
		x, err := tensor.Data[float32](b)
		return err == nil && finite(x)
	}
	x, err := tensor.Data[float64](b)
	for _, v := range x {
		if s := float64(v * v); s-s != 0 {
			return false
		}
	}
	return err == nil
}

// judge undoes the last step in the codecs if it failed, or if a summed gradient is not finite.
// Without sharding all ranks see the same sums. With sharding each rank checks its own part, and
// the solver calls undo on all ranks. judge also clears the gaps between gradients, which later
// steps do not write. No operation is in flight.
func (x *hooked) judge(failed bool) {
	for _, l := range x.codings {
		failed = failed || l.bad || l.ran && l.err != nil
	}
	if !failed {
		return
	}
	for _, l := range x.codings {
		if l.ran && l.undo != nil {
			l.undo.Undo()
		}
		d := l.d
		if l.far == nil && !d.plan.staged() && !d.closed && d.team.open() == nil { // else gaps are cleared before the bucket fills, or it is freed
			l.b.clearGaps(l.b.buf)
		}
	}
	x.forget()
}

// forget forgets the last step.
func (x *hooked) forget() {
	for _, l := range x.codings {
		l.ran, l.bad = false, false
	}
}

func (x *hooked) undo() {
	x.d.settle()
	x.judge(true)
}

func (x *hooked) begin(failed bool) {
	x.judge(failed)
	x.forget()
}

func finite(s []float32) bool {
	for _, v := range s {
		if v-v != 0 {
			return false
		}
	}
	return true
}
