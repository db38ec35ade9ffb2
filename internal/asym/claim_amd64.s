#include "textflag.h"

// func Claim(p unsafe.Pointer, lines int)
//
// The bytes are PREFETCHW (AX), which Go's assembler does not know. Processors without it take it for a NOP (Intel SDM volume 2B).
TEXT ·Claim(SB), NOSPLIT, $0-16
	MOVQ p+0(FP), AX
	MOVQ lines+8(FP), CX
next:
	DECQ CX
	JLT  done
	BYTE $0x0f; BYTE $0x0d; BYTE $0x08
	ADDQ $64, AX
	JMP  next
done:
	RET

// func Demote(p unsafe.Pointer, lines int)
//
// The bytes are CLDEMOTE (AX), which Go's assembler does not know. Processors without it take it for a NOP (Intel SDM volume 2A).
TEXT ·Demote(SB), NOSPLIT, $0-16
	MOVQ p+0(FP), AX
	MOVQ lines+8(FP), CX
next:
	DECQ CX
	JLT  done
	BYTE $0x0f; BYTE $0x1c; BYTE $0x00
	ADDQ $64, AX
	JMP  next
done:
	RET
