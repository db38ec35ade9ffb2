package hostexec

import "github.com/symgrad/symgrad/internal/compile/program"

// needs finds the last reader of each register.
func (k *compiler[T]) needs() {
	code := k.src.code
	k.last = filled(len(code), -1)
	k.where, k.regOf = filled(len(code), -1), filled(len(code), -1)
	if k.src.along != nil {
		k.last[len(code)-1] = len(code)
	}
	for _, r := range k.src.stores {
		k.last[r] = len(code)
	}
	for r := len(code) - 1; r >= 0; r-- {
		if k.last[r] < 0 {
			continue
		}
		for _, x := range reads(&code[r]) {
			k.last[x] = max(k.last[x], r)
		}
	}
}

// fuse joins an Add with a Mul that no other instruction reads.
func (k *compiler[T]) fuse() {
	code := k.src.code
	readers := make([]int, len(code))
	for r := range code {
		if k.last[r] >= 0 {
			for _, x := range reads(&code[r]) {
				readers[x]++
			}
		}
	}
	k.fused = filled(len(code), -1)
	for r := range code {
		if code[r].Op != program.Add || k.last[r] < 0 {
			continue
		}
		for _, x := range reads(&code[r]) {
			if k.fused[r] < 0 && code[x].Op == program.Mul && readers[x] == 1 && k.last[x] == r {
				k.fused[r], k.last[x] = x, -1
				for _, y := range reads(&code[x]) {
					k.last[y] = max(k.last[y], r)
				}
			}
		}
	}
}

// instruction returns the primitive of register r, and the registers that it reads.
func (k *compiler[T]) instruction(r int) (vecOp, []int) {
	in := &k.src.code[r]
	x := k.fused[r]
	if x < 0 {
		return vecOps[in.Op], reads(in)
	}
	mul, other := &k.src.code[x], in.A
	if other == x {
		other = in.B
	}
	return opMulAdd, []int{mul.A, mul.B, other}
}

func filled(n, x int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = x
	}
	return all
}

// reads returns the registers that an instruction reads.
func reads(in *program.Instr) []int {
	return []int{in.A, in.B, in.C}[:arity(in.Op)]
}
