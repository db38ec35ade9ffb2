package hostexec

import (
	"math"
	"unsafe"

	"github.com/symgrad/symgrad/tensor"
)

// number is the element types that Go converts.
type number interface {
	float32 | float64 | int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64
}

// loadRun sets dst[i] to element i*step at p, converted to T.
func loadRun[T real](dst []T, p unsafe.Pointer, dt tensor.DType, step int) {
	switch dt {
	case tensor.F16:
		for i := range dst {
			dst[i] = T((*(*tensor.Float16)(unsafe.Add(p, 2*i*step))).Float32())
		}
	case tensor.BF16:
		for i := range dst {
			dst[i] = T((*(*tensor.BFloat16)(unsafe.Add(p, 2*i*step))).Float32())
		}
	case tensor.F32:
		loadNumbers[T, float32](dst, p, step)
	case tensor.F64:
		loadNumbers[T, float64](dst, p, step)
	case tensor.I8:
		loadNumbers[T, int8](dst, p, step)
	case tensor.I16:
		loadNumbers[T, int16](dst, p, step)
	case tensor.I32:
		loadNumbers[T, int32](dst, p, step)
	case tensor.I64:
		loadNumbers[T, int64](dst, p, step)
	case tensor.U8:
		loadNumbers[T, uint8](dst, p, step)
	case tensor.U16:
		loadNumbers[T, uint16](dst, p, step)
	case tensor.U32:
		loadNumbers[T, uint32](dst, p, step)
	case tensor.U64:
		loadNumbers[T, uint64](dst, p, step)
	}
}

func loadNumbers[T real, E number](dst []T, p unsafe.Pointer, step int) {
	var e E
	bytes := step * int(unsafe.Sizeof(e))
	switch {
	case step == 0:
		x := T(float64(*(*E)(p)))
		for i := range dst {
			dst[i] = x
		}
	case unsafe.Sizeof(e) == 8: // 64-bit integers are converted through float64, with any stride
		for i := range dst {
			dst[i] = T(float64(*(*E)(unsafe.Add(p, i*bytes))))
		}
	default:
		for i := range dst {
			dst[i] = T(*(*E)(unsafe.Add(p, i*bytes)))
		}
	}
}

// storeRun stores n elements of src at p, step elements apart. With mask 0 all are src[0].
func storeRun[T real](p unsafe.Pointer, dt tensor.DType, step int, src []T, n, mask int) {
	switch dt {
	case tensor.F16:
		for i := range n {
			*(*tensor.Float16)(unsafe.Add(p, 2*i*step)) = tensor.ToFloat16(float32(src[i&mask]))
		}
	case tensor.BF16:
		for i := range n {
			*(*tensor.BFloat16)(unsafe.Add(p, 2*i*step)) = tensor.ToBFloat16(float32(src[i&mask]))
		}
	case tensor.F32:
		storeNumbers[T, float32](p, step, src, n, mask)
	case tensor.F64:
		storeNumbers[T, float64](p, step, src, n, mask)
	case tensor.I8:
		storeIntegers[T, int8](p, step, src, n, mask, math.MinInt8, math.MaxInt8)
	case tensor.I16:
		storeIntegers[T, int16](p, step, src, n, mask, math.MinInt16, math.MaxInt16)
	case tensor.I32:
		storeIntegers[T, int32](p, step, src, n, mask, math.MinInt32, math.MaxInt32)
	case tensor.I64:
		storeIntegers[T, int64](p, step, src, n, mask, math.MinInt64, math.MaxInt64)
	case tensor.U8:
		storeIntegers[T, uint8](p, step, src, n, mask, 0, math.MaxUint8)
	case tensor.U16:
		storeIntegers[T, uint16](p, step, src, n, mask, 0, math.MaxUint16)
	case tensor.U32:
		storeIntegers[T, uint32](p, step, src, n, mask, 0, math.MaxUint32)
	case tensor.U64:
		storeIntegers[T, uint64](p, step, src, n, mask, 0, math.MaxUint64)
	}
}

func storeNumbers[T, E real](p unsafe.Pointer, step int, src []T, n, mask int) {
	var e E
	bytes := step * int(unsafe.Sizeof(e))
	for i := range n {
		*(*E)(unsafe.Add(p, i*bytes)) = E(src[i&mask])
	}
}

// storeIntegers truncates toward zero and clamps to least and most; NaN is 0.
func storeIntegers[T real, E number](p unsafe.Pointer, step int, src []T, n, mask int, least, most E) {
	var e E
	bytes := step * int(unsafe.Sizeof(e))
	for i := range n {
		var to E
		switch x := float64(src[i&mask]); {
		case x >= float64(most):
			to = most
		case x > float64(least):
			to = E(x)
		case x <= float64(least):
			to = least
		}
		*(*E)(unsafe.Add(p, i*bytes)) = to
	}
}
