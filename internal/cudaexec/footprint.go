package cudaexec

import (
	"github.com/symgrad/symgrad/internal/cudagen"
	"github.com/symgrad/symgrad/internal/program"
)

// Footprint returns the bytes on the device that a loaded program holds, without bound memory: its
// arena, its constants, the scratch memory of steps, and staged inputs. It leaves out the memory of
// libraries and the workspace of cuDNN.
func (x *Exec) Footprint() (arena, constants, scratch, staged int64) {
	n := x.layout.need
	for _, st := range x.stage.list {
		staged += sides * st.bytes
	}
	return n.arena, n.constants, n.scratch + n.other, staged
}

// Foresee returns the Footprint that p, which is planned, would have on a GPU of 132
// multiprocessors of 2048 threads: an H100 or H200 (NVIDIA H100 Tensor Core GPU Architecture, 2022,
// table 4). It needs no GPU. It assumes that both libraries are installed and do all that they are
// asked for. It leaves out additional memory of Config.Tune.
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

// leftByLibraries is the steps that New leaves to kernels of our own where both libraries are
// there, and have an algorithm for whatever they are asked for.
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
