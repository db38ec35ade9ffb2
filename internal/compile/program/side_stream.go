package program

import "slices"

// farBehind is the most steps of Side that may be pending when a product of Compute begins. Their
// inputs are kept until then.
const farBehind = 8

// nearBehind is farBehind for a program that computes activations again: memory counts more there.
const nearBehind = 2

// pendingAside returns the most steps of Side that may be pending.
func pendingAside(p *Program) int {
	if repeats(p) {
		return nearBehind
	}
	return farBehind
}

// repeats reports whether a program computes activations again.
func repeats(p *Program) bool {
	return slices.ContainsFunc(p.Steps, func(s Step) bool { return s.Again })
}

// assignSideStream moves to the Side stream the products and sums that no product follows from, and
// the Compute steps that read their results. These are gradients of weights and biases and, without
// exchange, their updates. Products of a backward pass depend on each other, and small ones leave
// most of a GPU idle. Products of the logits' gradients stay. If no product follows the first of
// these steps, all steps stay on Compute.
func assignSideStream(p *Program) {
	if !p.Aside {
		return
	}
	f := flowOf(p)
	goesOn := f.goOn()
	product, beside := false, false
	for i := range p.Steps {
		s := &p.Steps[i]
		_, isMatMul := s.Op.(*MatMul)
		switch {
		case s.Stream != Compute:
		case isMatMul && readsLogits(f, s): // it fills the GPU, and keeps the largest value of a model
		case goesOn[i]:
			beside = beside || product && multiplies(s.Op)
		case isMatMul, isReduce(s.Op), f.readsFrom(i, Side):
			s.Stream = Side
			product = product || isMatMul
		}
	}
	if beside {
		untangle(p)
		return
	}
	for i := range p.Steps {
		if s := &p.Steps[i]; s.Stream == Side {
			s.Stream = Compute
		}
	}
}

// readsLogits reports whether a step reads the gradient of a SparseCrossEntropy.
func readsLogits(f *flow, s *Step) bool {
	return slices.ContainsFunc(s.In, func(v View) bool {
		i := f.maker(v.Value)
		return i >= 0 && takesLogits(f.p.Steps[i].Op)
	})
}

// stands reports whether a step is one that other steps are not moved across: any except Maps,
// Reduces and collectives.
func stands(s *Step) bool {
	_, communicates := s.Op.(*Collective)
	return !communicates && !converts(s.Op)
}

// untangle moves Compute steps before Side steps within each section between two steps that stand,
// so that steps along the same rows stay together.
func untangle(p *Program) {
	deps := dependencies(p, fetchesOf(flowOf(p)))
	var order []int
	for i := 0; i < len(p.Steps); {
		end := i
		for end < len(p.Steps) && p.Steps[end].Stream != Comm && (p.Steps[end].Stream == Side || !stands(&p.Steps[end])) {
			end++
		}
		order = append(order, computeFirst(p, i, end, deps)...)
		if end < len(p.Steps) {
			order = append(order, end)
		}
		i = end + 1
	}
	permute(p, order)
}

// computeFirst returns steps i to end with those of Compute first. It keeps the order if a Compute
// step needs a Side step.
func computeFirst(p *Program, i, end int, deps [][]int) []int {
	var first, behind, all []int
	needs := false
	for j := i; j < end; j++ {
		all = append(all, j)
		if p.Steps[j].Stream == Side {
			behind = append(behind, j)
			continue
		}
		first = append(first, j)
		for _, d := range deps[j] {
			needs = needs || d >= i && p.Steps[d].Stream == Side
		}
	}
	if needs {
		return all
	}
	return append(first, behind...)
}

// multiplies reports whether a step is a matrix product, a convolution or a gradient of one.
func multiplies(op Op) bool {
	switch op.(type) {
	case *MatMul, *Conv, *ConvGradInput, *ConvGradFilter:
		return true
	}
	return false
}
