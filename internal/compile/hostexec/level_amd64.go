package hostexec

import (
	"unsafe"

	"golang.org/x/sys/cpu"
)

// levels are the instruction sets, the best one first.
var levels = []level{
	{
		name: "avx512",
		has: cpu.X86.HasAVX512F && cpu.X86.HasAVX512BW && cpu.X86.HasAVX512VL && cpu.X86.HasAVX512DQ && cpu.X86.HasAVX2 &&
			cpu.X86.HasFMA,
		wide:      true,
		f32:       vecF32x512,
		f64:       vecF64x512,
		gemm32:    micro{f: gemmF32x512, rows: 14, cols: 32},
		gemm64:    micro{f: gemmF64x512, rows: 14, cols: 16},
		uniform:   uniform512,
		copy2:     copyRows512,
		add2:      addRows256,
		transpose: transpose8,

		maxPairs:     maxPairs256,
		maxPairsGrad: maxPairsGrad256,
	},
	{
		name:      "avx2",
		has:       cpu.X86.HasAVX2 && cpu.X86.HasFMA,
		f32:       vecF32x256,
		f64:       vecF64x256,
		gemm32:    micro{f: gemmF32x256, rows: 6, cols: 16},
		gemm64:    micro{f: gemmF64x256, rows: 6, cols: 8},
		uniform:   uniform256,
		copy2:     copyRows256,
		add2:      addRows256,
		transpose: transpose8,

		maxPairs:     maxPairs256,
		maxPairsGrad: maxPairsGrad256,
	},
}

//go:noescape
func gemmF32x512(t *tile)

//go:noescape
func gemmF64x512(t *tile)

//go:noescape
func gemmF32x256(t *tile)

//go:noescape
func gemmF64x256(t *tile)

// pause waits for n PAUSE instructions.
//
//go:noescape
func pause(n int)

// transpose8 transposes blocks of 8 by 8 float32; see gemm_amd64.s.
//
//go:noescape
func transpose8(dst, src unsafe.Pointer, dstStep, srcStep, blocks int)

//go:noescape
func vecF32x512(v *vecArgs)

//go:noescape
func vecF64x512(v *vecArgs)

//go:noescape
func vecF32x256(v *vecArgs)

//go:noescape
func vecF64x256(v *vecArgs)

//go:noescape
func copyRows512(dst, src unsafe.Pointer, dstStep, srcStep, rows, bytes int)

//go:noescape
func copyRows256(dst, src unsafe.Pointer, dstStep, srcStep, rows, bytes int)

//go:noescape
func addRows256(dst, src unsafe.Pointer, dstStep, srcStep, rows, bytes int)

//go:noescape
func maxPairs256(dst, src unsafe.Pointer, srcStep, rows, n int)

//go:noescape
func maxPairsGrad256(dx, x, y, dy unsafe.Pointer, step, rows, n int)

//go:noescape
func uniform512(dst unsafe.Pointer, n int, words *[6]uint32)

//go:noescape
func uniform256(dst unsafe.Pointer, n int, words *[6]uint32)
