package cudaexec

import (
	"github.com/symgrad/symgrad/internal/cudagen"
	"github.com/symgrad/symgrad/internal/program"
)

// Footprint is the bytes on the device that a loaded program holds besides the memory that is bound: those of its arena, of
// its constants, of what steps work in, and of the inputs that have been staged. What libraries keep for themselves is not
// in it, but the workspace that cuDNN has been given is.
func (x *Exec) Footprint() (arena, constants, scratch, staged int64) {
	n := x.layout.need
	for _, st := range x.stage.list {
		staged += sides * st.bytes
	}
	return n.arena, n.constants, n.scratch + n.other, staged
}

// Foresee is the Footprint that p, which is planned, would have on a GPU that need not be there: one of 132 multiprocessors
// of 2048 threads, which is an H100 or H200 (NVIDIA H100 Tensor Core GPU Architecture, 2022, table 4). Libraries do the
// products; their workspaces are not in it.
//
// Errors: steps that GPUs do not have.
func Foresee(p *program.Program) (arena, constants, scratch, staged int64, err error) {
	if err := refuse(p); err != nil {
		return 0, 0, 0, 0, err
	}
	_, steps, err := cudagen.Generate(p, cudagen.Target{Arch: 90})
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
