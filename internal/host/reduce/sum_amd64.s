#include "textflag.h"

// All sums have one form. For each column of the arrays: load the first source, add the others in
// order, store to all destinations. Each source is read once, and each destination written once.
//
// func sum...(dsts *unsafe.Pointer, nd int, srcs *unsafe.Pointer, ns int, bytes int, how int)
//
//	DI dsts   R8 nd   SI srcs   R9 ns   R13 scalars   R10 bytes
//	R11 how: bit 0 non-temporal, bit 1 dirty, bit 2 claim
//	AX offset of the column   BX an address   CX an index   DX the word to store back
//
// Bound: memory, from L1 outward. A column of 8 registers takes a load or store for each of its lines.

#define ARGUMENTS \
	MOVQ dsts+0(FP), DI;  \
	MOVQ nd+8(FP), R8;    \
	MOVQ srcs+16(FP), SI; \
	MOVQ ns+24(FP), R9;   \
	MOVQ bytes+32(FP), R10; \
	MOVQ how+40(FP), R11; \
	XORQ AX, AX

#define SCALARS MOVQ scalars+48(FP), R13

// FEW handles less than two columns of 512 bytes by columns of 64. From lines that another core has
// written, 512 B then take 0.27 us instead of 0.38.
#define FEW \
	CMPQ R10, $1024; \
	JLT  loop1

// SOURCE is the address of the column in source CX.
#define SOURCE \
	MOVQ (SI)(CX*8), BX; \
	ADDQ AX, BX

#define DESTINATION \
	MOVQ (DI)(CX*8), BX; \
	ADDQ AX, BX

#define TOUCH(at) \
	MOVL at(BX), DX; \
	MOVL DX, at(BX)

// TOUCH8 stores one word of each of 8 lines back; TOUCH4 of 4, TOUCH2 of 2.
#define TOUCH8 \
	TOUCH(0); TOUCH(64); TOUCH(128); TOUCH(192); TOUCH(256); TOUCH(320); TOUCH(384); TOUCH(448)

#define TOUCH2 TOUCH(0); TOUCH(64)
#define TOUCH4 \
	TOUCH(0); TOUCH(64); TOUCH(128); TOUCH(192)

// CLAIM is PREFETCHW at(BX), which Go's assembler lacks.
#define CLAIM(at) \
	BYTE $0x0f; BYTE $0x0d; BYTE $0x8b; LONG $at

#define CLAIM2 CLAIM(0); CLAIM(64)
#define CLAIM4 CLAIM2; CLAIM(128); CLAIM(192)
#define CLAIM8 CLAIM4; CLAIM(256); CLAIM(320); CLAIM(384); CLAIM(448)

// COLUMNS is the loop over columns of WIDTH bytes, up to R10 - R10 % WIDTH. Its labels are parameters,
// because one function has several loops.
#define COLUMNS(WIDTH, LOAD, ADD, STORE, STREAM, TOUCHES, CLAIMS, loop, next, clean, put, plain, stream, done, claim, read) \
	ROUNDED(WIDTH, LOAD, ADD, NOTHING, STORE, STREAM, TOUCHES, CLAIMS, loop, next, clean, put, plain, stream, done, claim, read)

#define NOTHING

// ROUNDED is COLUMNS with ROUND between the sum and the stores.
#define ROUNDED(WIDTH, LOAD, ADD, ROUND, STORE, STREAM, TOUCHES, CLAIMS, loop, next, clean, put, plain, stream, done, claim, read) \
loop:                        \
	LEAQ WIDTH(AX), BX;      \
	CMPQ BX, R10;            \
	JGT  done;               \
	XORQ CX, CX;             \
	TESTQ $4, R11;           \
	JZ   read;               \
claim:                       \
	DESTINATION;             \
	CLAIMS;                  \
	INCQ CX;                 \
	CMPQ CX, R8;             \
	JLT  claim;              \
	XORQ CX, CX;             \
read:                        \
	SOURCE;                  \
	LOAD;                    \
	TESTQ $2, R11;           \
	JZ   clean;              \
	TOUCHES;                 \
clean:                       \
	INCQ CX;                 \
next:                        \
	CMPQ CX, R9;             \
	JGE  put;                \
	SOURCE;                  \
	ADD;                     \
	INCQ CX;                 \
	TESTQ $2, R11;           \
	JZ   next;               \
	TOUCHES;                 \
	JMP  next;               \
put:                         \
	ROUND;                   \
	XORQ CX, CX;             \
	TESTQ $1, R11;           \
	JNZ  stream;             \
plain:                       \
	DESTINATION;             \
	STORE;                   \
	INCQ CX;                 \
	CMPQ CX, R8;             \
	JLT  plain;              \
	ADDQ $WIDTH, AX;         \
	JMP  loop;               \
stream:                      \
	DESTINATION;             \
	STREAM;                  \
	INCQ CX;                 \
	CMPQ CX, R8;             \
	JLT  stream;             \
	ADDQ $WIDTH, AX;         \
	JMP  loop;               \
done:

#define LOAD512 \
	VMOVDQU64 (BX), Z0; VMOVDQU64 64(BX), Z1; VMOVDQU64 128(BX), Z2; VMOVDQU64 192(BX), Z3; \
	VMOVDQU64 256(BX), Z4; VMOVDQU64 320(BX), Z5; VMOVDQU64 384(BX), Z6; VMOVDQU64 448(BX), Z7

#define STORE512 \
	VMOVDQU64 Z0, (BX); VMOVDQU64 Z1, 64(BX); VMOVDQU64 Z2, 128(BX); VMOVDQU64 Z3, 192(BX); \
	VMOVDQU64 Z4, 256(BX); VMOVDQU64 Z5, 320(BX); VMOVDQU64 Z6, 384(BX); VMOVDQU64 Z7, 448(BX)

#define STREAM512 \
	VMOVNTDQ Z0, (BX); VMOVNTDQ Z1, 64(BX); VMOVNTDQ Z2, 128(BX); VMOVNTDQ Z3, 192(BX); \
	VMOVNTDQ Z4, 256(BX); VMOVNTDQ Z5, 320(BX); VMOVNTDQ Z6, 384(BX); VMOVNTDQ Z7, 448(BX)

#define ADD512(OP) \
	OP (BX), Z0, Z0; OP 64(BX), Z1, Z1; OP 128(BX), Z2, Z2; OP 192(BX), Z3, Z3; \
	OP 256(BX), Z4, Z4; OP 320(BX), Z5, Z5; OP 384(BX), Z6, Z6; OP 448(BX), Z7, Z7

#define LOAD256 \
	VMOVDQU (BX), Y0; VMOVDQU 32(BX), Y1; VMOVDQU 64(BX), Y2; VMOVDQU 96(BX), Y3; \
	VMOVDQU 128(BX), Y4; VMOVDQU 160(BX), Y5; VMOVDQU 192(BX), Y6; VMOVDQU 224(BX), Y7

#define STORE256 \
	VMOVDQU Y0, (BX); VMOVDQU Y1, 32(BX); VMOVDQU Y2, 64(BX); VMOVDQU Y3, 96(BX); \
	VMOVDQU Y4, 128(BX); VMOVDQU Y5, 160(BX); VMOVDQU Y6, 192(BX); VMOVDQU Y7, 224(BX)

#define STREAM256 \
	VMOVNTDQ Y0, (BX); VMOVNTDQ Y1, 32(BX); VMOVNTDQ Y2, 64(BX); VMOVNTDQ Y3, 96(BX); \
	VMOVNTDQ Y4, 128(BX); VMOVNTDQ Y5, 160(BX); VMOVNTDQ Y6, 192(BX); VMOVNTDQ Y7, 224(BX)

#define ADD256(OP) \
	OP (BX), Y0, Y0; OP 32(BX), Y1, Y1; OP 64(BX), Y2, Y2; OP 96(BX), Y3, Y3; \
	OP 128(BX), Y4, Y4; OP 160(BX), Y5, Y5; OP 192(BX), Y6, Y6; OP 224(BX), Y7, Y7

#define LOAD1Z VMOVDQU64 (BX), Z0
#define STORE1Z VMOVDQU64 Z0, (BX)
#define STREAM1Z VMOVNTDQ Z0, (BX)
#define LOAD1Y VMOVDQU (BX), Y0
#define STORE1Y VMOVDQU Y0, (BX)
#define STREAM1Y VMOVNTDQ Y0, (BX)

// END ends a sum. A fence orders non-temporal stores before later stores that publish them.
#define END \
	VZEROUPPER; \
	TESTQ $1, R11; \
	JZ   return; \
	SFENCE; \
return: \
	RET

#define ADD8ZF32 ADD512(VADDPS)
#define ADD1ZF32 VADDPS (BX), Z0, Z0
#define ADD8YF32 ADD256(VADDPS)
#define ADD1YF32 VADDPS (BX), Y0, Y0
#define ADD8ZF64 ADD512(VADDPD)
#define ADD1ZF64 VADDPD (BX), Z0, Z0
#define ADD8YF64 ADD256(VADDPD)
#define ADD1YF64 VADDPD (BX), Y0, Y0
#define ADD8ZI8 ADD512(VPADDB)
#define ADD1ZI8 VPADDB (BX), Z0, Z0
#define ADD8YI8 ADD256(VPADDB)
#define ADD1YI8 VPADDB (BX), Y0, Y0
#define ADD8ZI16 ADD512(VPADDW)
#define ADD1ZI16 VPADDW (BX), Z0, Z0
#define ADD8YI16 ADD256(VPADDW)
#define ADD1YI16 VPADDW (BX), Y0, Y0
#define ADD8ZI32 ADD512(VPADDD)
#define ADD1ZI32 VPADDD (BX), Z0, Z0
#define ADD8YI32 ADD256(VPADDD)
#define ADD1YI32 VPADDD (BX), Y0, Y0
#define ADD8ZI64 ADD512(VPADDQ)
#define ADD1ZI64 VPADDQ (BX), Z0, Z0
#define ADD8YI64 ADD256(VPADDQ)
#define ADD1YI64 VPADDQ (BX), Y0, Y0

// func sumF32x512(dsts *unsafe.Pointer, nd int, srcs *unsafe.Pointer, ns int, bytes int, how int)
TEXT ·sumF32x512(SB), NOSPLIT, $0-48
	ARGUMENTS
	FEW
	COLUMNS(512, LOAD512, ADD8ZF32, STORE512, STREAM512, TOUCH8, CLAIM8, loop8, next8, clean8, put8, plain8, stream8, done8, claim8, read8)
	COLUMNS(64, LOAD1Z, ADD1ZF32, STORE1Z, STREAM1Z, TOUCH(0), CLAIM(0), loop1, next1, clean1, put1, plain1, stream1, done1, claim1, read1)
	END

// func sumF64x512(dsts *unsafe.Pointer, nd int, srcs *unsafe.Pointer, ns int, bytes int, how int)
TEXT ·sumF64x512(SB), NOSPLIT, $0-48
	ARGUMENTS
	FEW
	COLUMNS(512, LOAD512, ADD8ZF64, STORE512, STREAM512, TOUCH8, CLAIM8, loop8, next8, clean8, put8, plain8, stream8, done8, claim8, read8)
	COLUMNS(64, LOAD1Z, ADD1ZF64, STORE1Z, STREAM1Z, TOUCH(0), CLAIM(0), loop1, next1, clean1, put1, plain1, stream1, done1, claim1, read1)
	END

// func sumI8x512(dsts *unsafe.Pointer, nd int, srcs *unsafe.Pointer, ns int, bytes int, how int)
TEXT ·sumI8x512(SB), NOSPLIT, $0-48
	ARGUMENTS
	FEW
	COLUMNS(512, LOAD512, ADD8ZI8, STORE512, STREAM512, TOUCH8, CLAIM8, loop8, next8, clean8, put8, plain8, stream8, done8, claim8, read8)
	COLUMNS(64, LOAD1Z, ADD1ZI8, STORE1Z, STREAM1Z, TOUCH(0), CLAIM(0), loop1, next1, clean1, put1, plain1, stream1, done1, claim1, read1)
	END

// func sumI16x512(dsts *unsafe.Pointer, nd int, srcs *unsafe.Pointer, ns int, bytes int, how int)
TEXT ·sumI16x512(SB), NOSPLIT, $0-48
	ARGUMENTS
	FEW
	COLUMNS(512, LOAD512, ADD8ZI16, STORE512, STREAM512, TOUCH8, CLAIM8, loop8, next8, clean8, put8, plain8, stream8, done8, claim8, read8)
	COLUMNS(64, LOAD1Z, ADD1ZI16, STORE1Z, STREAM1Z, TOUCH(0), CLAIM(0), loop1, next1, clean1, put1, plain1, stream1, done1, claim1, read1)
	END

// func sumI32x512(dsts *unsafe.Pointer, nd int, srcs *unsafe.Pointer, ns int, bytes int, how int)
TEXT ·sumI32x512(SB), NOSPLIT, $0-48
	ARGUMENTS
	FEW
	COLUMNS(512, LOAD512, ADD8ZI32, STORE512, STREAM512, TOUCH8, CLAIM8, loop8, next8, clean8, put8, plain8, stream8, done8, claim8, read8)
	COLUMNS(64, LOAD1Z, ADD1ZI32, STORE1Z, STREAM1Z, TOUCH(0), CLAIM(0), loop1, next1, clean1, put1, plain1, stream1, done1, claim1, read1)
	END

// func sumI64x512(dsts *unsafe.Pointer, nd int, srcs *unsafe.Pointer, ns int, bytes int, how int)
TEXT ·sumI64x512(SB), NOSPLIT, $0-48
	ARGUMENTS
	FEW
	COLUMNS(512, LOAD512, ADD8ZI64, STORE512, STREAM512, TOUCH8, CLAIM8, loop8, next8, clean8, put8, plain8, stream8, done8, claim8, read8)
	COLUMNS(64, LOAD1Z, ADD1ZI64, STORE1Z, STREAM1Z, TOUCH(0), CLAIM(0), loop1, next1, clean1, put1, plain1, stream1, done1, claim1, read1)
	END

// func sumF32x256(dsts *unsafe.Pointer, nd int, srcs *unsafe.Pointer, ns int, bytes int, how int)
TEXT ·sumF32x256(SB), NOSPLIT, $0-48
	ARGUMENTS
	COLUMNS(256, LOAD256, ADD8YF32, STORE256, STREAM256, TOUCH4, CLAIM4, loop8, next8, clean8, put8, plain8, stream8, done8, claim8, read8)
	COLUMNS(32, LOAD1Y, ADD1YF32, STORE1Y, STREAM1Y, TOUCH(0), CLAIM(0), loop1, next1, clean1, put1, plain1, stream1, done1, claim1, read1)
	END

// func sumF64x256(dsts *unsafe.Pointer, nd int, srcs *unsafe.Pointer, ns int, bytes int, how int)
TEXT ·sumF64x256(SB), NOSPLIT, $0-48
	ARGUMENTS
	COLUMNS(256, LOAD256, ADD8YF64, STORE256, STREAM256, TOUCH4, CLAIM4, loop8, next8, clean8, put8, plain8, stream8, done8, claim8, read8)
	COLUMNS(32, LOAD1Y, ADD1YF64, STORE1Y, STREAM1Y, TOUCH(0), CLAIM(0), loop1, next1, clean1, put1, plain1, stream1, done1, claim1, read1)
	END

// func sumI8x256(dsts *unsafe.Pointer, nd int, srcs *unsafe.Pointer, ns int, bytes int, how int)
TEXT ·sumI8x256(SB), NOSPLIT, $0-48
	ARGUMENTS
	COLUMNS(256, LOAD256, ADD8YI8, STORE256, STREAM256, TOUCH4, CLAIM4, loop8, next8, clean8, put8, plain8, stream8, done8, claim8, read8)
	COLUMNS(32, LOAD1Y, ADD1YI8, STORE1Y, STREAM1Y, TOUCH(0), CLAIM(0), loop1, next1, clean1, put1, plain1, stream1, done1, claim1, read1)
	END

// func sumI16x256(dsts *unsafe.Pointer, nd int, srcs *unsafe.Pointer, ns int, bytes int, how int)
TEXT ·sumI16x256(SB), NOSPLIT, $0-48
	ARGUMENTS
	COLUMNS(256, LOAD256, ADD8YI16, STORE256, STREAM256, TOUCH4, CLAIM4, loop8, next8, clean8, put8, plain8, stream8, done8, claim8, read8)
	COLUMNS(32, LOAD1Y, ADD1YI16, STORE1Y, STREAM1Y, TOUCH(0), CLAIM(0), loop1, next1, clean1, put1, plain1, stream1, done1, claim1, read1)
	END

// func sumI32x256(dsts *unsafe.Pointer, nd int, srcs *unsafe.Pointer, ns int, bytes int, how int)
TEXT ·sumI32x256(SB), NOSPLIT, $0-48
	ARGUMENTS
	COLUMNS(256, LOAD256, ADD8YI32, STORE256, STREAM256, TOUCH4, CLAIM4, loop8, next8, clean8, put8, plain8, stream8, done8, claim8, read8)
	COLUMNS(32, LOAD1Y, ADD1YI32, STORE1Y, STREAM1Y, TOUCH(0), CLAIM(0), loop1, next1, clean1, put1, plain1, stream1, done1, claim1, read1)
	END

// func sumI64x256(dsts *unsafe.Pointer, nd int, srcs *unsafe.Pointer, ns int, bytes int, how int)
TEXT ·sumI64x256(SB), NOSPLIT, $0-48
	ARGUMENTS
	COLUMNS(256, LOAD256, ADD8YI64, STORE256, STREAM256, TOUCH4, CLAIM4, loop8, next8, clean8, put8, plain8, stream8, done8, claim8, read8)
	COLUMNS(32, LOAD1Y, ADD1YI64, STORE1Y, STREAM1Y, TOUCH(0), CLAIM(0), loop1, next1, clean1, put1, plain1, stream1, done1, claim1, read1)
	END

// Premulsums multiply each source by its scalar, R13[CX], and round the product before it is added. Z15
// and Y15 have the scalar in each lane. Averages divide by R9, in each lane of Z15 or Y15, before they
// store.

#define SCALARZF32 VBROADCASTSS (R13)(CX*8), Z15
#define SCALARYF32 VBROADCASTSS (R13)(CX*8), Y15
#define SCALARZF64 VBROADCASTSD (R13)(CX*8), Z15
#define SCALARYF64 VBROADCASTSD (R13)(CX*8), Y15

#define LOADMUL8Z(MUL) \
	MUL (BX), Z15, Z0; MUL 64(BX), Z15, Z1; MUL 128(BX), Z15, Z2; MUL 192(BX), Z15, Z3; \
	MUL 256(BX), Z15, Z4; MUL 320(BX), Z15, Z5; MUL 384(BX), Z15, Z6; MUL 448(BX), Z15, Z7
#define ADDMUL8Z(MUL, ADD) \
	MUL (BX), Z15, Z16; MUL 64(BX), Z15, Z17; MUL 128(BX), Z15, Z18; MUL 192(BX), Z15, Z19; \
	MUL 256(BX), Z15, Z20; MUL 320(BX), Z15, Z21; MUL 384(BX), Z15, Z22; MUL 448(BX), Z15, Z23; \
	ADD Z16, Z0, Z0; ADD Z17, Z1, Z1; ADD Z18, Z2, Z2; ADD Z19, Z3, Z3; \
	ADD Z20, Z4, Z4; ADD Z21, Z5, Z5; ADD Z22, Z6, Z6; ADD Z23, Z7, Z7
#define LOADMUL1Z(MUL) MUL (BX), Z15, Z0
#define ADDMUL1Z(MUL, ADD) MUL (BX), Z15, Z16; ADD Z16, Z0, Z0
#define LOADMUL4Y(MUL) \
	MUL (BX), Y15, Y0; MUL 32(BX), Y15, Y1; MUL 64(BX), Y15, Y2; MUL 96(BX), Y15, Y3
#define ADDMUL4Y(MUL, ADD) \
	MUL (BX), Y15, Y8; MUL 32(BX), Y15, Y9; MUL 64(BX), Y15, Y10; MUL 96(BX), Y15, Y11; \
	ADD Y8, Y0, Y0; ADD Y9, Y1, Y1; ADD Y10, Y2, Y2; ADD Y11, Y3, Y3
#define LOADMUL1Y(MUL) MUL (BX), Y15, Y0
#define ADDMUL1Y(MUL, ADD) MUL (BX), Y15, Y8; ADD Y8, Y0, Y0
#define STORE128 VMOVDQU Y0, (BX); VMOVDQU Y1, 32(BX); VMOVDQU Y2, 64(BX); VMOVDQU Y3, 96(BX)
#define STREAM128 VMOVNTDQ Y0, (BX); VMOVNTDQ Y1, 32(BX); VMOVNTDQ Y2, 64(BX); VMOVNTDQ Y3, 96(BX)
#define DIV1Z(DIV) DIV Z15, Z0, Z0
#define DIV1Y(DIV) DIV Y15, Y0, Y0
#define DIV8Z(DIV) \
	DIV Z15, Z0, Z0; DIV Z15, Z1, Z1; DIV Z15, Z2, Z2; DIV Z15, Z3, Z3; \
	DIV Z15, Z4, Z4; DIV Z15, Z5, Z5; DIV Z15, Z6, Z6; DIV Z15, Z7, Z7
#define DIV8Y(DIV) \
	DIV Y15, Y0, Y0; DIV Y15, Y1, Y1; DIV Y15, Y2, Y2; DIV Y15, Y3, Y3; \
	DIV Y15, Y4, Y4; DIV Y15, Y5, Y5; DIV Y15, Y6, Y6; DIV Y15, Y7, Y7

#define LOADMUL8ZF32 SCALARZF32; LOADMUL8Z(VMULPS)
#define ADDMUL8ZF32 SCALARZF32; ADDMUL8Z(VMULPS, VADDPS)
#define LOADMUL1ZF32 SCALARZF32; LOADMUL1Z(VMULPS)
#define ADDMUL1ZF32 SCALARZF32; ADDMUL1Z(VMULPS, VADDPS)
#define LOADMUL4YF32 SCALARYF32; LOADMUL4Y(VMULPS)
#define ADDMUL4YF32 SCALARYF32; ADDMUL4Y(VMULPS, VADDPS)
#define LOADMUL1YF32 SCALARYF32; LOADMUL1Y(VMULPS)
#define ADDMUL1YF32 SCALARYF32; ADDMUL1Y(VMULPS, VADDPS)
#define LOADMUL8ZF64 SCALARZF64; LOADMUL8Z(VMULPD)
#define ADDMUL8ZF64 SCALARZF64; ADDMUL8Z(VMULPD, VADDPD)
#define LOADMUL1ZF64 SCALARZF64; LOADMUL1Z(VMULPD)
#define ADDMUL1ZF64 SCALARZF64; ADDMUL1Z(VMULPD, VADDPD)
#define LOADMUL4YF64 SCALARYF64; LOADMUL4Y(VMULPD)
#define ADDMUL4YF64 SCALARYF64; ADDMUL4Y(VMULPD, VADDPD)
#define LOADMUL1YF64 SCALARYF64; LOADMUL1Y(VMULPD)
#define ADDMUL1YF64 SCALARYF64; ADDMUL1Y(VMULPD, VADDPD)

// func mulF32x512(dsts *unsafe.Pointer, nd int, srcs *unsafe.Pointer, ns int, bytes int, how int, scalars *uint64)
TEXT ·mulF32x512(SB), NOSPLIT, $0-56
	ARGUMENTS
	SCALARS
	FEW
	COLUMNS(512, LOADMUL8ZF32, ADDMUL8ZF32, STORE512, STREAM512, TOUCH8, CLAIM8, loop8, next8, clean8, put8, plain8, stream8, done8, claim8, read8)
	COLUMNS(64, LOADMUL1ZF32, ADDMUL1ZF32, STORE1Z, STREAM1Z, TOUCH(0), CLAIM(0), loop1, next1, clean1, put1, plain1, stream1, done1, claim1, read1)
	END

// func mulF64x512(dsts *unsafe.Pointer, nd int, srcs *unsafe.Pointer, ns int, bytes int, how int, scalars *uint64)
TEXT ·mulF64x512(SB), NOSPLIT, $0-56
	ARGUMENTS
	SCALARS
	FEW
	COLUMNS(512, LOADMUL8ZF64, ADDMUL8ZF64, STORE512, STREAM512, TOUCH8, CLAIM8, loop8, next8, clean8, put8, plain8, stream8, done8, claim8, read8)
	COLUMNS(64, LOADMUL1ZF64, ADDMUL1ZF64, STORE1Z, STREAM1Z, TOUCH(0), CLAIM(0), loop1, next1, clean1, put1, plain1, stream1, done1, claim1, read1)
	END

// func mulF32x256(dsts *unsafe.Pointer, nd int, srcs *unsafe.Pointer, ns int, bytes int, how int, scalars *uint64)
TEXT ·mulF32x256(SB), NOSPLIT, $0-56
	ARGUMENTS
	SCALARS
	COLUMNS(128, LOADMUL4YF32, ADDMUL4YF32, STORE128, STREAM128, TOUCH2, CLAIM2, loop4, next4, clean4, put4, plain4, stream4, done4, claim4, read4)
	COLUMNS(32, LOADMUL1YF32, ADDMUL1YF32, STORE1Y, STREAM1Y, TOUCH(0), CLAIM(0), loop1, next1, clean1, put1, plain1, stream1, done1, claim1, read1)
	END

// func mulF64x256(dsts *unsafe.Pointer, nd int, srcs *unsafe.Pointer, ns int, bytes int, how int, scalars *uint64)
TEXT ·mulF64x256(SB), NOSPLIT, $0-56
	ARGUMENTS
	SCALARS
	COLUMNS(128, LOADMUL4YF64, ADDMUL4YF64, STORE128, STREAM128, TOUCH2, CLAIM2, loop4, next4, clean4, put4, plain4, stream4, done4, claim4, read4)
	COLUMNS(32, LOADMUL1YF64, ADDMUL1YF64, STORE1Y, STREAM1Y, TOUCH(0), CLAIM(0), loop1, next1, clean1, put1, plain1, stream1, done1, claim1, read1)
	END

// func avgF32x512(dsts *unsafe.Pointer, nd int, srcs *unsafe.Pointer, ns int, bytes int, how int)
TEXT ·avgF32x512(SB), NOSPLIT, $0-48
	ARGUMENTS
	VCVTSI2SSQ R9, X14, X15
	VBROADCASTSS X15, Z15
	FEW
	ROUNDED(512, LOAD512, ADD8ZF32, DIV8Z(VDIVPS), STORE512, STREAM512, TOUCH8, CLAIM8, loop8, next8, clean8, put8, plain8, stream8, done8, claim8, read8)
	ROUNDED(64, LOAD1Z, ADD1ZF32, DIV1Z(VDIVPS), STORE1Z, STREAM1Z, TOUCH(0), CLAIM(0), loop1, next1, clean1, put1, plain1, stream1, done1, claim1, read1)
	END

// func avgF32x256(dsts *unsafe.Pointer, nd int, srcs *unsafe.Pointer, ns int, bytes int, how int)
TEXT ·avgF32x256(SB), NOSPLIT, $0-48
	ARGUMENTS
	VCVTSI2SSQ R9, X14, X15
	VBROADCASTSS X15, Y15
	ROUNDED(256, LOAD256, ADD8YF32, DIV8Y(VDIVPS), STORE256, STREAM256, TOUCH4, CLAIM4, loop8, next8, clean8, put8, plain8, stream8, done8, claim8, read8)
	ROUNDED(32, LOAD1Y, ADD1YF32, DIV1Y(VDIVPS), STORE1Y, STREAM1Y, TOUCH(0), CLAIM(0), loop1, next1, clean1, put1, plain1, stream1, done1, claim1, read1)
	END

// func avgF64x512(dsts *unsafe.Pointer, nd int, srcs *unsafe.Pointer, ns int, bytes int, how int)
TEXT ·avgF64x512(SB), NOSPLIT, $0-48
	ARGUMENTS
	VCVTSI2SDQ R9, X14, X15
	VBROADCASTSD X15, Z15
	FEW
	ROUNDED(512, LOAD512, ADD8ZF64, DIV8Z(VDIVPD), STORE512, STREAM512, TOUCH8, CLAIM8, loop8, next8, clean8, put8, plain8, stream8, done8, claim8, read8)
	ROUNDED(64, LOAD1Z, ADD1ZF64, DIV1Z(VDIVPD), STORE1Z, STREAM1Z, TOUCH(0), CLAIM(0), loop1, next1, clean1, put1, plain1, stream1, done1, claim1, read1)
	END

// func avgF64x256(dsts *unsafe.Pointer, nd int, srcs *unsafe.Pointer, ns int, bytes int, how int)
TEXT ·avgF64x256(SB), NOSPLIT, $0-48
	ARGUMENTS
	VCVTSI2SDQ R9, X14, X15
	VBROADCASTSD X15, Y15
	ROUNDED(256, LOAD256, ADD8YF64, DIV8Y(VDIVPD), STORE256, STREAM256, TOUCH4, CLAIM4, loop8, next8, clean8, put8, plain8, stream8, done8, claim8, read8)
	ROUNDED(32, LOAD1Y, ADD1YF64, DIV1Y(VDIVPD), STORE1Y, STREAM1Y, TOUCH(0), CLAIM(0), loop1, next1, clean1, put1, plain1, stream1, done1, claim1, read1)
	END

// f16 and bf16 are widened to float32, added and rounded once to nearest, ties to even. NaNs become
// quiet.

#define WIDENBF(at, Z) VPMOVZXWD at(BX), Z; VPSLLD $16, Z, Z

// ROUNDBF rounds Z to the low half of T, as tensor.ToBFloat16 does. In each lane Z29 is 1, Z30 0x7fff,
// Z31 0x40.
#define ROUNDBF(Z, T, Y) \
	VPSRLD  $16, Z, T;    \
	VPANDD  Z29, T, T;    \
	VPADDD  Z30, T, T;    \
	VPADDD  Z, T, T;      \
	VPSRLD  $16, T, T;    \
	VCMPPS  $3, Z, Z, K1; \
	VPSRLD  $16, Z, K1, T; \
	VPORD   Z31, T, K1, T; \
	VPMOVDW T, Y

#define LOADBF4 WIDENBF(0, Z0); WIDENBF(32, Z1); WIDENBF(64, Z2); WIDENBF(96, Z3)
#define ADDBF4 \
	WIDENBF(0, Z8); WIDENBF(32, Z9); WIDENBF(64, Z10); WIDENBF(96, Z11); \
	VADDPS Z8, Z0, Z0; VADDPS Z9, Z1, Z1; VADDPS Z10, Z2, Z2; VADDPS Z11, Z3, Z3
#define LOADBF1 WIDENBF(0, Z0)
#define ADDBF1 WIDENBF(0, Z8); VADDPS Z8, Z0, Z0

#define WIDENHF(at, Z) VCVTPH2PS at(BX), Z

// ROUNDHF rounds Z to Y, as tensor.ToFloat16 does. Z30 is 0x8000, Z31 0x7e00, in each lane.
#define ROUNDHF(Z, T, TY, Y) \
	VCMPPS    $3, Z, Z, K1; \
	VPSRLD    $16, Z, T;    \
	VPANDD    Z30, T, T;    \
	VPORD     Z31, T, T;    \
	VCVTPS2PH $0, Z, Y;     \
	VPMOVZXWD Y, Z;         \
	VMOVDQA32 T, K1, Z;     \
	VPMOVDW   Z, Y

#define LOADHF4 WIDENHF(0, Z0); WIDENHF(32, Z1); WIDENHF(64, Z2); WIDENHF(96, Z3)
#define ADDHF4 \
	WIDENHF(0, Z8); WIDENHF(32, Z9); WIDENHF(64, Z10); WIDENHF(96, Z11); \
	VADDPS Z8, Z0, Z0; VADDPS Z9, Z1, Z1; VADDPS Z10, Z2, Z2; VADDPS Z11, Z3, Z3
#define LOADHF1 WIDENHF(0, Z0)
#define ADDHF1 WIDENHF(0, Z8); VADDPS Z8, Z0, Z0

#define STOREH4 VMOVDQU Y4, (BX); VMOVDQU Y5, 32(BX); VMOVDQU Y6, 64(BX); VMOVDQU Y7, 96(BX)
#define STREAMH4 VMOVNTDQ Y4, (BX); VMOVNTDQ Y5, 32(BX); VMOVNTDQ Y6, 64(BX); VMOVNTDQ Y7, 96(BX)
#define STOREH1 VMOVDQU Y4, (BX)
#define STREAMH1 VMOVNTDQ Y4, (BX)

#define ROUNDBF4 ROUNDBF(Z0, Z16, Y4); ROUNDBF(Z1, Z17, Y5); ROUNDBF(Z2, Z18, Y6); ROUNDBF(Z3, Z19, Y7)
#define ROUNDBF1 ROUNDBF(Z0, Z16, Y4)
#define ROUNDHF4 ROUNDHF(Z0, Z16, Y16, Y4); ROUNDHF(Z1, Z17, Y17, Y5); ROUNDHF(Z2, Z18, Y18, Y6); ROUNDHF(Z3, Z19, Y19, Y7)
#define ROUNDHF1 ROUNDHF(Z0, Z16, Y16, Y4)

#define LANES(value, Z) MOVL $value, DX; VPBROADCASTD DX, Z

// func sumBF16x512(dsts *unsafe.Pointer, nd int, srcs *unsafe.Pointer, ns int, bytes int, how int)
TEXT ·sumBF16x512(SB), NOSPLIT, $0-48
	ARGUMENTS
	LANES(1, Z29)
	LANES(0x7fff, Z30)
	LANES(0x40, Z31)
	ROUNDED(128, LOADBF4, ADDBF4, ROUNDBF4, STOREH4, STREAMH4, TOUCH2, CLAIM2, loop4, next4, clean4, put4, plain4, stream4, done4, claim4, read4)
	ROUNDED(32, LOADBF1, ADDBF1, ROUNDBF1, STOREH1, STREAMH1, TOUCH(0), CLAIM(0), loop1, next1, clean1, put1, plain1, stream1, done1, claim1, read1)
	END

// func sumF16x512(dsts *unsafe.Pointer, nd int, srcs *unsafe.Pointer, ns int, bytes int, how int)
TEXT ·sumF16x512(SB), NOSPLIT, $0-48
	ARGUMENTS
	LANES(0x8000, Z30)
	LANES(0x7e00, Z31)
	ROUNDED(128, LOADHF4, ADDHF4, ROUNDHF4, STOREH4, STREAMH4, TOUCH2, CLAIM2, loop4, next4, clean4, put4, plain4, stream4, done4, claim4, read4)
	ROUNDED(32, LOADHF1, ADDHF1, ROUNDHF1, STOREH1, STREAMH1, TOUCH(0), CLAIM(0), loop1, next1, clean1, put1, plain1, stream1, done1, claim1, read1)
	END

// Averages of halves divide in float32.

#define DIV4 DIV1Z(VDIVPS); VDIVPS Z15, Z1, Z1; VDIVPS Z15, Z2, Z2; VDIVPS Z15, Z3, Z3
#define AVERAGEBF4 DIV4; ROUNDBF4
#define AVERAGEBF1 DIV1Z(VDIVPS); ROUNDBF1
#define AVERAGEHF4 DIV4; ROUNDHF4
#define AVERAGEHF1 DIV1Z(VDIVPS); ROUNDHF1

// func avgBF16x512(dsts *unsafe.Pointer, nd int, srcs *unsafe.Pointer, ns int, bytes int, how int)
TEXT ·avgBF16x512(SB), NOSPLIT, $0-48
	ARGUMENTS
	VCVTSI2SSQ R9, X14, X15
	VBROADCASTSS X15, Z15
	LANES(1, Z29)
	LANES(0x7fff, Z30)
	LANES(0x40, Z31)
	ROUNDED(128, LOADBF4, ADDBF4, AVERAGEBF4, STOREH4, STREAMH4, TOUCH2, CLAIM2, loop4, next4, clean4, put4, plain4, stream4, done4, claim4, read4)
	ROUNDED(32, LOADBF1, ADDBF1, AVERAGEBF1, STOREH1, STREAMH1, TOUCH(0), CLAIM(0), loop1, next1, clean1, put1, plain1, stream1, done1, claim1, read1)
	END

// func avgF16x512(dsts *unsafe.Pointer, nd int, srcs *unsafe.Pointer, ns int, bytes int, how int)
TEXT ·avgF16x512(SB), NOSPLIT, $0-48
	ARGUMENTS
	VCVTSI2SSQ R9, X14, X15
	VBROADCASTSS X15, Z15
	LANES(0x8000, Z30)
	LANES(0x7e00, Z31)
	ROUNDED(128, LOADHF4, ADDHF4, AVERAGEHF4, STOREH4, STREAMH4, TOUCH2, CLAIM2, loop4, next4, clean4, put4, plain4, stream4, done4, claim4, read4)
	ROUNDED(32, LOADHF1, ADDHF1, AVERAGEHF1, STOREH1, STREAMH1, TOUCH(0), CLAIM(0), loop1, next1, clean1, put1, plain1, stream1, done1, claim1, read1)
	END

// Premulsums of halves multiply in float32. Z28 is the scalar of source CX in each lane.

#define SCALARBF MOVWLZX (R13)(CX*8), DX; SHLL $16, DX; VPBROADCASTD DX, Z28
#define SCALARHF MOVWLZX (R13)(CX*8), DX; VMOVD DX, X28; VCVTPH2PS X28, X28; VBROADCASTSS X28, Z28
#define TIMES(Z) VMULPS Z, Z28, Z
#define LOADMULBF4 SCALARBF; LOADBF4; TIMES(Z0); TIMES(Z1); TIMES(Z2); TIMES(Z3)
#define ADDMULBF4 \
	SCALARBF; \
	WIDENBF(0, Z8); WIDENBF(32, Z9); WIDENBF(64, Z10); WIDENBF(96, Z11); \
	TIMES(Z8); TIMES(Z9); TIMES(Z10); TIMES(Z11); \
	VADDPS Z8, Z0, Z0; VADDPS Z9, Z1, Z1; VADDPS Z10, Z2, Z2; VADDPS Z11, Z3, Z3
#define LOADMULBF1 SCALARBF; LOADBF1; TIMES(Z0)
#define ADDMULBF1 SCALARBF; WIDENBF(0, Z8); TIMES(Z8); VADDPS Z8, Z0, Z0
#define LOADMULHF4 SCALARHF; LOADHF4; TIMES(Z0); TIMES(Z1); TIMES(Z2); TIMES(Z3)
#define ADDMULHF4 \
	SCALARHF; \
	WIDENHF(0, Z8); WIDENHF(32, Z9); WIDENHF(64, Z10); WIDENHF(96, Z11); \
	TIMES(Z8); TIMES(Z9); TIMES(Z10); TIMES(Z11); \
	VADDPS Z8, Z0, Z0; VADDPS Z9, Z1, Z1; VADDPS Z10, Z2, Z2; VADDPS Z11, Z3, Z3
#define LOADMULHF1 SCALARHF; LOADHF1; TIMES(Z0)
#define ADDMULHF1 SCALARHF; WIDENHF(0, Z8); TIMES(Z8); VADDPS Z8, Z0, Z0

// func mulBF16x512(dsts *unsafe.Pointer, nd int, srcs *unsafe.Pointer, ns int, bytes int, how int, scalars *uint64)
TEXT ·mulBF16x512(SB), NOSPLIT, $0-56
	ARGUMENTS
	SCALARS
	LANES(1, Z29)
	LANES(0x7fff, Z30)
	LANES(0x40, Z31)
	ROUNDED(128, LOADMULBF4, ADDMULBF4, ROUNDBF4, STOREH4, STREAMH4, TOUCH2, CLAIM2, loop4, next4, clean4, put4, plain4, stream4, done4, claim4, read4)
	ROUNDED(32, LOADMULBF1, ADDMULBF1, ROUNDBF1, STOREH1, STREAMH1, TOUCH(0), CLAIM(0), loop1, next1, clean1, put1, plain1, stream1, done1, claim1, read1)
	END

// func mulF16x512(dsts *unsafe.Pointer, nd int, srcs *unsafe.Pointer, ns int, bytes int, how int, scalars *uint64)
TEXT ·mulF16x512(SB), NOSPLIT, $0-56
	ARGUMENTS
	SCALARS
	LANES(0x8000, Z30)
	LANES(0x7e00, Z31)
	ROUNDED(128, LOADMULHF4, ADDMULHF4, ROUNDHF4, STOREH4, STREAMH4, TOUCH2, CLAIM2, loop4, next4, clean4, put4, plain4, stream4, done4, claim4, read4)
	ROUNDED(32, LOADMULHF1, ADDMULHF1, ROUNDHF1, STOREH1, STREAMH1, TOUCH(0), CLAIM(0), loop1, next1, clean1, put1, plain1, stream1, done1, claim1, read1)
	END

// func cpuid(leaf uint32) (b, d uint32)
TEXT ·cpuid(SB), NOSPLIT, $0-16
	MOVL leaf+0(FP), AX
	XORL CX, CX
	CPUID
	MOVL BX, b+8(FP)
	MOVL DX, d+12(FP)
	RET

// func touch(p unsafe.Pointer, bytes int)
//
// Loads the first word of every 64 bytes and stores it back.
TEXT ·touch(SB), NOSPLIT, $0-16
	MOVQ p+0(FP), BX
	MOVQ bytes+8(FP), R10
	ADDQ BX, R10
again:
	LEAQ 4(BX), AX
	CMPQ AX, R10
	JGT  over
	TOUCH(0)
	ADDQ $64, BX
	JMP  again
over:
	RET
