package oracle

import "github.com/symgrad/symgrad/internal/compile/program"

// matmul rounds the product before it adds it to the old contents, as a product and a Map would.
func matmul(op *program.MatMul, o *operands) {
	a, b, c := o.in[0], o.in[1], o.out[0]
	for n := range op.Batch {
		for i := range op.M {
			for j := range op.N {
				sum := 0.0
				for k := range op.K {
					sum += a.at(n, i, k) * b.at(n, k, j)
				}
				old := 0.0
				if op.Beta != 0 {
					old = c.at(n, i, j)
				}
				c.set(op.Alpha*sum, n, i, j)
				if op.Beta != 0 {
					c.set(old+c.at(n, i, j), n, i, j)
				}
			}
		}
	}
}
