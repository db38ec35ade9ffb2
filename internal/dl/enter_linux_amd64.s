//go:build !android

#include "textflag.h"

// enter calls a C function with up to six words, on the stack of runtime.cgocall. DI is a *[7]uintptr:
// the function's address and the words. The System V ABI passes the words in DI, SI, DX, CX, R8 and R9;
// AL, the number of vector registers of a variadic call, is 0. The function returns to enter's caller.
// For address 0 the result is -1.
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

// enterMore is enter for up to eight words, of which the last two are on the stack. DI is a *[9]uintptr. The
// stack is aligned to 16 bytes at the call.
TEXT enterMore(SB), NOSPLIT|NOFRAME, $0-0
	MOVQ 0(DI), R10
	TESTQ R10, R10
	JEQ  missing
	SUBQ $24, SP
	MOVQ 56(DI), AX
	MOVQ AX, 0(SP)
	MOVQ 64(DI), AX
	MOVQ AX, 8(SP)
	MOVQ 16(DI), SI
	MOVQ 24(DI), DX
	MOVQ 32(DI), CX
	MOVQ 40(DI), R8
	MOVQ 48(DI), R9
	MOVQ 8(DI), DI
	XORL AX, AX
	CALL R10
	ADDQ $24, SP
	RET
missing:
	MOVL $-1, AX
	RET

GLOBL ·enterMoreAt(SB), NOPTR|RODATA, $8
DATA ·enterMoreAt(SB)/8, $enterMore(SB)

GLOBL ·enterAt(SB), NOPTR|RODATA, $8
DATA ·enterAt(SB)/8, $enter(SB)
