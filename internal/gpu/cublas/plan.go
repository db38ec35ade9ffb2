package cublas

import (
	"errors"
	"fmt"
	"runtime"
	"time"
	"unsafe"

	"github.com/symgrad/symgrad/internal/dl"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
)

// Epilogue is an operation that a Plan does with the product. Rows and columns are those of the
// row-major C.
type Epilogue uint8

// Epilogues. bias has N elements of C's type, one for each column, for all rows and all products of
// a batch.
const (
	Plain        Epilogue = iota
	Bias                  // C = product + bias
	BiasReLU              // C = max(product + bias, 0)
	BiasReLUMask          // BiasReLU, and a bit for each element in Aux: whether it was greater than 0
	MaskBiasGrad          // C = product where the bit of Aux is set and 0 elsewhere; Bias[j] becomes the sum of column j of C
	BiasGradA             // C = product; Bias[i] becomes the sum of row i of op(A), M elements
	BiasGradB             // C = product; Bias[j] becomes the sum of column j of op(B), N elements
)

// epilogues has name and cublasLtEpilogue_t by Epilogue. The library's A is B here: its BGRADA sums
// op(B).
var epilogues = [...]struct {
	name      string
	code      int32
	bias, aux bool // needs Operands.Bias, Operands.Aux
	batch     bool // works with a batch
}{
	Plain:        {"plain", epilogueDefault, false, false, true},
	Bias:         {"bias", epilogueBias, true, false, true},
	BiasReLU:     {"bias-relu", epilogueReLUBias, true, false, true},
	BiasReLUMask: {"bias-relu-mask", epilogueReLUAuxBias, true, true, false},
	MaskBiasGrad: {"mask-biasgrad", epilogueDReLUBGrad, true, true, false},
	BiasGradA:    {"biasgrad-a", epilogueBGradB, true, false, false},
	BiasGradB:    {"biasgrad-b", epilogueBGradA, true, false, false},
}

// String returns the name, such as "bias-relu".
func (e Epilogue) String() string {
	if int(e) < len(epilogues) {
		return epilogues[e].name
	}
	return "invalid"
}

// PlanDesc describes a Plan.
type PlanDesc struct {
	Gemm              Gemm
	Epilogue          Epilogue
	AlignBytes        int   // of the addresses of all operands, a power of 2; 0 means 256
	MaxWorkspaceBytes int64 // of the plan, at most; 0 means the size of the handle's
	Candidates        int   // number of proposals of the library that are timed, up to 64; 0 or 1 takes the first, untimed

	// Before queues on s the caller's work on operands before each run. NewPlan times it with the
	// candidates, on operands of its own. For Run the caller queues it. nil means none.
	Before func(s *cuda.Stream, o Operands) error
}

// maxCandidates is more than any heuristic proposes.
const maxCandidates = 64

// Validate reports an invalid descriptor. Errors: cuda.ErrInvalid.
func (d *PlanDesc) Validate() error {
	if err := d.Gemm.Validate(); err != nil {
		return err
	}
	switch {
	case int(d.Epilogue) >= len(epilogues):
		return d.Gemm.wrong("epilogue %d", d.Epilogue)
	case d.Gemm.Batch > 1 && !epilogues[d.Epilogue].batch:
		return d.Gemm.wrong("epilogue %v is for one product", d.Epilogue)
	case d.AlignBytes < 0 || d.AlignBytes&(d.AlignBytes-1) != 0:
		return d.Gemm.wrong("AlignBytes is %d, want a power of 2, or 0 for 256", d.AlignBytes)
	case d.AlignBytes != 0 && d.AlignBytes < max(d.Gemm.DType.Bytes(), d.Gemm.out().Bytes()):
		return d.Gemm.wrong("AlignBytes is %d, less than an element has", d.AlignBytes)
	case d.MaxWorkspaceBytes < 0:
		return d.Gemm.wrong("MaxWorkspaceBytes is %d", d.MaxWorkspaceBytes)
	case d.Candidates < 0 || d.Candidates > maxCandidates:
		return d.Gemm.wrong("%d candidates, want 0 to %d", d.Candidates, maxCandidates)
	}
	return nil
}

// align returns AlignBytes or its default.
func (d *PlanDesc) align() int {
	if d.AlignBytes == 0 {
		return 256
	}
	return d.AlignBytes
}

// AuxLD returns the bits of a row of Operands.Aux: N, rounded up to a multiple of 128.
func (d *PlanDesc) AuxLD() int { return (d.Gemm.N + auxBits - 1) / auxBits * auxBits }

// AuxBytes returns the size of Operands.Aux; 0 if the epilogue has none.
func (d *PlanDesc) AuxBytes() int64 {
	if int(d.Epilogue) >= len(epilogues) || !epilogues[d.Epilogue].aux {
		return 0
	}
	return int64(d.Gemm.M) * int64(d.AuxLD()/8)
}

// BiasLen returns the elements of Operands.Bias, which have C's type; 0 if the epilogue has none.
func (d *PlanDesc) BiasLen() int {
	switch {
	case int(d.Epilogue) >= len(epilogues) || !epilogues[d.Epilogue].bias:
		return 0
	case d.Epilogue == BiasGradA:
		return d.Gemm.M
	}
	return d.Gemm.N
}

// Operands are the device addresses for a run. Bias and Aux are those of the epilogue. Workspace
// has Plan.WorkspaceBytes bytes, at a multiple of 256. 0 means the handle's, on the handle's stream
// only.
type Operands struct {
	A, B, C, Bias, Aux, Workspace uintptr
}

// Plan is a product with an epilogue and a chosen algorithm. It is not safe for concurrent use.
type Plan struct {
	h         *Handle
	desc      PlanDesc
	q         columns
	op        uintptr    // cublasLtMatmulDesc_t; 0 after Close
	layout    [3]uintptr // of the library's A and B, and of C: cublasLtMatrixLayout_t
	algo      algo
	workspace int64
	chosen    string
	took      time.Duration
	timed     []candidate
	extra     [2]uintptr // current addresses of bias and aux in op

	args        [16]uintptr
	alpha, beta uint64
	value       uintptr // of an attribute, during a call
}

// candidate is an algorithm that was timed.
type candidate struct {
	heuristicResult
	name string
	took time.Duration // 0 if the library has refused it
}

// NewPlan chooses an algorithm for d. With Candidates it times several, with its own memory for the
// operands and its own stream, and takes the fastest. That must not happen while a stream of the
// device captures.
//
// Owns: the caller closes it, before the handle. Errors: dl.ErrUnsupported if the library has no
// algorithm for this epilogue or type; cuda.ErrInvalid for an invalid d; cuda.ErrMemory; ErrClosed;
// *Error; those of Before.
func (h *Handle) NewPlan(d PlanDesc) (*Plan, error) {
	if err := d.Validate(); err != nil {
		return nil, err
	}
	if h.handle == 0 {
		return nil, ErrClosed
	}
	if d.MaxWorkspaceBytes == 0 {
		d.MaxWorkspaceBytes = h.bytes
	}
	q, err := d.Gemm.columns()
	if err != nil {
		return nil, err
	}
	p := &Plan{h: h, desc: d, q: q, alpha: scalar(d.Gemm.Alpha, q.scaling), beta: scalar(d.Gemm.Beta, q.scaling)}
	err = h.inside(func() error {
		if err := p.describe(); err != nil {
			return err
		}
		return p.choose()
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%v %v: %w", &d.Gemm, d.Epilogue, err), p.Close())
	}
	return p, nil
}

// WorkspaceBytes returns the workspace of a run.
func (p *Plan) WorkspaceBytes() int64 { return p.workspace }

// Took returns the measured time of a run, including Before; 0 if the candidates were not timed.
func (p *Plan) Took() time.Duration { return p.took }

// Candidates returns the algorithms that were timed, and the time of a run of each, including
// Before; 0 for one that does not work. The order is the library's, which is fixed for a product
// and a kind of GPU. nil if none was timed.
func (p *Plan) Candidates() (names []string, took []time.Duration) {
	for i := range p.timed {
		names, took = append(names, p.timed[i].name), append(took, p.timed[i].took)
	}
	return names, took
}

// Take makes candidate i the plan's algorithm, instead of the fastest. Graphs that have captured
// the plan do not change.
//
// Errors: cuda.ErrInvalid for an unknown candidate, or one that does not work; ErrClosed.
func (p *Plan) Take(i int) error {
	switch {
	case p.op == 0 || p.h.handle == 0:
		return ErrClosed
	case i < 0 || i >= len(p.timed):
		return p.desc.Gemm.wrong("candidate %d of %d", i, len(p.timed))
	case p.timed[i].took == 0:
		return p.desc.Gemm.wrong("candidate %d, %s, does not work", i, p.timed[i].name)
	}
	p.takeTimed(i)
	return nil
}

// Desc returns the plan's descriptor.
func (p *Plan) Desc() PlanDesc { return p.desc }

// String returns "gemm f32 128x512x784 nt bias-relu: algorithm 66, tile 20, ...; workspace 0 B; the
// fastest of 8, 12.3µs".
func (p *Plan) String() string {
	return fmt.Sprintf("%v %v: %s", &p.desc.Gemm, p.desc.Epilogue, p.chosen)
}

// Run queues the plan on s, a stream of the handle's device. It allocates nothing, and may be
// captured.
//
// Owns: the memory is the stream's until the work is done. Errors: cuda.ErrInvalid for missing or
// badly aligned operands, or a stream of another device; ErrClosed; *Error.
func (p *Plan) Run(s *cuda.Stream, o Operands) error {
	if p.op == 0 || p.h.handle == 0 {
		return ErrClosed
	}
	if s.Device() != p.h.dev || s.Handle() == 0 {
		return p.desc.Gemm.wrong("the stream is closed or not of %v", p.h.dev)
	}
	if o.Workspace == 0 && p.workspace > 0 {
		if s != p.h.stream || p.workspace > p.h.bytes {
			return p.desc.Gemm.wrong("needs %d B of workspace: the handle's has %d B and is for the handle's stream", p.workspace, p.h.bytes)
		}
		o.Workspace = p.h.ws
	}
	if err := p.desc.fits(o); err != nil {
		return err
	}
	return p.queue(s, o)
}

// fits returns nil if all operands of the plan are present and aligned.
func (d *PlanDesc) fits(o Operands) error {
	e := &epilogues[d.Epilogue]
	if o.A == 0 || o.B == 0 || o.C == 0 || e.bias && o.Bias == 0 || e.aux && o.Aux == 0 {
		return d.Gemm.wrong("%v without memory: A at %#x, B at %#x, C at %#x, Bias at %#x, Aux at %#x", d.Epilogue, o.A, o.B, o.C, o.Bias, o.Aux)
	}
	all := o.A | o.B | o.C
	if e.bias {
		all |= o.Bias
	}
	if e.aux {
		all |= o.Aux
	}
	if all&uintptr(d.align()-1) != 0 || o.Workspace&(workspaceAligned-1) != 0 {
		return d.Gemm.wrong("operands are not at multiples of AlignBytes (%d): A at %#x, B at %#x, C at %#x, Bias at %#x, Aux at %#x, or Workspace at %#x of %d",
			d.align(), o.A, o.B, o.C, o.Bias, o.Aux, o.Workspace, workspaceAligned)
	}
	return nil
}

// queue is Run without checks of the operands.
func (p *Plan) queue(s *cuda.Stream, o Operands) error {
	h := p.h
	if err := h.dev.Enter(); err != nil {
		return err
	}
	defer h.dev.Leave()
	e := &epilogues[p.desc.Epilogue]
	if e.bias {
		if err := p.point(0, descBias, o.Bias); err != nil {
			return err
		}
	}
	if e.aux {
		if err := p.point(1, descAux, o.Aux); err != nil {
			return err
		}
	}
	w := &p.args
	w[0], w[1], w[2] = h.lt, p.op, uintptr(unsafe.Pointer(&p.alpha))
	w[3], w[4], w[5], w[6] = o.B, p.layout[0], o.A, p.layout[1]
	w[7], w[8], w[9], w[10], w[11] = uintptr(unsafe.Pointer(&p.beta)), o.C, p.layout[2], o.C, p.layout[2]
	w[12], w[13], w[14], w[15] = uintptr(unsafe.Pointer(&p.algo)), o.Workspace, uintptr(p.workspace), s.Handle()
	r, err := h.lib.ltT.matmul.CallWords(w[:]...)
	runtime.KeepAlive(p)
	if err != nil {
		return err
	}
	if int32(r) != success {
		return h.lib.failure("cublasLtMatmul", int32(r), p.desc.Gemm.String()+" "+p.desc.Epilogue.String())
	}
	return nil
}

// point sets the i-th address of the epilogue.
func (p *Plan) point(i int, attr int32, at uintptr) error {
	if p.extra[i] == at {
		return nil
	}
	p.value = at
	w := &p.args
	w[0], w[1], w[2], w[3] = p.op, uintptr(attr), uintptr(unsafe.Pointer(&p.value)), unsafe.Sizeof(p.value)
	r, err := p.h.lib.ltT.descSet.CallWords(w[:4]...)
	runtime.KeepAlive(p)
	if err != nil {
		return err
	}
	if int32(r) != success {
		return p.h.lib.failure("cublasLtMatmulDescSetAttribute", int32(r), p.desc.Epilogue.String())
	}
	p.extra[i] = at
	return nil
}

// Close frees the library's state of the plan. Graphs stay usable: they have kernels, not the plan.
// Idempotent. Errors: *Error.
func (p *Plan) Close() error {
	op, layout := p.op, p.layout
	p.op, p.layout = 0, [3]uintptr{}
	if op == 0 && layout == [3]uintptr{} {
		return nil
	}
	return p.h.inside(func() error {
		var errs []error
		for _, l := range layout {
			if l != 0 {
				errs = append(errs, p.h.lib.check("cublasLtMatrixLayoutDestroy", p.h.lib.ltT.layoutDestroy(l)))
			}
		}
		if op != 0 {
			errs = append(errs, p.h.lib.check("cublasLtMatmulDescDestroy", p.h.lib.ltT.descDestroy(op)))
		}
		return errors.Join(errs...)
	})
}

// none returns the error of a plan without algorithms.
func (p *Plan) none() error {
	return fmt.Errorf("cublas: %w: %s proposes no algorithm with operands at multiples of %d B and %d B of workspace",
		dl.ErrUnsupported, p.h.lib.name, p.desc.align(), p.desc.MaxWorkspaceBytes)
}
