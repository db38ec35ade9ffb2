#include "textflag.h"

// The passes of the update rules over float32, 8 elements at a time. They make the operations of the
// Go loops in the same order, and so give equal bits. n is a positive multiple of 8.
//
//	CX elements   AX elements done   Y0 weight   Y1 gradient   DI, SI, R8, R9, R10 weight, grad and the slots
//
// Bound: Adam's two divisions and its root take 2 cycles an element with 256 bits, and 4 with 512
// bits, so a wider form would not help. The other passes are bound by memory.

DATA one32<>+0(SB)/4, $0x3f800000
GLOBL one32<>(SB), RODATA|NOPTR, $4
DATA sign32<>+0(SB)/4, $0x80000000
GLOBL sign32<>(SB), RODATA|NOPTR, $4

#define NEXT(LOOP) \
	ADDQ $8, AX; \
	CMPQ AX, CX; \
	JLT  LOOP

// func sgdF32(t *sgdTerms[float32], weight, grad *float32, n int)
TEXT ·sgdF32(SB), NOSPLIT, $0-32
	MOVQ         t+0(FP), DX
	MOVQ         weight+8(FP), DI
	MOVQ         grad+16(FP), SI
	MOVQ         n+24(FP), CX
	VBROADCASTSS 0(DX), Y13                  // rate
	VBROADCASTSS 4(DX), Y14                  // scale
	VBROADCASTSS 8(DX), Y15                  // decay
	XORQ         AX, AX

loop:
	VMOVUPS (DI)(AX*4), Y0
	VMULPS  (SI)(AX*4), Y14, Y1
	VMULPS  Y15, Y0, Y2
	VADDPS  Y2, Y1, Y1
	VMULPS  Y13, Y1, Y1
	VSUBPS  Y1, Y0, Y0
	VMOVUPS Y0, (DI)(AX*4)
	NEXT(loop)
	VZEROUPPER
	RET

// func momentumF32(t *momentumTerms[float32], weight, grad, buffer *float32, n int)
TEXT ·momentumF32(SB), NOSPLIT, $0-40
	MOVQ         t+0(FP), DX
	MOVQ         weight+8(FP), DI
	MOVQ         grad+16(FP), SI
	MOVQ         buffer+24(FP), R8
	MOVQ         n+32(FP), CX
	VBROADCASTSS 0(DX), Y9                        // rate
	VBROADCASTSS 4(DX), Y10                       // scale
	VBROADCASTSS 8(DX), Y11                       // decay
	VBROADCASTSS 12(DX), Y12                      // keep
	VBROADCASTSS 16(DX), Y13                      // add
	VBROADCASTSS 20(DX), Y14                      // ahead
	VBROADCASTSS 24(DX), Y15                      // along
	XORQ         AX, AX

loop:
	VMOVUPS (DI)(AX*4), Y0
	VMULPS  (SI)(AX*4), Y10, Y1
	VMULPS  Y11, Y0, Y2
	VADDPS  Y2, Y1, Y1
	VMULPS  (R8)(AX*4), Y12, Y2
	VMULPS  Y13, Y1, Y3
	VADDPS  Y3, Y2, Y2
	VMOVUPS Y2, (R8)(AX*4)
	VMULPS  Y14, Y1, Y1
	VMULPS  Y15, Y2, Y2
	VADDPS  Y2, Y1, Y1
	VMULPS  Y9, Y1, Y1
	VSUBPS  Y1, Y0, Y0
	VMOVUPS Y0, (DI)(AX*4)
	NEXT(loop)
	VZEROUPPER
	RET

// func lionF32(t *lionTerms[float32], weight, grad, mean *float32, n int)
TEXT ·lionF32(SB), NOSPLIT, $0-40
	MOVQ         t+0(FP), DX
	MOVQ         weight+8(FP), DI
	MOVQ         grad+16(FP), SI
	MOVQ         mean+24(FP), R8
	MOVQ         n+32(FP), CX
	VBROADCASTSS 0(DX), Y9                    // scale
	VBROADCASTSS 4(DX), Y10                   // rate
	VBROADCASTSS 8(DX), Y11                   // fade
	VBROADCASTSS 12(DX), Y12                  // look1
	VBROADCASTSS 16(DX), Y13                  // look2
	VBROADCASTSS 20(DX), Y14                  // keep
	VBROADCASTSS 24(DX), Y15                  // add
	VBROADCASTSS one32<>(SB), Y6
	VBROADCASTSS sign32<>(SB), Y7
	VXORPS       Y8, Y8, Y8
	XORQ         AX, AX

loop:
	VMOVUPS   (DI)(AX*4), Y0
	VMULPS    (SI)(AX*4), Y9, Y1
	VMOVUPS   (R8)(AX*4), Y2
	VMULPS    Y12, Y2, Y3
	VMULPS    Y13, Y1, Y4
	VADDPS    Y4, Y3, Y3
	VMULPS    Y14, Y2, Y2
	VMULPS    Y15, Y1, Y1
	VADDPS    Y1, Y2, Y2
	VMOVUPS   Y2, (R8)(AX*4)
	VANDPS    Y7, Y3, Y4
	VORPS     Y6, Y4, Y4         // 1 with the sign of it
	VCMPPS    $8, Y8, Y3, Y5     // it is 0 or NaN
	VBLENDVPS Y5, Y3, Y4, Y4
	VMULPS    Y10, Y4, Y4
	VMULPS    Y11, Y0, Y5
	VADDPS    Y5, Y4, Y4
	VSUBPS    Y4, Y0, Y0
	VMOVUPS   Y0, (DI)(AX*4)
	NEXT(loop)
	VZEROUPPER
	RET

// MOMENTS computes the moments m and v, in Y2 and Y3, of the gradient in Y1, by keep1, add1, keep2
// and add2.
#define MOMENTS(KEEP1, ADD1, KEEP2, ADD2) \
	VMULPS (R8)(AX*4), KEEP1, Y2; \
	VMULPS ADD1, Y1, Y4;          \
	VADDPS Y4, Y2, Y2;            \
	VMULPS (R9)(AX*4), KEEP2, Y3; \
	VMULPS ADD2, Y1, Y4;          \
	VMULPS Y1, Y4, Y4;            \
	VADDPS Y4, Y3, Y3

#define KEEPMOMENTS \
	VMOVUPS Y2, (R8)(AX*4); \
	VMOVUPS Y3, (R9)(AX*4)

// DIRECTION is Y5 = size*m / (sqrt(TOP)/root + epsilon).
#define DIRECTION(TOP, SIZE, ROOT, EPSILON) \
	VSQRTPS TOP, Y4;         \
	VDIVPS  ROOT, Y4, Y4;    \
	VADDPS  EPSILON, Y4, Y4; \
	VMULPS  SIZE, Y2, Y5;    \
	VDIVPS  Y4, Y5, Y5

// ADAMTERMS loads scale, decay, fade, keep1, add1, keep2, add2, size, root and epsilon.
#define ADAMTERMS \
	VBROADCASTSS 0(DX), Y6;   \
	VBROADCASTSS 4(DX), Y7;   \
	VBROADCASTSS 8(DX), Y8;   \
	VBROADCASTSS 12(DX), Y9;  \
	VBROADCASTSS 16(DX), Y10; \
	VBROADCASTSS 20(DX), Y11; \
	VBROADCASTSS 24(DX), Y12; \
	VBROADCASTSS 28(DX), Y13; \
	VBROADCASTSS 32(DX), Y14; \
	VBROADCASTSS 36(DX), Y15; \
	XORQ         AX, AX

// ADAMMOMENTS is adamPass up to the moments.
#define ADAMMOMENTS \
	VMOVUPS (DI)(AX*4), Y0;     \
	VMULPS  (SI)(AX*4), Y6, Y1; \
	VMULPS  Y7, Y0, Y4;         \
	VADDPS  Y4, Y1, Y1;         \
	MOMENTS(Y9, Y10, Y11, Y12); \
	KEEPMOMENTS

#define ADAMUPDATE \
	VMULPS  Y8, Y0, Y4; \
	VADDPS  Y4, Y5, Y5; \
	VSUBPS  Y5, Y0, Y0; \
	VMOVUPS Y0, (DI)(AX*4)

// func adamF32(t *adamTerms[float32], weight, grad, mean, square *float32, n int)
TEXT ·adamF32(SB), NOSPLIT, $0-48
	MOVQ t+0(FP), DX
	MOVQ weight+8(FP), DI
	MOVQ grad+16(FP), SI
	MOVQ mean+24(FP), R8
	MOVQ square+32(FP), R9
	MOVQ n+40(FP), CX
	ADAMTERMS

loop:
	ADAMMOMENTS
	DIRECTION(Y3, Y13, Y14, Y15)
	ADAMUPDATE
	NEXT(loop)
	VZEROUPPER
	RET

// func amsgradF32(t *adamTerms[float32], weight, grad, mean, square, largest *float32, n int)
TEXT ·amsgradF32(SB), NOSPLIT, $0-56
	MOVQ t+0(FP), DX
	MOVQ weight+8(FP), DI
	MOVQ grad+16(FP), SI
	MOVQ mean+24(FP), R8
	MOVQ square+32(FP), R9
	MOVQ largest+40(FP), R10
	MOVQ n+48(FP), CX
	ADAMTERMS

loop:
	ADAMMOMENTS

	// The larger of Y3 and Y1, as in Go's max: NaN if one is NaN, and +0 for -0 and +0.
	VMOVUPS   (R10)(AX*4), Y1
	VMAXPS    Y3, Y1, Y4
	VMAXPS    Y1, Y3, Y5
	VANDPS    Y5, Y4, Y4
	VCMPPS    $3, Y3, Y1, Y5
	VADDPS    Y3, Y1, Y1
	VBLENDVPS Y5, Y1, Y4, Y3
	VMOVUPS   Y3, (R10)(AX*4)
	DIRECTION(Y3, Y13, Y14, Y15)
	ADAMUPDATE
	NEXT(loop)
	VZEROUPPER
	RET

// LAMBTERMS loads scale, decay, keep1, add1, keep2, add2, size, root and epsilon.
#define LAMBTERMS \
	VBROADCASTSS 0(DX), Y7;   \
	VBROADCASTSS 4(DX), Y8;   \
	VBROADCASTSS 8(DX), Y9;   \
	VBROADCASTSS 12(DX), Y10; \
	VBROADCASTSS 16(DX), Y11; \
	VBROADCASTSS 20(DX), Y12; \
	VBROADCASTSS 24(DX), Y13; \
	VBROADCASTSS 28(DX), Y14; \
	VBROADCASTSS 32(DX), Y15; \
	XORQ         AX, AX

// LAMBDIRECTION computes the moments of LAMB in Y2 and Y3, and the direction in Y5.
#define LAMBDIRECTION \
	VMOVUPS (DI)(AX*4), Y0;      \
	VMULPS  (SI)(AX*4), Y7, Y1;  \
	MOMENTS(Y9, Y10, Y11, Y12);  \
	DIRECTION(Y3, Y13, Y14, Y15); \
	VMULPS  Y8, Y0, Y4;          \
	VADDPS  Y4, Y5, Y5

// func lambF32(t *lambTerms[float32], rate float32, weight, grad, mean, square *float32, n int)
TEXT ·lambF32(SB), NOSPLIT, $0-56
	MOVQ         t+0(FP), DX
	VBROADCASTSS rate+8(FP), Y6
	MOVQ         weight+16(FP), DI
	MOVQ         grad+24(FP), SI
	MOVQ         mean+32(FP), R8
	MOVQ         square+40(FP), R9
	MOVQ         n+48(FP), CX
	LAMBTERMS

loop:
	LAMBDIRECTION
	KEEPMOMENTS
	VMULPS  Y6, Y5, Y5
	VSUBPS  Y5, Y0, Y0
	VMOVUPS Y0, (DI)(AX*4)
	NEXT(loop)
	VZEROUPPER
	RET

// func lambDirectionsF32(t *lambTerms[float32], to, weight, grad, mean, square *float32, n int)
TEXT ·lambDirectionsF32(SB), NOSPLIT, $0-56
	MOVQ t+0(FP), DX
	MOVQ to+8(FP), R10
	MOVQ weight+16(FP), DI
	MOVQ grad+24(FP), SI
	MOVQ mean+32(FP), R8
	MOVQ square+40(FP), R9
	MOVQ n+48(FP), CX
	LAMBTERMS

loop:
	LAMBDIRECTION
	VMOVUPS Y5, (R10)(AX*4)
	NEXT(loop)
	VZEROUPPER
	RET

// func averageF32(add float32, average, weight *float32, n int)
TEXT ·averageF32(SB), NOSPLIT, $0-32
	VBROADCASTSS add+0(FP), Y15
	MOVQ         average+8(FP), DI
	MOVQ         weight+16(FP), SI
	MOVQ         n+24(FP), CX
	XORQ         AX, AX

loop:
	VMOVUPS (DI)(AX*4), Y0
	VMOVUPS (SI)(AX*4), Y1
	VSUBPS  Y0, Y1, Y1
	VMULPS  Y15, Y1, Y1
	VADDPS  Y1, Y0, Y0
	VMOVUPS Y0, (DI)(AX*4)
	NEXT(loop)
	VZEROUPPER
	RET

// func clampF32(scale, bound float32, to, grad *float32, n int)
TEXT ·clampF32(SB), NOSPLIT, $0-32
	VBROADCASTSS scale+0(FP), Y13
	VBROADCASTSS bound+4(FP), Y14
	MOVQ         to+8(FP), DI
	MOVQ         grad+16(FP), SI
	MOVQ         n+24(FP), CX
	VBROADCASTSS sign32<>(SB), Y15
	VORPS        Y15, Y14, Y15
	XORQ         AX, AX

loop:
	VMULPS  (SI)(AX*4), Y13, Y1
	VMAXPS  Y1, Y15, Y1         // a NaN stays: it is the second operand
	VMINPS  Y1, Y14, Y1
	VMOVUPS Y1, (DI)(AX*4)
	NEXT(loop)
	VZEROUPPER
	RET

// func squaresF32(sums *[4]float64, x *float32, n int)
//
// The four sums are those of sumSquares.
TEXT ·squaresF32(SB), NOSPLIT, $0-24
	MOVQ   sums+0(FP), DI
	MOVQ   x+8(FP), SI
	MOVQ   n+16(FP), CX
	XORQ   AX, AX
	VXORPD Y0, Y0, Y0

loop:
	VCVTPS2PD (SI)(AX*4), Y1
	VCVTPS2PD 16(SI)(AX*4), Y2
	VMULPD    Y1, Y1, Y1
	VMULPD    Y2, Y2, Y2
	VADDPD    Y1, Y0, Y0
	VADDPD    Y2, Y0, Y0
	NEXT(loop)
	VMOVUPD Y0, (DI)
	VZEROUPPER
	RET
