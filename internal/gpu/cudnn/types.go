package cudnn

// DType is the element type of images and filters. The zero value is invalid.
type DType uint8

// Element types.
const (
	F32 DType = iota + 1
	F64
	F16
	BF16
)

// dtypes has name, bytes, cudnnDataType_t, and that of sums, by DType.
var dtypes = [...]struct {
	name       string
	bytes      int
	code, sums int32
}{
	{"invalid", 0, -1, -1},
	F32:  {"f32", 4, dataFloat, dataFloat},
	F64:  {"f64", 8, dataDouble, dataDouble},
	F16:  {"f16", 2, dataHalf, dataFloat},
	BF16: {"bf16", 2, dataBFloat16, dataFloat},
}

// known returns d, or 0 if d is unknown.
func (d DType) known() DType {
	if int(d) < len(dtypes) {
		return d
	}
	return 0
}

// Bytes returns the size of an element.
func (d DType) Bytes() int { return dtypes[d.known()].bytes }

// String returns the name, such as "f32".
func (d DType) String() string { return dtypes[d.known()].name }

// Math is the precision of products.
type Math uint8

// Precisions.
const (
	Full Math = iota // elements are multiplied as they are
	TF32             // elements of F32 may be rounded to TF32 (10 bits of fraction) for tensor cores
)

// String returns "tf32" or "full".
func (m Math) String() string {
	if m == TF32 {
		return "tf32"
	}
	return "full"
}

// mathOf returns the cudnnMathType_t with which algorithms are proposed.
func mathOf(d DType, m Math) int32 {
	switch {
	case d == F16 || d == BF16:
		return mathTensorOp
	case d == F32 && m == Full:
		return mathFMA
	}
	return mathDefault
}

// mathFor returns the cudnnMathType_t for an algorithm that cuDNN proposes with proposed, and
// whether to use it. Full products of float32 always use FMA.
func mathFor(d DType, m Math, proposed int32) (int32, bool) {
	if want := mathOf(d, m); want == mathFMA {
		return want, proposed == mathFMA || proposed == mathDefault
	}
	// Rounding elements to a narrower type needs a request.
	return proposed, proposed != mathTensorOpConvert
}

// Constants of cudnn_graph.h, cudnn_ops.h and cudnn_cnn.h.
const (
	success = 0

	dataFloat    = 0
	dataDouble   = 1
	dataHalf     = 2
	dataBFloat16 = 9

	mathDefault         = 0
	mathTensorOp        = 1
	mathTensorOpConvert = 2
	mathFMA             = 3

	formatNCHW       = 0
	crossCorrelation = 1
	deterministic    = 1 // CUDNN_DETERMINISTIC
	propagateNaN     = 1 // CUDNN_PROPAGATE_NAN

	poolMax              = 0
	poolAverageInclude   = 1
	poolAverageExclude   = 2
	poolMaxDeterministic = 3
)

// Codes of cudnnStatus_t. The thousands are the kind.
const (
	statusNotInitialized  = 1001
	statusVersionMismatch = 1002 // CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH
	statusLoadingFailed   = 1008 // CUDNN_STATUS_SUBLIBRARY_LOADING_FAILED
	statusBadParam        = 2000
	statusNotSupported    = 3000
	statusIncompatDriver  = 3005 // CUDNN_STATUS_NOT_SUPPORTED_INCOMPATIBLE_CUDA_DRIVER
	statusArchMismatch    = 3007
	statusNoSublibrary    = 3009 // CUDNN_STATUS_NOT_SUPPORTED_SUBLIBRARY_UNAVAILABLE
	statusInternal        = 4000
	statusHostMemory      = 4003
	statusDeviceMemory    = 4004
	statusExecution       = 5000
)

// perf is cudnnConvolutionFwdAlgoPerf_t, and the same type for the other passes.
type perf struct {
	algo        int32
	status      int32
	ms          float32 // -1 if not measured
	memory      uint64  // bytes
	determinism int32
	math        int32
	reserved    [3]int32
}
