package program

import "github.com/symgrad/symgrad/dist"

// Op is the operation of a step: one of the pointer types of this file, or Integer. Their comments
// define In and Out and the spaces of all views. "Packed" views are in C order without gaps.
type Op interface {
	String() string // "map (128, 512): add, maximum"
	op()
}

// Map computes Out[k] = register Stores[k], for every index of Space. Load(i) reads In[i]. An Out
// may be an In with the same View, since each element is read before it is written. Outs do not
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

// Reduction combines elements.
type Reduction uint8

// The reductions. Accumulators are f32 for f32, f16 and bf16, and f64 for f64.
const (
	Sum Reduction = iota
	Max
)

// Instr is one scalar operation. A, B and C are numbers of earlier registers; A of Load is the
// number of an In. Arithmetic is f64 if any In or Out of the step is f64, else f32. f16 and bf16
// are converted at loads and stores. Integers are loaded as floating-point numbers and stored
// truncated toward zero. A load that is stored directly in the same dtype keeps its bits.
type Instr struct {
	Op      Scalar
	A, B, C int
	Value   float64 // of Const
	Key     uint64  // of Rand: distinguishes its uses
	PerUnit int     // of Rand: elements of the space for one sample
}

// Scalar is a scalar operation. Comparisons return 1 or 0.
type Scalar uint8

// The scalar operations. Rand is a uniform number in [0, 1), (w >> 8) / 2^24, even for f64. w is
// word 0 of Philox-4x32-10 with key Key and counter (first sample*PerUnit + index in Space, step);
// each has 64 bits, low word first. So a number depends on its use, the step and the place in the
// whole batch. Sign(0) is 0, Maximum and Minimum of a NaN are NaN, Softplus is log(1 + exp),
// Inverse is 1/x. ToBF16 and ToF16 round to nearest, ties to even, and convert back; steps that are
// joined keep them, unlike a load of a stored result. Product is Mul whose result is rounded before
// an Add: a GPU may compute other products and sums with one rounding.
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
	Erf // the error function
	ToBF16
	ToF16
	Add
	Sub
	Mul
	Product
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

// Window describes a window of R by S elements, Dilation apart, that moves over images (N, C, H,
// W).
type Window struct {
	N, C, H, W       int
	R, S             int
	PadH, PadW       int // padding before the image; that after it follows from OutH and OutW
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

// Col2Im is the adjoint of Im2Col: Out[0] (N, C, H, W) sums the elements of In[0] that come from
// the same element of the image; all packed.
type Col2Im struct{ Window }

// MaxPool is Out[0] (N, C, OutH, OutW) = the maximum of each window of In[0] (N, C, H, W); all
// packed. Padding is -inf. As with Maximum, a window with a NaN gives NaN, even if it has +inf.
type MaxPool struct{ Window }

// MaxPoolGrad adds each element of In[2] = dy to the first largest element of its window in In[0] =
// x, in C order; In[1] = y. Out[0] has the shape of x; all packed. A window whose y is NaN gets
// nothing, as NaN equals no element.
type MaxPoolGrad struct{ Window }

// AvgPool is the mean over R*S elements, padding counted as zeros; all packed.
type AvgPool struct{ Window }

// AvgPoolGrad is the gradient of AvgPool: Out[0] (N, C, H, W) from In[0] = dy; all packed.
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

// Attention is Out[0] (Batch, Heads, M, Depth) = softmax(Scale*In[0]*In[1]ᵀ + In[3]) * In[2] for
// each head. In[0] (Batch, Heads, M, Depth) has queries, In[1] and In[2] (Batch, Heads, N, Depth)
// keys and values. The bias In[3] (M, N) is optional; finite biases below LeastBias count as
// LeastBias. With a bias, In[4] and In[5] (M/AttentionTile, N/AttentionTile) have its largest
// element and its largest absolute value in each tile: a tile of -inf only need not be computed.
// Out[1] (Batch, Heads, M) is optional: the logarithms of the sums of exponentials. Views of four
// dimensions are lines, the others packed.
type Attention struct {
	Batch, Heads, M, N, Depth int
	Scale                     float64
}

// AttentionGrad computes the gradients Out[0], Out[1] and Out[2] of the queries In[0], keys In[1]
// and values In[2] of Attention. In[3] is the gradient of its output, In[4] its Out[1], and In[5]
// (Batch, Heads, M) the sum of output times In[3] for each row. In[6] to In[8] are optional: In[3]
// to In[5] of Attention.
type AttentionGrad struct{ Attention }

// AttentionTile is the edge of the tiles of Attention's In[4] and In[5] and of the kernels. It
// divides M and N.
const AttentionTile = 64

// LeastBias is the least finite number that Attention adds to scores. A score with it has no weight
// next to scores without it. In a row that finite numbers mask completely, all scores still count:
// f32 holds score plus LeastBias to 1/1024, so weights are right to a tenth of a percent.
const LeastBias = -1 << 14

// CrossEntropy is the mean over Rows of -log softmax(x)[label]. In[0] = x (Rows, Classes), In[1] =
// targets of the same shape (non-negative weights, e.g. one-hot divided by rows). Out[0], a scalar,
// = -sum(targets * log softmax(x)). Out[1] (Rows, Classes) is optional: d Out[0] / d x =
// softmax(x)*sum_row(targets) - targets. All packed.
type CrossEntropy struct{ Rows, Classes int }

// SparseCrossEntropy is the cross-entropy of rows with one label each. In[0] = x (Rows, Classes),
// In[1] = labels (Rows) of any integer dtype, In[2] = a number, the weight of a row. A row whose
// label is Ignore does not count. Out[0], a scalar, = In[2] times the sum over rows that count of
//
//	(1-Smoothing)*(lse - x[label]) + Smoothing*(lse - mean(x))
//
// with lse = log sum exp(x). Out[1] (Rows, Classes) is optional: d Out[0] / d x, times Scale; zeros
// in rows that do not count. It may be In[0]. Any other label outside 0 to Classes-1 stops the run
// with an error that names its row, counted from First. All packed.
type SparseCrossEntropy struct {
	Rows, Classes    int
	First            int
	Ignore           int
	Smoothing, Scale float64
}

// Gather is Out[0] (Outer, Count, Inner) = rows In[1][k] of In[0] (Outer, Axis, Inner) along the
// middle. In[1] (Count) has any numeric dtype. An index out of range stops the run with an error
// that names it. All packed.
type Gather struct{ Outer, Axis, Inner, Count int }

// GatherGrad is the adjoint of Gather: Out[0] (Outer, Axis, Inner) = the sum of rows of In[0] = dy
// (Outer, Count, Inner) by the indices In[1], in their order; all packed.
type GatherGrad struct{ Outer, Axis, Inner, Count int }

// BatchNorm normalizes In[0] (N, C, Spatial) over N and Spatial: Out[0] = (x - mean) * rstd. Out[1]
// and Out[2] (C) are mean and rstd = 1/sqrt(var + Epsilon), with the variance divided by N*Spatial,
// for the gradient. In[1] and In[2] (C) are the running mean and variance: when Training, Out[3]
// and Out[4], the same views, become Momentum*old + (1-Momentum)*new, the new variance times
// Unbias. Otherwise they replace the batch's statistics, and there are no Outs after Out[2].
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

// Collective is a collective of dist on group number Group of the run: Out[0] from In[0], both
// packed and whole values. In place they are the same view. An In[1], of the collective's dtype, is
// the factor (Scalar) of PreMulSum.
//
// With Part, In[0] of an AllGather or Out[0] of a ReduceScatter is Part elements of its value. If
// both sides are one value, that is in place, and the part is this rank's own. With Whole, too, the
// other side is Whole elements of its value.
type Collective struct {
	Kind  dist.Kind
	Red   dist.RedOp
	Root  int
	Group int
	Part  int  // elements; 0: the whole value
	Whole int  // elements, with Part; 0: the whole value
	Fetch bool // AllGather of sharded parameters; may run earlier and repeatedly, equally on all ranks: see Rematerialize
	Early bool // when the program begins, the input is ready and the output free, on all ranks
}

// Call is host function number Func of the run, with the memory of all In and Out, packed. With
// Copies the function touches only its In and Out, so a device may pass it copies. Without Copies
// only the host back half runs it.
type Call struct {
	Func   int
	Label  string
	Copies bool
}

func (*Map) op()                {}
func (*Reduce) op()             {}
func (*MatMul) op()             {}
func (*Conv) op()               {}
func (*ConvGradInput) op()      {}
func (*ConvGradFilter) op()     {}
func (*Im2Col) op()             {}
func (*Col2Im) op()             {}
func (*MaxPool) op()            {}
func (*MaxPoolGrad) op()        {}
func (*AvgPool) op()            {}
func (*AvgPoolGrad) op()        {}
func (*Softmax) op()            {}
func (*SoftmaxGrad) op()        {}
func (*Attention) op()          {}
func (*AttentionGrad) op()      {}
func (*CrossEntropy) op()       {}
func (*SparseCrossEntropy) op() {}
func (*Gather) op()             {}
func (*GatherGrad) op()         {}
func (*BatchNorm) op()          {}
func (*BatchNormGrad) op()      {}
func (*Collective) op()         {}
func (*Call) op()               {}
