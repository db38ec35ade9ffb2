package tensor

import "golang.org/x/sys/cpu"

// levels has the instruction sets, the best first.
var levels = []vectors{
	{
		"avx512", cpu.X86.HasAVX512F && cpu.X86.HasAVX512BW && cpu.X86.HasAVX512VL && cpu.X86.HasAVX512DQ,
		narrowBF16x512, narrowF16x512, widenBF16x512, widenF16x512,
	},
	{"avx2", cpu.X86.HasAVX2, narrowBF16x256, nil, widenBF16x256, nil},
}

//go:noescape
func narrowBF16x512(to *BFloat16, from *float32, n int)

//go:noescape
func narrowF16x512(to *Float16, from *float32, n int)

//go:noescape
func widenBF16x512(to *float32, from *BFloat16, n int)

//go:noescape
func widenF16x512(to *float32, from *Float16, n int)

//go:noescape
func narrowBF16x256(to *BFloat16, from *float32, n int)

//go:noescape
func widenBF16x256(to *float32, from *BFloat16, n int)
