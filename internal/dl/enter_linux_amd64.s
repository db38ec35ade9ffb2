//go:build !android

#include "textflag.h"

// enter goes on to a C function with up to six words, on the stack that runtime.cgocall calls it on, from DI, which is *[7]uintptr: the
// function's address and the words. Where a function of the System V ABI expects them they are in DI, SI, DX, CX, R8 and R9; AL, the number
// of vector registers that a variadic one looks at, is 0. The function returns to who called this. One that is missing answers -1.
TEXT enter(SB), NOSPLIT|NOFRAME, $0-0
	MOVQ 0(DI), R10
	TESTQ R10, R10
	JEQ  missing
	MOVQ 16(DI), SI
	MOVQ 24(DI), DX
	MOVQ 32(DI), CX
	MOVQ 40(DI), R8
	MOVQ 48(DI), R9
	MOVQ 8(DI), DI
	XORL AX, AX
	JMP  R10
missing:
	MOVL $-1, AX
	RET

GLOBL ·enterAt(SB), NOPTR|RODATA, $8
DATA ·enterAt(SB)/8, $enter(SB)
