package reduce

import (
	"unsafe"

	"github.com/symgrad/symgrad/tensor"
	"golang.org/x/sys/cpu"
)

// levels has the instruction sets, the best first.
var levels = []level{
	{
		"avx512", cpu.X86.HasAVX512F && cpu.X86.HasAVX512BW && cpu.X86.HasAVX512VL && cpu.X86.HasAVX512DQ,
		map[tensor.DType]sum{
			tensor.F32: sumF32x512, tensor.F64: sumF64x512, tensor.F16: sumF16x512, tensor.BF16: sumBF16x512,
			tensor.I8: sumI8x512, tensor.U8: sumI8x512, tensor.I16: sumI16x512, tensor.U16: sumI16x512,
			tensor.I32: sumI32x512, tensor.U32: sumI32x512, tensor.I64: sumI64x512, tensor.U64: sumI64x512,
		},
		map[tensor.DType]sum{tensor.F32: avgF32x512, tensor.F64: avgF64x512, tensor.F16: avgF16x512, tensor.BF16: avgBF16x512},
		map[tensor.DType]weighted{
			tensor.F32: mulF32x512, tensor.F64: mulF64x512, tensor.F16: mulF16x512, tensor.BF16: mulBF16x512,
		},
		64,
	},
	{
		"avx2", cpu.X86.HasAVX2,
		map[tensor.DType]sum{
			tensor.F32: sumF32x256, tensor.F64: sumF64x256,
			tensor.I8: sumI8x256, tensor.U8: sumI8x256, tensor.I16: sumI16x256, tensor.U16: sumI16x256,
			tensor.I32: sumI32x256, tensor.U32: sumI32x256, tensor.I64: sumI64x256, tensor.U64: sumI64x256,
		},
		map[tensor.DType]sum{tensor.F32: avgF32x256, tensor.F64: avgF64x256},
		map[tensor.DType]weighted{tensor.F32: mulF32x256, tensor.F64: mulF64x256},
		32,
	},
}

//go:noescape
func sumF32x512(dsts *unsafe.Pointer, nd int, srcs *unsafe.Pointer, ns int, bytes int, how int)

//go:noescape
func sumF64x512(dsts *unsafe.Pointer, nd int, srcs *unsafe.Pointer, ns int, bytes int, how int)

//go:noescape
func sumI8x512(dsts *unsafe.Pointer, nd int, srcs *unsafe.Pointer, ns int, bytes int, how int)

//go:noescape
func sumI16x512(dsts *unsafe.Pointer, nd int, srcs *unsafe.Pointer, ns int, bytes int, how int)

//go:noescape
func sumI32x512(dsts *unsafe.Pointer, nd int, srcs *unsafe.Pointer, ns int, bytes int, how int)

//go:noescape
func sumI64x512(dsts *unsafe.Pointer, nd int, srcs *unsafe.Pointer, ns int, bytes int, how int)

//go:noescape
func sumF16x512(dsts *unsafe.Pointer, nd int, srcs *unsafe.Pointer, ns int, bytes int, how int)

//go:noescape
func sumBF16x512(dsts *unsafe.Pointer, nd int, srcs *unsafe.Pointer, ns int, bytes int, how int)

//go:noescape
func sumF32x256(dsts *unsafe.Pointer, nd int, srcs *unsafe.Pointer, ns int, bytes int, how int)

//go:noescape
func sumF64x256(dsts *unsafe.Pointer, nd int, srcs *unsafe.Pointer, ns int, bytes int, how int)

//go:noescape
func sumI8x256(dsts *unsafe.Pointer, nd int, srcs *unsafe.Pointer, ns int, bytes int, how int)

//go:noescape
func sumI16x256(dsts *unsafe.Pointer, nd int, srcs *unsafe.Pointer, ns int, bytes int, how int)

//go:noescape
func sumI32x256(dsts *unsafe.Pointer, nd int, srcs *unsafe.Pointer, ns int, bytes int, how int)

//go:noescape
func sumI64x256(dsts *unsafe.Pointer, nd int, srcs *unsafe.Pointer, ns int, bytes int, how int)

//go:noescape
func avgF32x512(dsts *unsafe.Pointer, nd int, srcs *unsafe.Pointer, ns int, bytes int, how int)

//go:noescape
func avgF64x512(dsts *unsafe.Pointer, nd int, srcs *unsafe.Pointer, ns int, bytes int, how int)

//go:noescape
func avgF16x512(dsts *unsafe.Pointer, nd int, srcs *unsafe.Pointer, ns int, bytes int, how int)

//go:noescape
func avgBF16x512(dsts *unsafe.Pointer, nd int, srcs *unsafe.Pointer, ns int, bytes int, how int)

//go:noescape
func avgF32x256(dsts *unsafe.Pointer, nd int, srcs *unsafe.Pointer, ns int, bytes int, how int)

//go:noescape
func avgF64x256(dsts *unsafe.Pointer, nd int, srcs *unsafe.Pointer, ns int, bytes int, how int)

//go:noescape
func mulF32x512(dsts *unsafe.Pointer, nd int, srcs *unsafe.Pointer, ns int, bytes int, how int, scalars *uint64)

//go:noescape
func mulF64x512(dsts *unsafe.Pointer, nd int, srcs *unsafe.Pointer, ns int, bytes int, how int, scalars *uint64)

//go:noescape
func mulF16x512(dsts *unsafe.Pointer, nd int, srcs *unsafe.Pointer, ns int, bytes int, how int, scalars *uint64)

//go:noescape
func mulBF16x512(dsts *unsafe.Pointer, nd int, srcs *unsafe.Pointer, ns int, bytes int, how int, scalars *uint64)

//go:noescape
func mulF32x256(dsts *unsafe.Pointer, nd int, srcs *unsafe.Pointer, ns int, bytes int, how int, scalars *uint64)

//go:noescape
func mulF64x256(dsts *unsafe.Pointer, nd int, srcs *unsafe.Pointer, ns int, bytes int, how int, scalars *uint64)

// DirtyPays reports whether a core of this machine fills lines that another core has modified
// faster than lines that both have read. On AMD it measured 1 ns a line instead of 7 to 10. On
// Intel, leaving lines modified costs more than it saves.
var DirtyPays = vendor() == amd

// movsb reports whether large copies of the runtime use REP MOVSB: on Intel processors that are
// fast at it (ERMS and FSRM), as in runtime/cpuflags_amd64.go of Go 1.26.
var movsb = vendor() == intel && cpu.X86.HasERMS && fsrm()

// The first four letters of GenuineIntel and AuthenticAMD.
const (
	intel = 0x756e6547
	amd   = 0x68747541
)

// vendor returns the first four letters of the processor's vendor.
func vendor() uint32 {
	b, _ := cpuid(0)
	return b
}

// fsrm reports whether the processor is fast at short REP MOVSB.
func fsrm() bool {
	_, d := cpuid(7)
	return d>>4&1 != 0
}

// cpuid returns EBX and EDX of a leaf of CPUID, of sub-leaf 0.
//
//go:noescape
func cpuid(leaf uint32) (b, d uint32)

// touch loads the first word of every 64 bytes and stores it back.
//
//go:noescape
func touch(p unsafe.Pointer, bytes int)
