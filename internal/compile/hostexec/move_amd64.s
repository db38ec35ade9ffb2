#include "textflag.h"

// Rectangles of float32: rows of some bytes each, dstStep and srcStep apart, copied or added.
//
//	DI dst   SI src   R8 dstStep   R9 srcStep   CX rows left   DX bytes of a row   AX bytes of the row done   BX bytes left
//
// Bound: short rows (an output row of a convolution) take one vector each; a memmove would take ten
// times as long.

#define RECTANGLE \
	MOVQ dst+0(FP), DI;      \
	MOVQ src+8(FP), SI;      \
	MOVQ dstStep+16(FP), R8; \
	MOVQ srcStep+24(FP), R9; \
	MOVQ rows+32(FP), CX;    \
	MOVQ bytes+40(FP), DX

// ROWS512 masks the last vector of a row: K1 is the same for all rows.
#define ROWS512(FULL, PART) \
	MOVQ DX, BX;      \
	ANDQ $63, BX;     \
	SHRQ $2, BX;      \
	XCHGQ BX, CX;     \
	MOVQ $1, AX;      \
	SHLQ CX, AX;      \
	DECQ AX;          \
	KMOVW AX, K1;     \
	XCHGQ BX, CX;     \
	TESTQ CX, CX;     \
	JLE  done;        \
row:                  \
	XORQ AX, AX;      \
	MOVQ DX, BX;      \
	SUBQ $64, BX;     \
	JLT  rest;        \
full:                 \
	FULL;             \
	ADDQ $64, AX;     \
	SUBQ $64, BX;     \
	JGE  full;        \
rest:                 \
	ADDQ $64, BX;     \
	JZ   next;        \
	PART;             \
next:                 \
	ADDQ R8, DI;      \
	ADDQ R9, SI;      \
	DECQ CX;          \
	JNZ  row;         \
done:                 \
	VZEROUPPER;       \
	RET

// ROWS256 does the last elements of a row one by one: masked stores of AVX2 are slow on some processors.
#define ROWS256(FULL, ONE) \
	TESTQ CX, CX;     \
	JLE  done;        \
row:                  \
	XORQ AX, AX;      \
	MOVQ DX, BX;      \
	SUBQ $32, BX;     \
	JLT  rest;        \
full:                 \
	FULL;             \
	ADDQ $32, AX;     \
	SUBQ $32, BX;     \
	JGE  full;        \
rest:                 \
	ADDQ $32, BX;     \
	JZ   next;        \
one:                  \
	ONE;              \
	ADDQ $4, AX;      \
	SUBQ $4, BX;      \
	JNZ  one;         \
next:                 \
	ADDQ R8, DI;      \
	ADDQ R9, SI;      \
	DECQ CX;          \
	JNZ  row;         \
done:                 \
	VZEROUPPER;       \
	RET

#define COPYZ VMOVUPS (SI)(AX*1), Z0; VMOVUPS Z0, (DI)(AX*1)
#define COPYK VMOVUPS.Z (SI)(AX*1), K1, Z0; VMOVUPS Z0, K1, (DI)(AX*1)
#define COPYY VMOVUPS (SI)(AX*1), Y0; VMOVUPS Y0, (DI)(AX*1)
#define COPY1 MOVL (SI)(AX*1), R10; MOVL R10, (DI)(AX*1)
#define ADDY VMOVUPS (DI)(AX*1), Y0; VADDPS (SI)(AX*1), Y0, Y0; VMOVUPS Y0, (DI)(AX*1)
#define ADD1 VMOVSS (DI)(AX*1), X0; VADDSS (SI)(AX*1), X0, X0; VMOVSS X0, (DI)(AX*1)

// func copyRows512(dst, src unsafe.Pointer, dstStep, srcStep, rows, bytes int)
TEXT ·copyRows512(SB), NOSPLIT, $0-48
	RECTANGLE
	ROWS512(COPYZ, COPYK)

// func copyRows256(dst, src unsafe.Pointer, dstStep, srcStep, rows, bytes int)
TEXT ·copyRows256(SB), NOSPLIT, $0-48
	RECTANGLE
	ROWS256(COPYY, COPY1)

// func addRows256(dst, src unsafe.Pointer, dstStep, srcStep, rows, bytes int)
//
// Also used with AVX-512: a tap adds to elements that the previous tap has just stored, and a
// masked load must wait until these reach the cache. A convolution gradient took 2.3 times as long.
TEXT ·addRows256(SB), NOSPLIT, $0-48
	RECTANGLE
	ROWS256(ADDY, ADD1)
