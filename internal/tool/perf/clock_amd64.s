#include "textflag.h"

// func counter() int64
//
// RDTSCP waits until all earlier instructions have executed and all earlier loads are visible.
// LFENCE keeps later ones from starting before the counter is read (Intel SDM volume 2B, RDTSCP).
TEXT ·counter(SB), NOSPLIT, $0-8
	RDTSCP
	LFENCE
	SHLQ $32, DX
	ORQ  DX, AX
	MOVQ AX, ret+0(FP)
	RET

// func invariantCounter() bool
//
// CPUID leaf 0x80000007, EDX bit 8 is Invariant TSC; leaf 0x80000001, EDX bit 27 is RDTSCP (AMD APM
// volume 3, appendix E).
TEXT ·invariantCounter(SB), NOSPLIT, $0-1
	MOVL $0x80000000, AX
	XORL CX, CX
	CPUID
	CMPL AX, $0x80000007
	JLT  no
	MOVL $0x80000001, AX
	XORL CX, CX
	CPUID
	BTL  $27, DX
	JCC  no
	MOVL $0x80000007, AX
	XORL CX, CX
	CPUID
	BTL  $8, DX
	JCC  no
	MOVB $1, ret+0(FP)
	RET
no:
	MOVB $0, ret+0(FP)
	RET
