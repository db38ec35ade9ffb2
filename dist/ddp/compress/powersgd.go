package compress

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

// PowerSGD is a hook that sends each parameter's gradient as two thin matrices (Vogels, Karimireddy
// and Jaggi, PowerSGD: Practical Low-Rank Gradient Compression for Distributed Optimization,
// NeurIPS 2019). A parameter of shape (n, ...) is a matrix M of n rows and m columns. With Q of m
// rows and Rank columns from the previous step, a step is
//
//	M = share*gradient + residual
//	P = sum over the ranks of M Q       then orthonormalized
//	Q = sum over the ranks of M' P
//	gradient = P Q'                     residual = M - P (M' P)' of this rank
//
// which costs Rank*(n+m) elements on the wire instead of n*m. A parameter is sent unchanged unless
// that is at most half; biases and norms are. P and Q are in the gradient's dtype, with the same
// bits on all ranks.
//
// The gradient becomes the best approximation of rank Rank once Q has turned to it, after some
// steps. The rest of a gradient is in the residual, and is sent in later steps. So the number of
// steps and the learning rate hardly change where gradients are nearly of low rank, as with large
// batches. Momentum or Adam may need a few more steps, since they get parts of gradients late.
// Without residuals training converges to another place in general.
//
// A step with a gradient that is not finite is undone, see Undoer. If its P is not finite, the
// parameter's residual stays; residuals of other parameters become 0 on all ranks. A column of Q is
// scaled by a power of two to a largest element less than 1, which changes no bits of P's base. So
// one step of huge gradients does not make the next one overflow.
type PowerSGD struct {
	Rank            int    // of the approximation; 0 means 4
	Seed            uint64 // of the first Q
	NoErrorFeedback bool   // drop the error of an approximation; otherwise it takes 4 bytes for each element, on every rank
	NoWarmStart     bool   // begin every step with a random Q
}

// defaultPowerRank is the paper's rank for language models, about the least that keeps accuracy
// there.
const defaultPowerRank = 4

// Validate checks p.
//
// Errors: dist.ErrInvalid for a negative rank.
func (p PowerSGD) Validate() error {
	if p.Rank < 0 {
		return fmt.Errorf("powersgd: %w: rank %d, want at least 1, or 0 for %d", dist.ErrInvalid, p.Rank, defaultPowerRank)
	}
	return nil
}

func (p PowerSGD) rank() int {
	if p.Rank == 0 {
		return defaultPowerRank
	}
	return p.Rank
}

// String returns "powersgd rank 4 seed 0", and the disabled features.
func (p PowerSGD) String() string {
	s := fmt.Sprintf("powersgd rank %d seed %d", p.rank(), p.Seed)
	if p.NoErrorFeedback {
		s += " without error feedback"
	}
	if p.NoWarmStart {
		s += " without warm start"
	}
	return s
}

// Elementwise returns false.
func (p PowerSGD) Elementwise() bool { return false }

// Codec implements Hook.
func (p PowerSGD) Codec(b Bucket) (Codec, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	if b.DType == tensor.F64 {
		return newPower[float64](p, b), nil
	}
	return newPower[float32](p, b), nil
}

// sizes implements sized: Q of each matrix, the number of the step, and residuals.
func (p PowerSGD) sizes(b Bucket) (messages []Message, kept int64) {
	var first, second int
	for _, q := range b.Params {
		n, m, r := p.cut(q)
		if r == 0 {
			first += q.Len()
			continue
		}
		first += n * r
		second += m * r
		kept += int64(m*r*b.DType.Size()) + 8
		if !p.NoErrorFeedback {
			kept += 4 * int64(n*m)
		}
	}
	messages = []Message{{b.DType, first}}
	if second > 0 {
		messages = append(messages, Message{b.DType, second})
	}
	return messages, kept
}

// power is PowerSGD for a bucket of T.
type power[T float32 | float64] struct {
	hook     PowerSGD
	dtype    tensor.DType
	matrices []*matrix[T]
	plain    []run0 // runs of the bucket that are sent unchanged, after the matrices' P
	first    int    // elements of round 0
	second   int    // of round 1; 0 for a bucket without matrices
}

// run0 is a run of a bucket's elements, and its offset in the message of round 0.
type run0 struct{ from, to, at int }

// matrix is one parameter that is compressed.
type matrix[T float32 | float64] struct {
	param    Param
	n, m, r  int
	pAt, qAt int       // in the messages
	p, q     []T       // [r][n], orthonormal columns; [r][m], the sum of the last step
	residual []float32 // nil without error feedback
	columns  []float64 // [r][n], for orthonormal
	row      []T       // of m, for the residual
	source   rand.PCG
	random   *rand.Rand // from source
	name     uint64     // of the parameter, hashed
	step     uint64
	lost     bool // this step has a number that is not finite
	moved    bool // the residual is of this step
}

func newPower[T float32 | float64](hook PowerSGD, b Bucket) *power[T] {
	x := &power[T]{hook: hook, dtype: b.DType}
	for _, p := range b.Params {
		n, m, r := hook.cut(p)
		if r == 0 {
			continue
		}
		mx := &matrix[T]{
			param: p, n: n, m: m, r: r, pAt: x.first, qAt: x.second,
			p: make([]T, n*r), q: make([]T, m*r), columns: make([]float64, n*r), row: make([]T, m), name: nameHash(p.Name),
		}
		mx.random = rand.New(&mx.source)
		if !hook.NoErrorFeedback {
			mx.residual = make([]float32, n*m)
		}
		mx.seed(hook.Seed)
		x.matrices = append(x.matrices, mx)
		x.first += n * r
		x.second += m * r
	}
	for _, p := range b.Params {
		if _, _, r := hook.cut(p); r == 0 {
			x.plain = append(x.plain, run0{p.Offset, p.Offset + p.Len(), x.first})
			x.first += p.Len()
		}
	}
	return x
}

// cut returns the rows and columns of a parameter's matrix and the rank of its approximation; 0 if
// it is sent unchanged.
func (p PowerSGD) cut(param Param) (n, m, r int) {
	if len(param.Shape) < 2 {
		return 0, 0, 0
	}
	n = param.Shape[0]
	m = param.Len() / max(n, 1)
	r = min(p.rank(), n, m)
	if 2*r*(n+m) > n*m {
		return 0, 0, 0
	}
	return n, m, r
}

// seed fills zero columns of q, which would stay zero, with normal numbers. They depend on the
// parameter's name, the seed and the step only, and are thus equal on all ranks.
func (x *matrix[T]) seed(seed uint64) {
	x.source.Seed(seed^x.step<<32, x.name)
	for c := range x.r {
		column := x.q[c*x.m:][:x.m]
		if slices.ContainsFunc(column, func(v T) bool { return v != 0 }) {
			continue
		}
		for j := range column {
			column[j] = T(x.random.NormFloat64())
		}
	}
}

// nameHash returns a number that depends on a name.
func nameHash(name string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name)) // never fails
	return h.Sum64()
}

// Messages implements Codec.
func (x *power[T]) Messages() []Message {
	all := []Message{{x.dtype, x.first}}
	if x.second > 0 {
		all = append(all, Message{x.dtype, x.second})
	}
	return all
}

// elements returns the elements of two buffers.
func elements[T float32 | float64](a, b tensor.Buffer) (as, bs []T, err error) {
	if as, err = tensor.Data[T](a); err == nil {
		bs, err = tensor.Data[T](b)
	}
	return as, bs, err
}

// Compress implements Codec.
func (x *power[T]) Compress(round int, share float64, bucket tensor.Buffer, messages []tensor.Buffer) error {
	grads, first, err := elements[T](bucket, messages[0])
	if err != nil {
		return err
	}
	f := T(share)
	if round == 0 {
		for _, mx := range x.matrices {
			mx.product(grads[mx.param.Offset:][:mx.n*mx.m], f, first[mx.pAt:][:mx.n*mx.r])
		}
		for _, p := range x.plain {
			to := first[p.at:][:p.to-p.from]
			for i, v := range grads[p.from:p.to] {
				to[i] = f * v
			}
		}
		return nil
	}
	second, err := tensor.Data[T](messages[1])
	if err != nil {
		return err
	}
	for _, mx := range x.matrices {
		mx.project(grads[mx.param.Offset:][:mx.n*mx.m], first[mx.pAt:][:mx.n*mx.r], second[mx.qAt:][:mx.m*mx.r])
	}
	return nil
}

// Decompress implements Codec.
func (x *power[T]) Decompress(bucket tensor.Buffer, messages []tensor.Buffer) error {
	grads, first, err := elements[T](bucket, messages[0])
	if err != nil {
		return err
	}
	for _, p := range x.plain {
		copy(grads[p.from:p.to], first[p.at:])
	}
	if x.second == 0 {
		return nil
	}
	second, err := tensor.Data[T](messages[1])
	if err != nil {
		return err
	}
	for _, mx := range x.matrices {
		mx.restore(grads[mx.param.Offset:][:mx.n*mx.m], second[mx.qAt:][:mx.m*mx.r])
		mx.step++
		if x.hook.NoWarmStart {
			clear(mx.q)
		}
		mx.seed(x.hook.Seed)
	}
	return nil
}
