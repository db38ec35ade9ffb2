package oracle

import (
	"encoding/binary"
	"math"

	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/tensor"
)

// indices calls f with each index of a space, in C order, and its number.
func indices(space []int, f func(index []int, n int)) {
	total := 1
	for _, d := range space {
		total *= d
	}
	index := make([]int, len(space))
	for n := range total {
		rest := n
		for i := len(space) - 1; i >= 0; i-- {
			index[i] = rest % space[i]
			rest /= space[i]
		}
		f(index, n)
	}
}

// single reports whether a step computes in f32.
func (o *operands) single() bool {
	for _, a := range append(append([]*array(nil), o.in...), o.out...) {
		if a.dt == tensor.F64 {
			return false
		}
	}
	return true
}

// registers computes the registers of one element.
func (m *machine) registers(code []program.Instr, o *operands, f32 bool, index []int, n int, r []float64) {
	arg := func(k int) float64 {
		if k < 0 || k >= len(r) {
			return 0
		}
		return r[k]
	}
	for i := range code {
		in := &code[i]
		switch in.Op {
		case program.Load:
			r[i] = o.in[in.A].at(index...)
		case program.Const:
			r[i] = in.Value
		case program.Rand:
			r[i] = m.rand(in, n)
		default:
			r[i] = in.Op.Eval(f32, arg(in.A), arg(in.B), arg(in.C))
		}
		if f32 {
			r[i] = float64(float32(r[i]))
		}
	}
}

// rand returns the random number of element n of a space, from the clock.
func (m *machine) rand(in *program.Instr, n int) float64 {
	clock := m.mem[m.p.Clock]
	step, sample := binary.LittleEndian.Uint64(clock), binary.LittleEndian.Uint64(clock[8:])
	at := sample*uint64(in.PerUnit) + uint64(n)
	w := philox([4]uint32{uint32(at), uint32(at >> 32), uint32(step), uint32(step >> 32)}, [2]uint32{uint32(in.Key), uint32(in.Key >> 32)})
	return float64(w[0]>>8) / (1 << 24)
}

// philox is Philox-4x32-10 of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as
// 1, 2, 3" (SC 2011).
func philox(counter [4]uint32, key [2]uint32) [4]uint32 {
	for range 10 {
		p0, p1 := uint64(counter[0])*0xD2511F53, uint64(counter[2])*0xCD9E8D57
		counter = [4]uint32{uint32(p1>>32) ^ counter[1] ^ key[0], uint32(p1), uint32(p0>>32) ^ counter[3] ^ key[1], uint32(p0)}
		key[0] += 0x9E3779B9
		key[1] += 0xBB67AE85
	}
	return counter
}

// mapped computes all results of an element before it stores the first, so that an Out may be an
// In.
func (m *machine) mapped(op *program.Map, o *operands) {
	r := make([]float64, len(op.Code))
	f32 := o.single()
	results := make([][8]byte, len(o.out))
	indices(op.Space, func(index []int, n int) {
		m.registers(op.Code, o, f32, index, n, r)
		for k, reg := range op.Stores {
			out := o.out[k]
			if from := &op.Code[reg]; from.Op == program.Load && o.in[from.A].dt == out.dt {
				copy(results[k][:], o.in[from.A].bits(index)) // a copy, exact for integers too
				continue
			}
			program.SetElement(out.dt, results[k][:], 0, r[reg])
		}
		for k, out := range o.out {
			copy(out.bits(index), results[k][:])
		}
	})
}

func (m *machine) reduce(op *program.Reduce, o *operands) {
	kept := append([]int(nil), op.Space...)
	for a, reduced := range op.Reduced {
		if reduced {
			kept[a] = 1
		}
	}
	empty := 0.0
	if op.Red == program.Max {
		empty = math.Inf(-1)
	}
	out, f32 := o.out[0], o.single()
	r := make([]float64, len(op.Code))
	results := map[int]float64{} // by element of the Out, which repeats along reduced axes
	indices(kept, func(index []int, _ int) { results[out.element(index)] = empty })
	indices(op.Space, func(index []int, n int) {
		m.registers(op.Code, o, f32, index, n, r)
		e, x := out.element(index), r[len(r)-1]
		if op.Red == program.Max {
			results[e] = max(results[e], x)
		} else {
			results[e] += x
		}
	})
	indices(kept, func(index []int, _ int) { out.set(results[out.element(index)], index...) })
}
