package cudaexec

import (
	"github.com/symgrad/symgrad/internal/compile/cudagen"
	"github.com/symgrad/symgrad/internal/compile/program"
)

// Footprint returns the device memory of a loaded program in bytes, without bound memory: the
// arena, the constants, the scratch memory of steps, and the inputs that were staged. Memory of the
// libraries is not counted, and neither is cuDNN's workspace.
func (x *Exec) Footprint() (arena, constants, scratch, staged int64) {
	n := x.layout.need
	for _, st := range x.stage.list {
		staged += sides * st.bytes
	}
	return n.arena, n.constants, n.scratch + n.other, staged
}

// Foresee predicts the Footprint of p, which is planned, without a GPU. It assumes 132
// multiprocessors of 2048 threads, as in an H100 or H200 (NVIDIA H100 Tensor Core GPU Architecture,
// 2022, table 4). It also assumes that both libraries are installed and do every step that they are
// asked for. Memory that Config.Tune may add is not counted.
//
// Errors: steps that GPUs do not have, those of newOrder.
func Foresee(p *program.Program) (arena, constants, scratch, staged int64, err error) {
	if err := refuse(p); err != nil {
		return 0, 0, 0, 0, err
	}
	own, err := leftByLibraries(p)
	if err != nil {
		return 0, 0, 0, 0, err
	}
	_, steps, err := cudagen.Generate(p, cudagen.Target{Arch: 90, Own: own})
	if err != nil {
		return 0, 0, 0, 0, err
	}
	n := newLayout(p, steps).need
	for i := range p.Values {
		v := &p.Values[i]
		if v.Role == program.Input && v.Place == program.Outside && !isClock(p, program.ID(i)) { // the runner has a clock of its own
			staged += sides * v.Bytes()
		}
	}
	return n.arena, n.constants, n.scratch + n.other, staged, nil
}

// leftByLibraries reports for each step whether New generates a kernel for it. It assumes that both
// libraries are installed and have algorithms for all their steps.
func leftByLibraries(p *program.Program) ([]bool, error) {
	o, err := newOrder(p)
	if err != nil {
		return nil, err
	}
	conv := forCUDNN(p, o.on, &Config{})
	own := make([]bool, len(p.Steps))
	for i := range own {
		own[i] = conv[i] == nil
		if _, ok := p.Steps[i].Op.(*program.MatMul); ok && o.on[i] != program.Comm {
			q, err := newProduct(p, i, F32)
			own[i] = err != nil || q == nil
		}
	}
	return own, nil
}
