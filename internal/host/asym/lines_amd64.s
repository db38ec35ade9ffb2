#include "textflag.h"

// EACH runs an instruction of three bytes with operand (AX), unknown to Go's assembler, for each of
// the lines from p on. Processors without it execute a NOP (Intel SDM volume 2).
#define EACH(b0, b1, b2) \
	MOVQ p+0(FP), AX; \
	MOVQ lines+8(FP), CX; \
next: \
	DECQ CX; \
	JLT  done; \
	BYTE $b0; BYTE $b1; BYTE $b2; \
	ADDQ $64, AX; \
	JMP  next; \
done: \
	RET

// func Claim(p unsafe.Pointer, lines int)
TEXT ·Claim(SB), NOSPLIT, $0-16
	EACH(0x0f, 0x0d, 0x08) // PREFETCHW

// func Demote(p unsafe.Pointer, lines int)
TEXT ·Demote(SB), NOSPLIT, $0-16
	EACH(0x0f, 0x1c, 0x00) // CLDEMOTE
