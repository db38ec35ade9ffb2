package cudagen

import (
	"github.com/symgrad/symgrad/internal/program"
)

// Target is the device that kernels are made for.
type Target struct {
	SMs        int // multiprocessors; 0 means 132
	MaxThreads int // threads that a multiprocessor holds; 0 means 2048
	Arch       int // 90 is sm_90; 0 means 80. Nothing newer than it is used

	// Own says of each step, if it is a MatMul or a Conv, whether it gets kernels of ours; a
	// library does the others. nil means that libraries do all.
	Own []bool

	// Stay keeps blocks of large Maps until all of their elements are done. Otherwise they end soon
	// and make room for others, and less memory bandwidth is left to concurrent kernels.
	Stay bool

	// Apart keeps each step a launch of its own. Otherwise independent Maps that follow each other,
	// and steps along the same rows, are one, where that pays.
	Apart bool
}

// Kernel is one launch.
type Kernel struct {
	Name   string    // of the function; steps that do the same share one
	Grid   [3]uint32 // blocks
	Block  [3]uint32 // threads of a block
	Shared uint32    // bytes of dynamic shared memory of a block
	Args   []Arg     // in order; each is a parameter of 8 bytes
}

// Arg is a parameter of a kernel.
type Arg struct {
	Kind   ArgKind
	Step   int   // whose In, Out or Scratch; of a kernel that does several steps, not always the step that has it
	Index  int   // of In and Out
	Offset int64 // bytes; of Number the number itself
}

// ArgKind is the kind of an Arg.
type ArgKind uint8

// The kinds.
const (
	In      ArgKind = iota // the address of the value of In[Index], and Offset: that of View.Offset is in it
	Out                    // the address of the value of Out[Index], and Offset
	Scratch                // Offset bytes into the step's scratch memory
	Clock                  // the address of the program's Clock
	Fault                  // the address of the run's fault words
	Number                 // Offset itself, as an unsigned 64-bit number
)

// Step has the kernels and the memory of a step.
type Step struct {
	// Kernels are launched in order. There are none for a step of a library or a collective, for a
	// step without elements, and for one that a kernel of an earlier step does as well: see
	// Arg.Step.
	Kernels []Kernel

	// Scratch is bytes of device memory of the step's own, aligned to 256 and zeroed once when the
	// program is loaded: counters in it are 0 again when the step is over.
	Scratch int64
}

// The fault words are FaultWords unsigned 64-bit numbers in device memory, all 0 before a run. The
// first fault of a run writes them, and no other: its code, the number of its step, and, for
// FaultIndex, the bits of the index as a float64, or, for FaultDivisor, of the number of the
// element.
const (
	FaultWords   = 4
	FaultIndex   = 1 // an index of Gather or GatherGrad is outside its axis
	FaultDivisor = 2 // an Integer divides by 0

	FaultCodeAt  = 0
	FaultStepAt  = 1
	FaultValueAt = 2
)

// Options returns the compiler's options for the text of Generate. Results are those of IEEE
// arithmetic, except that products are fused with sums. Only exponentials of attention are
// approximated.
func Options() []string {
	return []string{"--std=c++17", "--ftz=false", "--prec-div=true", "--prec-sqrt=true", "--fmad=true"}
}

// Generate makes the kernels of p, which is planned: one text for all of them, and the launches of
// each step. The text depends only on p and t, so its compiled form can be cached.
//
// Returns: steps[i] is of p.Steps[i]. Errors: a step that no kernel can do, with its number and
// name.
func Generate(p *program.Program, t Target) (text string, steps []Step, err error) {
	g := newGenerator(p, t)
	if err := g.all(); err != nil {
		return "", nil, err
	}
	return g.text(), g.steps, nil
}
