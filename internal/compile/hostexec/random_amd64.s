#include "textflag.h"

// Uniform random numbers in [0, 1): the first word of Philox-4x32-10, one counter in each lane; see random.go.
//
// func uniform...(dst unsafe.Pointer, n int, words *[6]uint32)
//
// Counters do not cross 2^32 within a call: index to index+n-1 have one upper half.
//
//	DI dst   CX numbers left   AX rounds left   R9 words: key, index and step, low half first
//	registers 0 to 3 the words of the counters   4, 5 the key   6 the next low words   7 the upper half of index
//	8, 9 the words of step   10, 11 the multipliers   12 the step of the low words   13 to 16 temporaries
//
// Bound: 4 multiplications of half a vector and 14 other instructions a round.

DATA lanes<>+0(SB)/8, $0x0000000100000000
DATA lanes<>+8(SB)/8, $0x0000000300000002
DATA lanes<>+16(SB)/8, $0x0000000500000004
DATA lanes<>+24(SB)/8, $0x0000000700000006
DATA lanes<>+32(SB)/8, $0x0000000900000008
DATA lanes<>+40(SB)/8, $0x0000000b0000000a
DATA lanes<>+48(SB)/8, $0x0000000d0000000c
DATA lanes<>+56(SB)/8, $0x0000000f0000000e
GLOBL lanes<>(SB), RODATA, $64

DATA philox<>+0(SB)/4, $0xD2511F53
DATA philox<>+4(SB)/4, $0xCD9E8D57
DATA philox<>+8(SB)/4, $0x9E3779B9
DATA philox<>+12(SB)/4, $0xBB67AE85
DATA philox<>+16(SB)/4, $0x33800000 // 2^-24
DATA philox<>+20(SB)/4, $16
DATA philox<>+24(SB)/4, $8
GLOBL philox<>(SB), RODATA, $28

DATA first<>+0(SB)/8, $-1
DATA first<>+8(SB)/8, $-1
DATA first<>+16(SB)/8, $-1
DATA first<>+24(SB)/8, $-1
DATA first<>+32(SB)/8, $0
DATA first<>+40(SB)/8, $0
DATA first<>+48(SB)/8, $0
DATA first<>+56(SB)/8, $0
GLOBL first<>(SB), RODATA, $64

// PRODUCT512 sets LO and HI to the halves of W times M in each lane. K2 is the odd lanes.
#define PRODUCT512(W, M, LO, HI) \
	VPSRLQ $32, W, LO;     \
	VPMULUDQ M, W, HI;     \
	VPMULUDQ M, LO, LO;    \
	VPSRLQ $32, HI, Z13;   \
	VPBLENDMD LO, Z13, K2, Z13; \
	VPSLLQ $32, LO, LO;    \
	VPBLENDMD LO, HI, K2, LO; \
	VMOVDQA32 Z13, HI

// func uniform512(dst unsafe.Pointer, n int, words *[6]uint32)
TEXT ·uniform512(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI
	MOVQ n+8(FP), CX
	MOVQ words+16(FP), R9
	VPBROADCASTD 8(R9), Z6
	VPADDD lanes<>(SB), Z6, Z6
	VPBROADCASTD 12(R9), Z7
	VPBROADCASTD 16(R9), Z8
	VPBROADCASTD 20(R9), Z9
	VPBROADCASTD philox<>+0(SB), Z10
	VPBROADCASTD philox<>+4(SB), Z11
	VPBROADCASTD philox<>+20(SB), Z12
	VPBROADCASTD philox<>+8(SB), Z17
	VPBROADCASTD philox<>+12(SB), Z18
	MOVL $0xaaaa, AX
	KMOVW AX, K2
next:
	TESTQ CX, CX
	JLE  done
	VMOVDQA32 Z6, Z0
	VMOVDQA32 Z7, Z1
	VMOVDQA32 Z8, Z2
	VMOVDQA32 Z9, Z3
	VPADDD Z12, Z6, Z6
	VPBROADCASTD (R9), Z4
	VPBROADCASTD 4(R9), Z5
	MOVQ $10, AX
round:
	PRODUCT512(Z0, Z10, Z14, Z15)
	PRODUCT512(Z2, Z11, Z16, Z19)
	VPTERNLOGD $0x96, Z4, Z19, Z1
	VMOVDQA32 Z1, Z0
	VMOVDQA32 Z16, Z1
	VPXORD Z15, Z3, Z2
	VPXORD Z5, Z2, Z2
	VMOVDQA32 Z14, Z3
	VPADDD Z17, Z4, Z4
	VPADDD Z18, Z5, Z5
	DECQ AX
	JNZ  round
	VPSRLD $8, Z0, Z0
	VCVTDQ2PS Z0, Z0
	VMULPS.BCST philox<>+16(SB), Z0, Z0
	CMPQ CX, $16
	JLT  rest
	VMOVUPS Z0, (DI)
	ADDQ $64, DI
	SUBQ $16, CX
	JMP  next
rest:
	MOVQ $1, AX
	SHLQ CX, AX
	DECQ AX
	KMOVW AX, K1
	VMOVUPS Z0, K1, (DI)
done:
	VZEROUPPER
	RET

#define PRODUCT256(W, M, LO, HI) \
	VPSRLQ $32, W, LO;     \
	VPMULUDQ M, W, HI;     \
	VPMULUDQ M, LO, LO;    \
	VPSRLQ $32, HI, Y13;   \
	VPBLENDD $0xaa, LO, Y13, Y13; \
	VPSLLQ $32, LO, LO;    \
	VPBLENDD $0xaa, LO, HI, LO; \
	VMOVDQA Y13, HI

// func uniform256(dst unsafe.Pointer, n int, words *[6]uint32)
TEXT ·uniform256(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI
	MOVQ n+8(FP), CX
	MOVQ words+16(FP), R9
	VPBROADCASTD 8(R9), Y6
	VPADDD lanes<>(SB), Y6, Y6
	VPBROADCASTD philox<>+0(SB), Y10
	VPBROADCASTD philox<>+4(SB), Y11
	VPBROADCASTD philox<>+24(SB), Y12
next:
	TESTQ CX, CX
	JLE  done
	VMOVDQA Y6, Y0
	VPBROADCASTD 12(R9), Y1
	VPBROADCASTD 16(R9), Y2
	VPBROADCASTD 20(R9), Y3
	VPADDD Y12, Y6, Y6
	VPBROADCASTD (R9), Y4
	VPBROADCASTD 4(R9), Y5
	MOVQ $10, AX
round:
	PRODUCT256(Y0, Y10, Y14, Y15)
	PRODUCT256(Y2, Y11, Y7, Y8)
	VPXOR Y4, Y8, Y8
	VPXOR Y1, Y8, Y0
	VMOVDQA Y7, Y1
	VPXOR Y15, Y3, Y2
	VPXOR Y5, Y2, Y2
	VMOVDQA Y14, Y3
	VPBROADCASTD philox<>+8(SB), Y9
	VPADDD Y9, Y4, Y4
	VPBROADCASTD philox<>+12(SB), Y9
	VPADDD Y9, Y5, Y5
	DECQ AX
	JNZ  round
	VPSRLD $8, Y0, Y0
	VCVTDQ2PS Y0, Y0
	VBROADCASTSS philox<>+16(SB), Y1
	VMULPS Y1, Y0, Y0
	CMPQ CX, $8
	JLT  rest
	VMOVUPS Y0, (DI)
	ADDQ $32, DI
	SUBQ $8, CX
	JMP  next
rest:
	LEAQ first<>+32(SB), R8
	SHLQ $2, CX
	SUBQ CX, R8
	VMOVDQU (R8), Y1
	VMASKMOVPS Y0, Y1, (DI)
done:
	VZEROUPPER
	RET
