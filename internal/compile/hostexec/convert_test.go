package hostexec

import (
	"testing"

	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/tensor"
)

// 64-bit integers are rounded to float64 before float32, however far apart they lie: 2^60 + 2^36 +
// 1 is a little above the middle of two numbers of float32, and float64 has the middle.
func TestStrided64BitIntegersEqualTheOracle(t *testing.T) {
	for _, dt := range []tensor.DType{tensor.I64, tensor.U64} {
		for _, step := range []int{1, 2, 3, -1} {
			const n = 40
			b := newBuild()
			v := b.value("x", dt, 3*n)
			v.Strides[0] = step
			if step < 0 {
				v.Offset = n - 1
			}
			b.step(&program.Map{Space: []int{n}, Code: loadAndAdd[:1], Stores: []int{0}}, views(v), views(b.value("y", tensor.F32, n)))
			memory := contents(&b.Program, func() float64 { return 0 })
			raw := memory[v.Value]
			for i := 0; i < len(raw); i += 8 {
				raw[i], raw[i+4], raw[i+7] = 1, 1<<4, 1<<4 // bits 0, 36 and 60
			}
			agree(t, t, &b.Program, memory, 0)
		}
	}
}
