package shm

import (
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

// sumTiny adds the floats that came with the announcements, in rank order: so few that the call of a kernel would cost
// as much as the sum.
func (t *Transport) sumTiny(op *dist.Op) {
	dst, n := op.Dst.Pointer(), op.Count
	if op.Dst.DType() == tensor.F64 {
		d := unsafe.Slice((*float64)(dst), n)
		copy(d, unsafe.Slice((*float64)(pointer(t.ctl.entry(0, t.round))), n))
		for r := 1; r < t.size; r++ {
			for i, v := range unsafe.Slice((*float64)(pointer(t.ctl.entry(r, t.round))), n) {
				d[i] += v
			}
		}
		return
	}
	d := unsafe.Slice((*float32)(dst), n)
	copy(d, unsafe.Slice((*float32)(pointer(t.ctl.entry(0, t.round))), n))
	for r := 1; r < t.size; r++ {
		for i, v := range unsafe.Slice((*float32)(pointer(t.ctl.entry(r, t.round))), n) {
			d[i] += v
		}
	}
}
