package cudagen

import (
	"github.com/symgrad/symgrad/internal/compile/program"
)

// Target describes the device for which kernels are generated.
type Target struct {
	SMs        int // multiprocessors; 0 means 132
	MaxThreads int // threads per multiprocessor; 0 means 2048
	Arch       int // 90 is sm_90; 0 means 80; newer instructions are not used

	// Own reports for each MatMul and Conv step whether it gets a kernel. A library does the
	// others. nil means that libraries do all.
	Own []bool

	// Stay makes blocks of large Maps loop until all elements are done. Otherwise they end soon and
	// make room for others. With Stay, Maps leave more memory bandwidth to kernels that run at the
	// same time.
	Stay bool

	// Apart gives each step a launch of its own. Otherwise successive independent Maps, and steps
	// along the same rows, share a launch if that pays.
	Apart bool
}

// Kernel is one launch.
type Kernel struct {
	Name   string    // of the function; equal steps share one
	Grid   [3]uint32 // blocks
	Block  [3]uint32 // threads of a block
	Shared uint32    // bytes of dynamic shared memory of a block
	Args   []Arg     // in order; each is a parameter of 8 bytes
}

// Arg is a parameter of a kernel.
type Arg struct {
	Kind   ArgKind
	Step   int   // whose In, Out or Scratch; in a kernel for several steps, not always the step that has the kernel
	Index  int   // of In and Out
	Offset int64 // bytes; the value of a Number
}

// ArgKind is the kind of an Arg.
type ArgKind uint8

// Kinds of Arg.
const (
	In      ArgKind = iota // the address of the value of In[Index], plus Offset, which includes View.Offset
	Out                    // the address of the value of Out[Index], plus Offset
	Scratch                // Offset bytes into the step's scratch memory
	Clock                  // the address of the program's Clock
	Fault                  // the address of the run's fault words
	Number                 // Offset itself, as an unsigned 64-bit number
)

// Step is the launches and the scratch memory of a step.
type Step struct {
	// Kernels are launched in order. It is empty if a library or a collective does the step, if the
	// step has no elements, or if a kernel of an earlier step does it too: see Arg.Step.
	Kernels []Kernel

	// Scratch is the bytes of the step's own device memory, aligned to 256 and zeroed when the
	// program is loaded. Each run resets its counters to 0.
	Scratch int64
}

// Fault words: FaultWords unsigned 64-bit numbers in device memory, all 0 before a run. The first
// fault of a run writes its code, the number of its step, and a float64: the index for FaultIndex,
// or the number of the element for FaultDivisor; and the place of a label. Later faults write
// nothing.
const (
	FaultWords   = 4
	FaultIndex   = 1 // an index of Gather or GatherGrad is outside its axis, or a label is no class
	FaultDivisor = 2 // an Integer divides by 0

	FaultCodeAt  = 0
	FaultStepAt  = 1
	FaultValueAt = 2
	FaultPlaceAt = 3 // of a label of SparseCrossEntropy: its row
)

// Options returns the compiler options for the text of Generate. Results are those of IEEE
// arithmetic, except that products are fused with sums, and that attention approximates
// exponentials.
func Options() []string {
	return []string{"--std=c++17", "--ftz=false", "--prec-div=true", "--prec-sqrt=true", "--fmad=true"}
}

// Generate generates the kernels of p, which is planned: one text for all of them, and the launches
// of each step. The text depends on p and t alone, so that compiled code can be cached.
//
// Returns: steps[i] is of p.Steps[i]. Errors: a step that no kernel can do, by number and name.
func Generate(p *program.Program, t Target) (text string, steps []Step, err error) {
	g := newGenerator(p, t)
	if err := g.all(); err != nil {
		return "", nil, err
	}
	return g.text(), g.steps, nil
}
