#include "textflag.h"

// Conversions of n elements between float32 and its halves; n is a multiple of 16. They give the
// same bits as half.go.
//
//	DI to   SI from   CX remaining elements
//
// Bound: memory, from L1 outward.

#define ARGUMENTS \
	MOVQ to+0(FP), DI;   \
	MOVQ from+8(FP), SI; \
	MOVQ n+16(FP), CX

// AGAIN ends a loop over 16 elements.
#define AGAIN(toBytes, fromBytes, loop) \
	ADDQ $toBytes, DI;   \
	ADDQ $fromBytes, SI; \
	SUBQ $16, CX;        \
	JG   loop;           \
	VZEROUPPER;          \
	RET

#define LANES512(value, Z) MOVL $value, DX; VPBROADCASTD DX, Z
#define LANES256(value, X, Y) MOVL $value, DX; VMOVD DX, X; VPBROADCASTD X, Y

// func narrowBF16x512(to *BFloat16, from *float32, n int)
TEXT ·narrowBF16x512(SB), NOSPLIT, $0-24
	ARGUMENTS
	LANES512(1, Z29)
	LANES512(0x7fff, Z30)
	LANES512(0x40, Z31)
loop:
	VMOVDQU32 (SI), Z0
	VPSRLD    $16, Z0, Z1
	VPANDD    Z29, Z1, Z1
	VPADDD    Z30, Z1, Z1
	VPADDD    Z0, Z1, Z1
	VPSRLD    $16, Z1, Z1
	VCMPPS    $3, Z0, Z0, K1
	VPSRLD    $16, Z0, K1, Z1
	VPORD     Z31, Z1, K1, Z1
	VPMOVDW   Z1, Y1
	VMOVDQU   Y1, (DI)
	AGAIN(32, 64, loop)

// func narrowF16x512(to *Float16, from *float32, n int)
TEXT ·narrowF16x512(SB), NOSPLIT, $0-24
	ARGUMENTS
	LANES512(0x8000, Z30)
	LANES512(0x7e00, Z31)
loop:
	VMOVDQU32 (SI), Z0
	VCMPPS    $3, Z0, Z0, K1
	VPSRLD    $16, Z0, Z1
	VPANDD    Z30, Z1, Z1
	VPORD     Z31, Z1, Z1
	VCVTPS2PH $0, Z0, Y2
	VPMOVZXWD Y2, Z2
	VMOVDQA32 Z1, K1, Z2
	VPMOVDW   Z2, Y2
	VMOVDQU   Y2, (DI)
	AGAIN(32, 64, loop)

// func widenBF16x512(to *float32, from *BFloat16, n int)
TEXT ·widenBF16x512(SB), NOSPLIT, $0-24
	ARGUMENTS
loop:
	VPMOVZXWD (SI), Z0
	VPSLLD    $16, Z0, Z0
	VMOVDQU32 Z0, (DI)
	AGAIN(64, 32, loop)

// func widenF16x512(to *float32, from *Float16, n int)
TEXT ·widenF16x512(SB), NOSPLIT, $0-24
	ARGUMENTS
loop:
	VCVTPH2PS (SI), Z0
	VMOVDQU32 Z0, (DI)
	AGAIN(64, 32, loop)

// ROUND256 rounds the 8 numbers of Y to the low halves of T and overwrites M. Y13 is 1, Y14 0x7fff,
// Y15 0x40, in each lane.
#define ROUND256(Y, T, M) \
	VPSRLD $16, Y, T;     \
	VPOR   Y15, T, M;     \
	VPAND  Y13, T, T;     \
	VPADDD Y14, T, T;     \
	VPADDD Y, T, T;       \
	VPSRLD $16, T, T;     \
	VCMPPS $3, Y, Y, Y;   \
	VPBLENDVB Y, M, T, T

// func narrowBF16x256(to *BFloat16, from *float32, n int)
TEXT ·narrowBF16x256(SB), NOSPLIT, $0-24
	ARGUMENTS
	LANES256(1, X13, Y13)
	LANES256(0x7fff, X14, Y14)
	LANES256(0x40, X15, Y15)
loop:
	VMOVDQU   (SI), Y0
	VMOVDQU   32(SI), Y1
	ROUND256(Y0, Y2, Y3)
	ROUND256(Y1, Y4, Y5)
	VPACKUSDW Y4, Y2, Y2
	VPERMQ    $0xd8, Y2, Y2
	VMOVDQU   Y2, (DI)
	AGAIN(32, 64, loop)

// func widenBF16x256(to *float32, from *BFloat16, n int)
TEXT ·widenBF16x256(SB), NOSPLIT, $0-24
	ARGUMENTS
loop:
	VPMOVZXWD (SI), Y0
	VPMOVZXWD 16(SI), Y1
	VPSLLD    $16, Y0, Y0
	VPSLLD    $16, Y1, Y1
	VMOVDQU   Y0, (DI)
	VMOVDQU   Y1, 32(DI)
	AGAIN(64, 32, loop)
