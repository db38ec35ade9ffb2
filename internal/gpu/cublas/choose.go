package cublas

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unsafe"

	"github.com/symgrad/symgrad/internal/gpu/cuda"
)

// shapes returns rows and columns of the library's A, its B, and C, in its column-major order.
func (q *columns) shapes() [3]extent {
	var s [3]extent
	s[0].rows, s[0].cols = flip(q.transA == opT, q.m, q.k)
	s[1].rows, s[1].cols = flip(q.transB == opT, q.k, q.n)
	s[2].rows, s[2].cols = q.m, q.n
	s[0].ld, s[1].ld, s[2].ld = q.lda, q.ldb, q.ldc
	s[0].stride, s[1].stride, s[2].stride = q.sa, q.sb, q.sc
	return s
}

// describe makes the library's descriptors.
func (p *Plan) describe() error {
	l, q := p.h.lib, &p.q
	if err := l.check("cublasLtMatmulDescCreate", l.ltT.descCreate(&p.op, q.compute, q.scaling)); err != nil {
		return err
	}
	set := func(attr int32, value unsafe.Pointer, bytes uintptr) error {
		r, err := l.ltT.descSet.Call(p.op, uintptr(attr), uintptr(value), bytes)
		if err != nil {
			return err
		}
		return l.check("cublasLtMatmulDescSetAttribute", int32(r))
	}
	e, ld := epilogues[p.desc.Epilogue], int64(p.desc.AuxLD())
	err := errors.Join(
		set(descTransA, unsafe.Pointer(&q.transA), unsafe.Sizeof(q.transA)),
		set(descTransB, unsafe.Pointer(&q.transB), unsafe.Sizeof(q.transB)),
		set(descEpilogue, unsafe.Pointer(&e.code), unsafe.Sizeof(e.code)),
	)
	if err == nil && e.aux {
		err = set(descAuxLD, unsafe.Pointer(&ld), unsafe.Sizeof(ld))
	}
	// The heuristic derives the alignment of bias and aux from these addresses. It does not read
	// them.
	if err == nil && e.bias {
		err = p.point(0, descBias, uintptr(p.desc.align()))
	}
	if err == nil && e.aux {
		err = p.point(1, descAux, uintptr(p.desc.align()))
	}
	if err != nil {
		return err
	}
	for i, s := range q.shapes() {
		if err := p.describeMatrix(i, s); err != nil {
			return err
		}
	}
	return nil
}

// describeMatrix makes the i-th layout.
func (p *Plan) describeMatrix(i int, s extent) error {
	l, dtype := p.h.lib, p.q.typeAB
	if i == 2 {
		dtype = p.q.typeC
	}
	err := l.check("cublasLtMatrixLayoutCreate", l.ltT.layoutCreate(&p.layout[i], dtype, uint64(s.rows), uint64(s.cols), int64(s.ld)))
	if err != nil || p.q.batch == 1 {
		return err
	}
	n := int32(p.q.batch)
	return errors.Join(
		l.check("cublasLtMatrixLayoutSetAttribute", l.ltT.layoutSet(p.layout[i], layoutBatchCount, unsafe.Pointer(&n), uint64(unsafe.Sizeof(n)))),
		l.check("cublasLtMatrixLayoutSetAttribute", l.ltT.layoutSet(p.layout[i], layoutBatchStride, unsafe.Pointer(&s.stride), uint64(unsafe.Sizeof(s.stride)))),
	)
}

// choose takes the library's first proposal, or with Candidates the fastest.
func (p *Plan) choose() error {
	proposals, err := p.propose(max(p.desc.Candidates, 1))
	if err != nil {
		return err
	}
	if p.desc.Candidates <= 1 {
		p.take(&proposals[0])
		p.chosen = fmt.Sprintf("%s; workspace %d B", p.detail(), p.workspace)
		return nil
	}
	times, err := p.time(proposals)
	if err != nil {
		return err
	}
	best := fastest(times)
	if best < 0 {
		return p.none()
	}
	for i, t := range times {
		p.take(&proposals[i])
		p.timed = append(p.timed, candidate{proposals[i], p.detail(), t})
	}
	p.takeTimed(best)
	return nil
}

// takeTimed makes candidate i the plan's algorithm.
func (p *Plan) takeTimed(i int) {
	c := &p.timed[i]
	p.take(&c.heuristicResult)
	p.took = c.took
	which := "the fastest"
	if slices.ContainsFunc(p.timed, func(o candidate) bool { return o.took > 0 && o.took < c.took }) {
		which = fmt.Sprintf("number %d", i+1)
	}
	p.chosen = fmt.Sprintf("%s; workspace %d B; %s of %d, %v", c.name, p.workspace, which, len(p.timed), p.took)
}

// take makes r the plan's algorithm.
func (p *Plan) take(r *heuristicResult) { p.algo, p.workspace = r.algo, int64(r.workspace) }

// fastest returns the index of the least time, the first among equals, or -1. A time of 0 is an
// algorithm that does not work.
func fastest(times []time.Duration) int {
	best := -1
	for i, t := range times {
		if t > 0 && (best < 0 || t < times[best]) {
			best = i
		}
	}
	return best
}

// propose asks the library for up to n algorithms, the best by its own estimate first.
func (p *Plan) propose(n int) ([]heuristicResult, error) {
	l := p.h.lib
	var pref uintptr
	if err := l.check("cublasLtMatmulPreferenceCreate", l.ltT.prefCreate(&pref)); err != nil {
		return nil, err
	}
	defer l.ltT.prefDestroy(pref)
	bytes, align := uint64(p.desc.MaxWorkspaceBytes), uint32(p.desc.align())
	err := l.check("cublasLtMatmulPreferenceSetAttribute", l.ltT.prefSet(pref, prefWorkspace, unsafe.Pointer(&bytes), uint64(unsafe.Sizeof(bytes))))
	for _, attr := range [...]int32{prefAlignA, prefAlignB, prefAlignC, prefAlignD} {
		err = errors.Join(err, l.check("cublasLtMatmulPreferenceSetAttribute",
			l.ltT.prefSet(pref, attr, unsafe.Pointer(&align), uint64(unsafe.Sizeof(align)))))
	}
	if err != nil {
		return nil, err
	}
	results, got := make([]heuristicResult, n), new(int32)
	r, err := l.ltT.heuristic.Call(p.h.lt, p.op, p.layout[0], p.layout[1], p.layout[2], p.layout[2], pref, uintptr(n),
		uintptr(unsafe.Pointer(&results[0])), uintptr(unsafe.Pointer(got)))
	if err != nil {
		return nil, err
	}
	if int32(r) != success {
		return nil, l.failure("cublasLtMatmulAlgoGetHeuristic", int32(r), "")
	}
	works := usable(results[:min(max(int(*got), 0), n)], p.desc.MaxWorkspaceBytes)
	if len(works) == 0 {
		return nil, p.none()
	}
	return works, nil
}

// usable returns the successful results with a workspace of at most bytes.
func usable(results []heuristicResult, bytes int64) []heuristicResult {
	var works []heuristicResult
	for _, r := range results {
		if r.state == success && r.workspace <= uint64(bytes) {
			works = append(works, r)
		}
	}
	return works
}

// details are the attributes of an algorithm: cublasLtMatmulAlgoConfigAttributes_t, with the bytes
// of the values.
var details = [...]struct {
	name  string
	attr  int32
	bytes uint64
}{
	{"algorithm", 0, 4},
	{"tile", 1, 4},
	{"stages", 6, 4},
	{"split-k", 2, 4},
	{"reduction", 3, 4},
	{"swizzle", 4, 4},
	{"option", 5, 4},
	{"inner shape", 7, 2},
	{"cluster", 8, 2},
}

// detail returns the algorithm in words, with the library's numbers: "algorithm 66, tile 20, stages
// 35, split-k 1".
func (p *Plan) detail() string {
	var words []string
	for _, d := range details {
		var v, n uint64
		if r := p.h.lib.ltT.algoGet(&p.algo, d.attr, unsafe.Pointer(&v), d.bytes, &n); r == success && (v != 0 || d.attr < 2) {
			words = append(words, fmt.Sprintf("%s %d", d.name, v))
		}
	}
	return strings.Join(words, ", ")
}

// time returns the time of each proposal, 0 for one that does not work.
func (p *Plan) time(proposals []heuristicResult) (times []time.Duration, err error) {
	s, err := p.h.dev.NewStream(0)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	watch, err := cuda.NewStopwatch(s)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, watch.Close()) }()
	o, err := p.rooms(watch, proposals)
	if err != nil {
		return nil, fmt.Errorf("cublas: timing candidates needs memory for the operands: set Candidates to 0: %w", err)
	}
	take := func(i int) error {
		p.take(&proposals[i])
		return nil
	}
	queue := func() error {
		if p.desc.Before != nil {
			if err := p.desc.Before(s, o); err != nil {
				return err
			}
		}
		return p.queue(s, o)
	}
	return watch.Compare(len(proposals), take, queue, func(err error) bool {
		var refused *Error
		return errors.As(err, &refused) && (refused.Code == notSupported || refused.Code == invalidValue)
	})
}

// rooms allocates memory for the operands and the workspace of the proposals.
func (p *Plan) rooms(watch *cuda.Stopwatch, proposals []heuristicResult) (o Operands, err error) {
	var workspace uint64
	for _, r := range proposals {
		workspace = max(workspace, r.workspace)
	}
	bytes := [...]int64{3: int64(p.desc.BiasLen()) * int64(p.desc.Gemm.out().Bytes()), 4: p.desc.AuxBytes(), 5: int64(workspace)}
	bytes[0], bytes[1], bytes[2] = p.desc.Gemm.Bytes()
	for i, to := range [...]*uintptr{&o.A, &o.B, &o.C, &o.Bias, &o.Aux, &o.Workspace} {
		if *to, err = watch.Room(bytes[i]); err != nil {
			return o, err
		}
	}
	return o, nil
}
