#include "textflag.h"

// Max pooling of float32 by adjacent windows of 2 by 2, the most common ones.
//
// A row of outputs is done in vectors. The last one ends with the row and repeats outputs of the one before, so that
// there is no rest. BX is its first output.
//
// Bound: memory. The image is read once; the gradient's is written once, and not cleared before.

// MAX is R = max(R, S) of Go: a NaN stays, and of two zeros the positive one.
#define MAX(R, S) \
	VMAXPS S, R, Y12; VMAXPS R, S, Y13; VANDPS Y13, Y12, Y12; \
	VCMPPS $3, S, R, Y13; VADDPS S, R, R; VBLENDVPS Y13, R, Y12, R

// NEXT continues with the next N outputs of the row at LOOP, or falls through after the last ones.
#define NEXT(N, LOOP, DONE) \
	CMPQ    AX, BX; \
	JEQ     DONE;   \
	ADDQ    $N, AX; \
	CMPQ    AX, BX; \
	CMOVQGT BX, AX; \
	JMP     LOOP;   \
DONE:

// func maxPairs256(dst, src unsafe.Pointer, srcStep, rows, n int)
//
//	DI dst   SI upper row   R11 lower row   R8 srcStep   CX rows left   DX n, at least 4   AX outputs done
TEXT ·maxPairs256(SB), NOSPLIT, $0-40
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ srcStep+16(FP), R8
	MOVQ rows+24(FP), CX
	MOVQ n+32(FP), DX
	LEAQ (SI)(R8*1), R11
	ADDQ R8, R8
	MOVQ DX, BX
	SUBQ $8, BX
	JLT  fours

eights:
	XORQ AX, AX

eight:
	VMOVUPS (SI)(AX*8), Y0
	VMOVUPS 32(SI)(AX*8), Y1
	VMOVUPS (R11)(AX*8), Y2
	VMOVUPS 32(R11)(AX*8), Y3
	MAX(Y0, Y2)
	MAX(Y1, Y3)
	VSHUFPS $0x88, Y1, Y0, Y4 // the left ones, halves of Y0 and Y1 in turn
	VSHUFPS $0xDD, Y1, Y0, Y5 // the right ones
	MAX(Y4, Y5)
	VPERMPD $0xD8, Y4, Y4
	VMOVUPS Y4, (DI)(AX*4)
	NEXT(8, eight, eightsNext)
	LEAQ    (DI)(DX*4), DI
	ADDQ    R8, SI
	ADDQ    R8, R11
	DECQ    CX
	JNZ     eights
	VZEROUPPER
	RET

fours:
	ADDQ $4, BX

foursRow:
	XORQ AX, AX

four:
	VMOVUPS      (SI)(AX*8), Y0
	VMOVUPS      (R11)(AX*8), Y2
	MAX(Y0, Y2)
	VEXTRACTF128 $1, Y0, X1
	VSHUFPS      $0x88, X1, X0, X4
	VSHUFPS      $0xDD, X1, X0, X5
	MAX(Y4, Y5)
	VMOVUPS      X4, (DI)(AX*4)
	NEXT(4, four, foursNext)
	LEAQ         (DI)(DX*4), DI
	ADDQ         R8, SI
	ADDQ         R8, R11
	DECQ         CX
	JNZ          foursRow
	VZEROUPPER
	RET

// func maxPairsGrad256(dx, x, y, dy unsafe.Pointer, step, rows, n int)
//
// The first element of a window, row by row, that equals its y gets dy, the others 0.
//
//	DI, R12 upper and lower row of dx   SI, R11 of x   R9 y   R10 dy   R8 step   CX rows left   DX n, at least 4   AX outputs done
TEXT ·maxPairsGrad256(SB), NOSPLIT, $0-56
	MOVQ   dx+0(FP), DI
	MOVQ   x+8(FP), SI
	MOVQ   y+16(FP), R9
	MOVQ   dy+24(FP), R10
	MOVQ   step+32(FP), R8
	MOVQ   rows+40(FP), CX
	MOVQ   n+48(FP), DX
	LEAQ   (SI)(R8*1), R11
	LEAQ   (DI)(R8*1), R12
	ADDQ   R8, R8
	MOVQ   DX, BX
	SUBQ   $4, BX
	VXORPS Y15, Y15, Y15

row:
	XORQ AX, AX

four:
	VPMOVZXDQ (R9)(AX*4), Y0
	VPMOVZXDQ (R10)(AX*4), Y1
	VPSHUFD   $0xA0, Y0, Y0               // each twice
	VPSHUFD   $0xA0, Y1, Y1
	VADDPS    Y15, Y1, Y1                 // a sum, in which -0 becomes 0
	VCMPPS    $0, (SI)(AX*8), Y0, Y2
	VCMPPS    $0, (R11)(AX*8), Y0, Y3
	VPSHUFD   $0xB1, Y2, Y5
	VPOR      Y2, Y5, Y5                  // the upper row has it
	VPSLLQ    $32, Y2, Y4                 // the left one is it
	VPANDN    Y2, Y4, Y2
	VPANDN    Y3, Y5, Y3
	VPSLLQ    $32, Y3, Y4
	VPANDN    Y3, Y4, Y3
	VPAND     Y1, Y2, Y2
	VPAND     Y1, Y3, Y3
	VMOVDQU   Y2, (DI)(AX*8)
	VMOVDQU   Y3, (R12)(AX*8)
	NEXT(4, four, rowNext)
	LEAQ      (R9)(DX*4), R9
	LEAQ      (R10)(DX*4), R10
	ADDQ      R8, SI
	ADDQ      R8, R11
	ADDQ      R8, DI
	ADDQ      R8, R12
	DECQ      CX
	JNZ       row
	VZEROUPPER
	RET
