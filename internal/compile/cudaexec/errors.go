package cudaexec

import (
	"errors"
	"fmt"
	"sort"
	"strings"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
)

// ErrFault is matched by the error of a run in which a step found invalid data: an index out of
// range, or an integer divisor of 0. The other steps have run, so all values are undefined,
// parameters too.
var ErrFault = errors.New("invalid data")

// ErrStuck is matched by the error of a Close that freed nothing, because a group is broken and the
// device does not finish its work: freeing device memory would hang.
var ErrStuck = errors.New("the device makes no progress: its memory is not freed")

// errClosed is the error of all methods of a closed runner.
var errClosed = fmt.Errorf("cudaexec: %w", dist.ErrClosed)

// need is the device memory of a program in bytes, by purpose.
type need struct {
	arena, constants, scratch, other int64
}

func (n need) total() int64 { return n.arena + n.constants + n.scratch + n.other }

// largestValues is how many values an error about memory names.
const largestValues = 5

// memoryError wraps the error of a failed allocation. It adds the memory that the program needs and
// the program's largest values.
func memoryError(p *program.Program, n need, err error) error {
	text := fmt.Sprintf("cudaexec: program %q needs %d B of device memory (arena %d, constants %d, scratch %d, other %d)",
		p.Name, n.total(), n.arena, n.constants, n.scratch, n.other)
	if list := largest(p, largestValues); list != "" {
		text += "; its largest values are " + list
	}
	if errors.Is(err, cuda.ErrMemory) {
		text += "; a smaller batch needs less"
	}
	return fmt.Errorf("%s: %w", text, err)
}

// largest names the n largest values of the arena and the constants, the largest first.
func largest(p *program.Program, n int) string {
	var ids []int
	for i := range p.Values {
		if v := &p.Values[i]; v.Place != program.Outside && v.Bytes() > 0 {
			ids = append(ids, i)
		}
	}
	sort.SliceStable(ids, func(a, b int) bool { return p.Values[ids[a]].Bytes() > p.Values[ids[b]].Bytes() })
	names := make([]string, 0, n)
	for _, i := range ids[:min(n, len(ids))] {
		names = append(names, fmt.Sprintf("%s, %d B", valueName(p, program.ID(i)), p.Values[i].Bytes()))
	}
	return strings.Join(names, "; ")
}

// valueName returns the name of a value in errors: value 7 "w0" f32[784 512].
func valueName(p *program.Program, id program.ID) string {
	if int(id) < 0 || int(id) >= len(p.Values) {
		return fmt.Sprintf("value %d", id)
	}
	v := &p.Values[id]
	return fmt.Sprintf("value %d %q %v%v", id, v.Name, v.DType, v.Shape)
}
