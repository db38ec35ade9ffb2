package program

import "github.com/symgrad/symgrad/dist"

// Op is the operation of a step: one of the pointer types of this file, or Integer. Each type
// defines its In and Out. All views of a step are over the spaces named there. "Packed" views are
// in C order without gaps.
type Op interface {
	String() string // "map (128, 512): add, maximum"
	op()
}

// Map computes Out[k] = register Stores[k], for every index of Space. Load(i) reads In[i].
// An Out may be an In with the same View: element by element, reads come before writes. Outs do not
// overlap otherwise.
type Map struct {
	Space  []int
	Code   []Instr // register r is the result of Code[r]
	Stores []int   // a register for each Out
}

// Reduce is Map followed by a reduction over the axes of Space where Reduced is true: Out[0] over
// Space, with stride 0 on those axes, gets the reduction of register len(Code)-1. An empty
// reduction is 0 for Sum and -inf for Max.
type Reduce struct {
	Space   []int
	Reduced []bool
	Red     Reduction
	Code    []Instr
}

// Reduction is how elements are combined.
type Reduction uint8

// The reductions. Accumulators are f32 for f32, f16 and bf16, and f64 for f64.
const (
	Sum Reduction = iota
	Max
)

// Instr is one scalar operation; A, B, C are numbers of earlier registers, or of an In for Load.
// Arithmetic is f64 if any In or Out of the step is f64, else f32; f16 and bf16 are converted where
// they are loaded and stored, integers are loaded as floating-point numbers and stored truncated
// toward zero. A value that is only loaded and stored, with one dtype, is copied bit by bit.
type Instr struct {
	Op      Scalar
	A, B, C int
	Value   float64 // of Const
	Key     uint64  // of Rand: of this use of it
	PerUnit int     // of Rand: elements of the space for one sample
}

// Scalar is a scalar operation. Comparisons give 1 or 0.
type Scalar uint8

// The scalar operations. Rand is a uniform number in [0, 1) that depends on Key, the number of the
// step, and the number of the element in the whole batch: Philox-4x32-10 with key Key and counter
// (first sample*PerUnit + index in Space, step), each 64 bits with the low word first; the number
// is (word 0 of the result >> 8) / 2^24, for f64 too. Sign(0) is 0, Maximum and Minimum of a NaN
// are NaN, Softplus is log(1 + exp), Inverse is 1/x.
const (
	Load Scalar = iota
	Const
	Rand
	Neg
	Abs
	Sign
	Ceil
	Floor
	Sin
	Cos
	Exp
	Log
	Log2
	Log1p
	Expm1
	Square
	Cube
	Sqrt
	Rsqrt
	Inverse
	Tanh
	Sigmoid
	Softplus
	Add
	Sub
	Mul
	Div
	Pow
	Maximum
	Minimum
	Less
	LessEqual
	Greater
	GreaterEqual
	Equal
	NotEqual
	Select // B if A is not 0, else C
)

// MatMul is Out[0] (Batch, M, N) = Alpha * In[0] (Batch, M, K) times In[1] (Batch, K, N), plus
// Beta * Out[0]. Of the last two strides of each view one is 1 (or its dimension is 1), so that a
// transposed matrix is a view; the batch stride may be 0. Beta is 0 or 1; with 0, Out is not read.
type MatMul struct {
	Batch, M, N, K int
	Alpha, Beta    float64
}

// Window is how a window moves over images (N, C, H, W): of R by S elements, Dilation apart.
type Window struct {
	N, C, H, W       int
	R, S             int
	PadH, PadW       int // before; OutH and OutW say how far it goes
	StrideH, StrideW int
	DilationH        int
	DilationW        int
	OutH, OutW       int
}

// Conv is Out[0] (N, K, OutH, OutW) = In[0] (N, C, H, W) correlated with In[1] (K, C, R, S); all
// packed.
type Conv struct {
	Window
	K int
}

// ConvGradInput is the gradient of Conv with respect to its In[0], (N, C, H, W), from In[0] = dy
// (N, K, OutH, OutW) and In[1] = filter; all packed.
type ConvGradInput struct {
	Window
	K int
}

// ConvGradFilter is the gradient with respect to the filter (K, C, R, S) from In[0] = x and In[1] =
// dy; all packed.
type ConvGradFilter struct {
	Window
	K int
}

// Im2Col is Out[0] (N, OutH, OutW, C*R*S), whose rows are the windows of In[0] (N, C, H, W), zeros
// outside; all packed.
type Im2Col struct{ Window }

// Col2Im is the adjoint of Im2Col: an element of Out[0] (N, C, H, W) is the sum of its elements in
// In[0]; all packed.
type Col2Im struct{ Window }

// MaxPool is Out[0] (N, C, OutH, OutW) = the largest of each window of In[0] (N, C, H, W); all
// packed. Padding is -inf. The largest is that of Maximum: NaN if one of the window is NaN, also
// with +inf in it.
type MaxPool struct{ Window }

// MaxPoolGrad gives each element of In[2] = dy to the first largest element of its window in In[0]
// = x, in C order; In[1] = y. Out[0] is like x; all packed. Where y is NaN, which is equal to none,
// the window gets nothing.
type MaxPoolGrad struct{ Window }

// AvgPool is the mean over R*S elements, padding counted as zeros; all packed.
type AvgPool struct{ Window }

// AvgPoolGrad is its gradient: Out[0] (N, C, H, W) from In[0] = dy; all packed.
type AvgPoolGrad struct{ Window }

// Softmax is over the middle of (Outer, Axis, Inner): Out[0] = exp(x - max) / sum, or its
// logarithm; all packed.
type Softmax struct {
	Outer, Axis, Inner int
	Log                bool
}

// SoftmaxGrad is dx from In[0] = y, the result of Softmax, and In[1] = dy: y*(dy - sum(y*dy)), or
// dy - exp(y)*sum(dy) for Log.
type SoftmaxGrad struct {
	Outer, Axis, Inner int
	Log                bool
}

// Attention is Out[0] (Batch, Heads, M, Depth) = softmax(Scale*In[0]*In[1]ᵀ + In[3]) * In[2] of
// each head, from queries In[0] (Batch, Heads, M, Depth), keys In[1] and values In[2] (Batch,
// Heads, N, Depth), and In[3] (M, N), if present. Then In[4] and In[5] are its largest
// element, and the largest of its absolute values, in each tile of AttentionTile by AttentionTile
// elements (M/AttentionTile, N/AttentionTile): tiles of -inf alone need not be computed. Finite
// numbers of In[3] below LeastBias count as that. Out[1] (Batch, Heads, M), if there, is the
// logarithms of the sums of exponentials. Those of four dimensions are lines, the others packed.
type Attention struct {
	Batch, Heads, M, N, Depth int
	Scale                     float64
}

// AttentionGrad is the gradients Out[0], Out[1] and Out[2] of the queries In[0], the keys In[1] and
// the values In[2] of Attention, from In[3], that of its output, In[4], its Out[1], and In[5]
// (Batch, Heads, M), of each row the sum of output times In[3]. In[6] to In[8], if there, are In[3]
// to In[5] of Attention.
type AttentionGrad struct{ Attention }

// AttentionTile is the edge of the tiles that an Attention with an In[3] has, and of those that
// kernels go by; it divides M and N.
const AttentionTile = 64

// LeastBias is the least finite number that Attention adds to scores. A score with it has no weight
// next to others. In a row that is masked throughout by finite numbers, all scores still count: f32
// holds them, with LeastBias added, to 1/1024, and so their weights to a tenth of a percent.
const LeastBias = -1 << 14

// CrossEntropy is the mean over Rows of -log softmax(x)[label], fused: In[0] = x (Rows, Classes),
// In[1] = targets of the same shape (any non-negative weights, e.g. one-hot divided by rows):
// Out[0], a scalar, = -sum(targets * log softmax(x)), and Out[1] (Rows, Classes), if there, = d
// Out[0] / d x = softmax(x)*sum_row(targets) - targets; all packed.
type CrossEntropy struct{ Rows, Classes int }

// Gather is Out[0] (Outer, Count, Inner) = rows In[1][k] of In[0] (Outer, Axis, Inner) along the
// middle. In[1] (Count) is of any numeric dtype; an index out of range stops the run with an error
// that names it. All packed.
type Gather struct{ Outer, Axis, Inner, Count int }

// GatherGrad is its adjoint: Out[0] (Outer, Axis, Inner) = the sum of rows of In[0] = dy (Outer,
// Count, Inner) by In[1] = the indices, in their order; all packed.
type GatherGrad struct{ Outer, Axis, Inner, Count int }

// BatchNorm normalizes In[0] (N, C, Spatial) over N and Spatial: Out[0] = (x - mean) * rstd. Out[1]
// and Out[2] (C) are mean and rstd = 1/sqrt(var + Epsilon), with the variance divided by N*Spatial,
// for the gradient. In[1] and In[2] (C) are the running mean and variance: when Training, Out[3]
// and Out[4], the same views, become Momentum*old + (1-Momentum)*new, the new variance times
// Unbias; otherwise they replace the batch's and there are no Outs after Out[2].
type BatchNorm struct {
	N, C, Spatial     int
	Momentum, Epsilon float64
	Unbias            float64
	Training          bool
}

// BatchNormGrad is dx from In[0] = dy, In[1] = x (N, C, Spatial), In[2] = mean, In[3] = rstd; all
// packed. Without Training mean and rstd are constants: dx = dy*rstd.
type BatchNormGrad struct {
	N, C, Spatial int
	Training      bool
}

// Collective is one collective of dist on group number Group of the run: Out[0] from In[0], both
// packed and all of their values. In place they are the same view. With Part, In[0] of an
// AllGather, or Out[0] of a ReduceScatter, is so many elements of its value, which may be the other
// side's: in place, then, and this rank's own part. With Whole, too, the other side is so many
// elements of its value. Scalar is the factor of PreMulSum if there is an In[1], of the
// collective's dtype. An AllGather with Fetch is of parameters with a part on each rank: it may be
// done earlier and more than once, and the programs of all ranks agree on that; see Rematerialize.
// For one that is Early, the input is ready and the output free, on all ranks, when the program
// begins.
type Collective struct {
	Kind  dist.Kind
	Red   dist.RedOp
	Root  int
	Group int
	Part  int // 0: all of the value
	Whole int // with Part; 0: all of the value
	Fetch bool
	Early bool
}

// Call is host function number Func of the run, with the memory of all In and Out, packed. With
// Copies the function touches nothing but its In and Out, so that a device may give it copies;
// without, the host back half alone has it.
type Call struct {
	Func   int
	Label  string
	Copies bool
}

func (*Map) op()            {}
func (*Reduce) op()         {}
func (*MatMul) op()         {}
func (*Conv) op()           {}
func (*ConvGradInput) op()  {}
func (*ConvGradFilter) op() {}
func (*Im2Col) op()         {}
func (*Col2Im) op()         {}
func (*MaxPool) op()        {}
func (*MaxPoolGrad) op()    {}
func (*AvgPool) op()        {}
func (*AvgPoolGrad) op()    {}
func (*Softmax) op()        {}
func (*SoftmaxGrad) op()    {}
func (*Attention) op()      {}
func (*AttentionGrad) op()  {}
func (*CrossEntropy) op()   {}
func (*Gather) op()         {}
func (*GatherGrad) op()     {}
func (*BatchNorm) op()      {}
func (*BatchNormGrad) op()  {}
func (*Collective) op()     {}
func (*Call) op()           {}
