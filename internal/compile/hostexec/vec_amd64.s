#include "textflag.h"

// The vector primitives of vec.go: d[i] = op(a[i], b[i], c[i]), in AVX-512 and AVX2, float32 and float64.
//
// func vec...(v *vecArgs)
//
//	DI d   SI a   BX b   DX c   CX elements left   R8, R9, R10 bytes from vector to vector of a, b, c: 0 for one number
//	R11, R12, R13 three times these   AX which primitive
//
// A primitive is a macro on registers: R = op(R, S, T). Cheap ones do four vectors at a time; all end with a masked one.
// Every product is rounded before it is added, so that plain Go gives the same bits.
//
// Bound: loads and stores of the L1 cache for the cheap ones, multiplications and additions for the functions.

#define ARGUMENTS(SHIFT) \
	MOVQ v+0(FP), R8;    \
	MOVQ 0(R8), AX;      \
	MOVQ 8(R8), CX;      \
	MOVQ 16(R8), DI;     \
	MOVQ 24(R8), SI;     \
	MOVQ 32(R8), BX;     \
	MOVQ 40(R8), DX;     \
	MOVQ 56(R8), R9;     \
	MOVQ 64(R8), R10;    \
	MOVQ 48(R8), R8;     \
	SHLQ $SHIFT, R8;     \
	SHLQ $SHIFT, R9;     \
	SHLQ $SHIFT, R10;    \
	LEAQ (R8)(R8*2), R11; \
	LEAQ (R9)(R9*2), R12; \
	LEAQ (R10)(R10*2), R13


// Constants, a vector of each.

DATA one32<>+0(SB)/8, $0x3f8000003f800000
DATA one32<>+8(SB)/8, $0x3f8000003f800000
DATA one32<>+16(SB)/8, $0x3f8000003f800000
DATA one32<>+24(SB)/8, $0x3f8000003f800000
DATA one32<>+32(SB)/8, $0x3f8000003f800000
DATA one32<>+40(SB)/8, $0x3f8000003f800000
DATA one32<>+48(SB)/8, $0x3f8000003f800000
DATA one32<>+56(SB)/8, $0x3f8000003f800000
GLOBL one32<>(SB), RODATA, $64
DATA sign32<>+0(SB)/8, $0x8000000080000000
DATA sign32<>+8(SB)/8, $0x8000000080000000
DATA sign32<>+16(SB)/8, $0x8000000080000000
DATA sign32<>+24(SB)/8, $0x8000000080000000
DATA sign32<>+32(SB)/8, $0x8000000080000000
DATA sign32<>+40(SB)/8, $0x8000000080000000
DATA sign32<>+48(SB)/8, $0x8000000080000000
DATA sign32<>+56(SB)/8, $0x8000000080000000
GLOBL sign32<>(SB), RODATA, $64
DATA rest32<>+0(SB)/8, $0x7fffffff7fffffff
DATA rest32<>+8(SB)/8, $0x7fffffff7fffffff
DATA rest32<>+16(SB)/8, $0x7fffffff7fffffff
DATA rest32<>+24(SB)/8, $0x7fffffff7fffffff
DATA rest32<>+32(SB)/8, $0x7fffffff7fffffff
DATA rest32<>+40(SB)/8, $0x7fffffff7fffffff
DATA rest32<>+48(SB)/8, $0x7fffffff7fffffff
DATA rest32<>+56(SB)/8, $0x7fffffff7fffffff
GLOBL rest32<>(SB), RODATA, $64
DATA expMost<>+0(SB)/8, $0x42b2000042b20000
DATA expMost<>+8(SB)/8, $0x42b2000042b20000
DATA expMost<>+16(SB)/8, $0x42b2000042b20000
DATA expMost<>+24(SB)/8, $0x42b2000042b20000
DATA expMost<>+32(SB)/8, $0x42b2000042b20000
DATA expMost<>+40(SB)/8, $0x42b2000042b20000
DATA expMost<>+48(SB)/8, $0x42b2000042b20000
DATA expMost<>+56(SB)/8, $0x42b2000042b20000
GLOBL expMost<>(SB), RODATA, $64
DATA expLeast<>+0(SB)/8, $0xc3300000c3300000
DATA expLeast<>+8(SB)/8, $0xc3300000c3300000
DATA expLeast<>+16(SB)/8, $0xc3300000c3300000
DATA expLeast<>+24(SB)/8, $0xc3300000c3300000
DATA expLeast<>+32(SB)/8, $0xc3300000c3300000
DATA expLeast<>+40(SB)/8, $0xc3300000c3300000
DATA expLeast<>+48(SB)/8, $0xc3300000c3300000
DATA expLeast<>+56(SB)/8, $0xc3300000c3300000
GLOBL expLeast<>(SB), RODATA, $64
DATA log2e<>+0(SB)/8, $0x3fb8aa3b3fb8aa3b
DATA log2e<>+8(SB)/8, $0x3fb8aa3b3fb8aa3b
DATA log2e<>+16(SB)/8, $0x3fb8aa3b3fb8aa3b
DATA log2e<>+24(SB)/8, $0x3fb8aa3b3fb8aa3b
DATA log2e<>+32(SB)/8, $0x3fb8aa3b3fb8aa3b
DATA log2e<>+40(SB)/8, $0x3fb8aa3b3fb8aa3b
DATA log2e<>+48(SB)/8, $0x3fb8aa3b3fb8aa3b
DATA log2e<>+56(SB)/8, $0x3fb8aa3b3fb8aa3b
GLOBL log2e<>(SB), RODATA, $64
DATA ln2Hi<>+0(SB)/8, $0x3f3180003f318000
DATA ln2Hi<>+8(SB)/8, $0x3f3180003f318000
DATA ln2Hi<>+16(SB)/8, $0x3f3180003f318000
DATA ln2Hi<>+24(SB)/8, $0x3f3180003f318000
DATA ln2Hi<>+32(SB)/8, $0x3f3180003f318000
DATA ln2Hi<>+40(SB)/8, $0x3f3180003f318000
DATA ln2Hi<>+48(SB)/8, $0x3f3180003f318000
DATA ln2Hi<>+56(SB)/8, $0x3f3180003f318000
GLOBL ln2Hi<>(SB), RODATA, $64
DATA ln2Lo<>+0(SB)/8, $0xb95e8083b95e8083
DATA ln2Lo<>+8(SB)/8, $0xb95e8083b95e8083
DATA ln2Lo<>+16(SB)/8, $0xb95e8083b95e8083
DATA ln2Lo<>+24(SB)/8, $0xb95e8083b95e8083
DATA ln2Lo<>+32(SB)/8, $0xb95e8083b95e8083
DATA ln2Lo<>+40(SB)/8, $0xb95e8083b95e8083
DATA ln2Lo<>+48(SB)/8, $0xb95e8083b95e8083
DATA ln2Lo<>+56(SB)/8, $0xb95e8083b95e8083
GLOBL ln2Lo<>(SB), RODATA, $64
DATA rounder<>+0(SB)/8, $0x4b4000004b400000
DATA rounder<>+8(SB)/8, $0x4b4000004b400000
DATA rounder<>+16(SB)/8, $0x4b4000004b400000
DATA rounder<>+24(SB)/8, $0x4b4000004b400000
DATA rounder<>+32(SB)/8, $0x4b4000004b400000
DATA rounder<>+40(SB)/8, $0x4b4000004b400000
DATA rounder<>+48(SB)/8, $0x4b4000004b400000
DATA rounder<>+56(SB)/8, $0x4b4000004b400000
GLOBL rounder<>(SB), RODATA, $64
DATA bias<>+0(SB)/8, $0x0000007f0000007f
DATA bias<>+8(SB)/8, $0x0000007f0000007f
DATA bias<>+16(SB)/8, $0x0000007f0000007f
DATA bias<>+24(SB)/8, $0x0000007f0000007f
DATA bias<>+32(SB)/8, $0x0000007f0000007f
DATA bias<>+40(SB)/8, $0x0000007f0000007f
DATA bias<>+48(SB)/8, $0x0000007f0000007f
DATA bias<>+56(SB)/8, $0x0000007f0000007f
GLOBL bias<>(SB), RODATA, $64
DATA tiny<>+0(SB)/8, $0x0080000000800000
DATA tiny<>+8(SB)/8, $0x0080000000800000
DATA tiny<>+16(SB)/8, $0x0080000000800000
DATA tiny<>+24(SB)/8, $0x0080000000800000
DATA tiny<>+32(SB)/8, $0x0080000000800000
DATA tiny<>+40(SB)/8, $0x0080000000800000
DATA tiny<>+48(SB)/8, $0x0080000000800000
DATA tiny<>+56(SB)/8, $0x0080000000800000
GLOBL tiny<>(SB), RODATA, $64
DATA scaleUp<>+0(SB)/8, $0x4b0000004b000000
DATA scaleUp<>+8(SB)/8, $0x4b0000004b000000
DATA scaleUp<>+16(SB)/8, $0x4b0000004b000000
DATA scaleUp<>+24(SB)/8, $0x4b0000004b000000
DATA scaleUp<>+32(SB)/8, $0x4b0000004b000000
DATA scaleUp<>+40(SB)/8, $0x4b0000004b000000
DATA scaleUp<>+48(SB)/8, $0x4b0000004b000000
DATA scaleUp<>+56(SB)/8, $0x4b0000004b000000
GLOBL scaleUp<>(SB), RODATA, $64
DATA bias126<>+0(SB)/8, $0x0000007e0000007e
DATA bias126<>+8(SB)/8, $0x0000007e0000007e
DATA bias126<>+16(SB)/8, $0x0000007e0000007e
DATA bias126<>+24(SB)/8, $0x0000007e0000007e
DATA bias126<>+32(SB)/8, $0x0000007e0000007e
DATA bias126<>+40(SB)/8, $0x0000007e0000007e
DATA bias126<>+48(SB)/8, $0x0000007e0000007e
DATA bias126<>+56(SB)/8, $0x0000007e0000007e
GLOBL bias126<>(SB), RODATA, $64
DATA bias149<>+0(SB)/8, $0x0000009500000095
DATA bias149<>+8(SB)/8, $0x0000009500000095
DATA bias149<>+16(SB)/8, $0x0000009500000095
DATA bias149<>+24(SB)/8, $0x0000009500000095
DATA bias149<>+32(SB)/8, $0x0000009500000095
DATA bias149<>+40(SB)/8, $0x0000009500000095
DATA bias149<>+48(SB)/8, $0x0000009500000095
DATA bias149<>+56(SB)/8, $0x0000009500000095
GLOBL bias149<>(SB), RODATA, $64
DATA mantissa<>+0(SB)/8, $0x007fffff007fffff
DATA mantissa<>+8(SB)/8, $0x007fffff007fffff
DATA mantissa<>+16(SB)/8, $0x007fffff007fffff
DATA mantissa<>+24(SB)/8, $0x007fffff007fffff
DATA mantissa<>+32(SB)/8, $0x007fffff007fffff
DATA mantissa<>+40(SB)/8, $0x007fffff007fffff
DATA mantissa<>+48(SB)/8, $0x007fffff007fffff
DATA mantissa<>+56(SB)/8, $0x007fffff007fffff
GLOBL mantissa<>(SB), RODATA, $64
DATA half<>+0(SB)/8, $0x3f0000003f000000
DATA half<>+8(SB)/8, $0x3f0000003f000000
DATA half<>+16(SB)/8, $0x3f0000003f000000
DATA half<>+24(SB)/8, $0x3f0000003f000000
DATA half<>+32(SB)/8, $0x3f0000003f000000
DATA half<>+40(SB)/8, $0x3f0000003f000000
DATA half<>+48(SB)/8, $0x3f0000003f000000
DATA half<>+56(SB)/8, $0x3f0000003f000000
GLOBL half<>(SB), RODATA, $64
DATA rootHalf<>+0(SB)/8, $0x3f3504f33f3504f3
DATA rootHalf<>+8(SB)/8, $0x3f3504f33f3504f3
DATA rootHalf<>+16(SB)/8, $0x3f3504f33f3504f3
DATA rootHalf<>+24(SB)/8, $0x3f3504f33f3504f3
DATA rootHalf<>+32(SB)/8, $0x3f3504f33f3504f3
DATA rootHalf<>+40(SB)/8, $0x3f3504f33f3504f3
DATA rootHalf<>+48(SB)/8, $0x3f3504f33f3504f3
DATA rootHalf<>+56(SB)/8, $0x3f3504f33f3504f3
GLOBL rootHalf<>(SB), RODATA, $64
DATA infinity<>+0(SB)/8, $0x7f8000007f800000
DATA infinity<>+8(SB)/8, $0x7f8000007f800000
DATA infinity<>+16(SB)/8, $0x7f8000007f800000
DATA infinity<>+24(SB)/8, $0x7f8000007f800000
DATA infinity<>+32(SB)/8, $0x7f8000007f800000
DATA infinity<>+40(SB)/8, $0x7f8000007f800000
DATA infinity<>+48(SB)/8, $0x7f8000007f800000
DATA infinity<>+56(SB)/8, $0x7f8000007f800000
GLOBL infinity<>(SB), RODATA, $64
DATA minusInf<>+0(SB)/8, $0xff800000ff800000
DATA minusInf<>+8(SB)/8, $0xff800000ff800000
DATA minusInf<>+16(SB)/8, $0xff800000ff800000
DATA minusInf<>+24(SB)/8, $0xff800000ff800000
DATA minusInf<>+32(SB)/8, $0xff800000ff800000
DATA minusInf<>+40(SB)/8, $0xff800000ff800000
DATA minusInf<>+48(SB)/8, $0xff800000ff800000
DATA minusInf<>+56(SB)/8, $0xff800000ff800000
GLOBL minusInf<>(SB), RODATA, $64
DATA nan32<>+0(SB)/8, $0x7fc000007fc00000
DATA nan32<>+8(SB)/8, $0x7fc000007fc00000
DATA nan32<>+16(SB)/8, $0x7fc000007fc00000
DATA nan32<>+24(SB)/8, $0x7fc000007fc00000
DATA nan32<>+32(SB)/8, $0x7fc000007fc00000
DATA nan32<>+40(SB)/8, $0x7fc000007fc00000
DATA nan32<>+48(SB)/8, $0x7fc000007fc00000
DATA nan32<>+56(SB)/8, $0x7fc000007fc00000
GLOBL nan32<>(SB), RODATA, $64
DATA tanhSmall<>+0(SB)/8, $0x3f2000003f200000
DATA tanhSmall<>+8(SB)/8, $0x3f2000003f200000
DATA tanhSmall<>+16(SB)/8, $0x3f2000003f200000
DATA tanhSmall<>+24(SB)/8, $0x3f2000003f200000
DATA tanhSmall<>+32(SB)/8, $0x3f2000003f200000
DATA tanhSmall<>+40(SB)/8, $0x3f2000003f200000
DATA tanhSmall<>+48(SB)/8, $0x3f2000003f200000
DATA tanhSmall<>+56(SB)/8, $0x3f2000003f200000
GLOBL tanhSmall<>(SB), RODATA, $64
DATA two<>+0(SB)/8, $0x4000000040000000
DATA two<>+8(SB)/8, $0x4000000040000000
DATA two<>+16(SB)/8, $0x4000000040000000
DATA two<>+24(SB)/8, $0x4000000040000000
DATA two<>+32(SB)/8, $0x4000000040000000
DATA two<>+40(SB)/8, $0x4000000040000000
DATA two<>+48(SB)/8, $0x4000000040000000
DATA two<>+56(SB)/8, $0x4000000040000000
GLOBL two<>(SB), RODATA, $64
DATA exp0<>+0(SB)/8, $0x3950696739506967
DATA exp0<>+8(SB)/8, $0x3950696739506967
DATA exp0<>+16(SB)/8, $0x3950696739506967
DATA exp0<>+24(SB)/8, $0x3950696739506967
DATA exp0<>+32(SB)/8, $0x3950696739506967
DATA exp0<>+40(SB)/8, $0x3950696739506967
DATA exp0<>+48(SB)/8, $0x3950696739506967
DATA exp0<>+56(SB)/8, $0x3950696739506967
GLOBL exp0<>(SB), RODATA, $64
DATA exp1<>+0(SB)/8, $0x3ab743ce3ab743ce
DATA exp1<>+8(SB)/8, $0x3ab743ce3ab743ce
DATA exp1<>+16(SB)/8, $0x3ab743ce3ab743ce
DATA exp1<>+24(SB)/8, $0x3ab743ce3ab743ce
DATA exp1<>+32(SB)/8, $0x3ab743ce3ab743ce
DATA exp1<>+40(SB)/8, $0x3ab743ce3ab743ce
DATA exp1<>+48(SB)/8, $0x3ab743ce3ab743ce
DATA exp1<>+56(SB)/8, $0x3ab743ce3ab743ce
GLOBL exp1<>(SB), RODATA, $64
DATA exp2<>+0(SB)/8, $0x3c0889083c088908
DATA exp2<>+8(SB)/8, $0x3c0889083c088908
DATA exp2<>+16(SB)/8, $0x3c0889083c088908
DATA exp2<>+24(SB)/8, $0x3c0889083c088908
DATA exp2<>+32(SB)/8, $0x3c0889083c088908
DATA exp2<>+40(SB)/8, $0x3c0889083c088908
DATA exp2<>+48(SB)/8, $0x3c0889083c088908
DATA exp2<>+56(SB)/8, $0x3c0889083c088908
GLOBL exp2<>(SB), RODATA, $64
DATA exp3<>+0(SB)/8, $0x3d2aa9c13d2aa9c1
DATA exp3<>+8(SB)/8, $0x3d2aa9c13d2aa9c1
DATA exp3<>+16(SB)/8, $0x3d2aa9c13d2aa9c1
DATA exp3<>+24(SB)/8, $0x3d2aa9c13d2aa9c1
DATA exp3<>+32(SB)/8, $0x3d2aa9c13d2aa9c1
DATA exp3<>+40(SB)/8, $0x3d2aa9c13d2aa9c1
DATA exp3<>+48(SB)/8, $0x3d2aa9c13d2aa9c1
DATA exp3<>+56(SB)/8, $0x3d2aa9c13d2aa9c1
GLOBL exp3<>(SB), RODATA, $64
DATA exp4<>+0(SB)/8, $0x3e2aaaaa3e2aaaaa
DATA exp4<>+8(SB)/8, $0x3e2aaaaa3e2aaaaa
DATA exp4<>+16(SB)/8, $0x3e2aaaaa3e2aaaaa
DATA exp4<>+24(SB)/8, $0x3e2aaaaa3e2aaaaa
DATA exp4<>+32(SB)/8, $0x3e2aaaaa3e2aaaaa
DATA exp4<>+40(SB)/8, $0x3e2aaaaa3e2aaaaa
DATA exp4<>+48(SB)/8, $0x3e2aaaaa3e2aaaaa
DATA exp4<>+56(SB)/8, $0x3e2aaaaa3e2aaaaa
GLOBL exp4<>(SB), RODATA, $64
DATA exp5<>+0(SB)/8, $0x3f0000003f000000
DATA exp5<>+8(SB)/8, $0x3f0000003f000000
DATA exp5<>+16(SB)/8, $0x3f0000003f000000
DATA exp5<>+24(SB)/8, $0x3f0000003f000000
DATA exp5<>+32(SB)/8, $0x3f0000003f000000
DATA exp5<>+40(SB)/8, $0x3f0000003f000000
DATA exp5<>+48(SB)/8, $0x3f0000003f000000
DATA exp5<>+56(SB)/8, $0x3f0000003f000000
GLOBL exp5<>(SB), RODATA, $64
DATA log0<>+0(SB)/8, $0x3d9021bb3d9021bb
DATA log0<>+8(SB)/8, $0x3d9021bb3d9021bb
DATA log0<>+16(SB)/8, $0x3d9021bb3d9021bb
DATA log0<>+24(SB)/8, $0x3d9021bb3d9021bb
DATA log0<>+32(SB)/8, $0x3d9021bb3d9021bb
DATA log0<>+40(SB)/8, $0x3d9021bb3d9021bb
DATA log0<>+48(SB)/8, $0x3d9021bb3d9021bb
DATA log0<>+56(SB)/8, $0x3d9021bb3d9021bb
GLOBL log0<>(SB), RODATA, $64
DATA log1<>+0(SB)/8, $0xbdebd1b8bdebd1b8
DATA log1<>+8(SB)/8, $0xbdebd1b8bdebd1b8
DATA log1<>+16(SB)/8, $0xbdebd1b8bdebd1b8
DATA log1<>+24(SB)/8, $0xbdebd1b8bdebd1b8
DATA log1<>+32(SB)/8, $0xbdebd1b8bdebd1b8
DATA log1<>+40(SB)/8, $0xbdebd1b8bdebd1b8
DATA log1<>+48(SB)/8, $0xbdebd1b8bdebd1b8
DATA log1<>+56(SB)/8, $0xbdebd1b8bdebd1b8
GLOBL log1<>(SB), RODATA, $64
DATA log2<>+0(SB)/8, $0x3def251a3def251a
DATA log2<>+8(SB)/8, $0x3def251a3def251a
DATA log2<>+16(SB)/8, $0x3def251a3def251a
DATA log2<>+24(SB)/8, $0x3def251a3def251a
DATA log2<>+32(SB)/8, $0x3def251a3def251a
DATA log2<>+40(SB)/8, $0x3def251a3def251a
DATA log2<>+48(SB)/8, $0x3def251a3def251a
DATA log2<>+56(SB)/8, $0x3def251a3def251a
GLOBL log2<>(SB), RODATA, $64
DATA log3<>+0(SB)/8, $0xbdfe5d4fbdfe5d4f
DATA log3<>+8(SB)/8, $0xbdfe5d4fbdfe5d4f
DATA log3<>+16(SB)/8, $0xbdfe5d4fbdfe5d4f
DATA log3<>+24(SB)/8, $0xbdfe5d4fbdfe5d4f
DATA log3<>+32(SB)/8, $0xbdfe5d4fbdfe5d4f
DATA log3<>+40(SB)/8, $0xbdfe5d4fbdfe5d4f
DATA log3<>+48(SB)/8, $0xbdfe5d4fbdfe5d4f
DATA log3<>+56(SB)/8, $0xbdfe5d4fbdfe5d4f
GLOBL log3<>(SB), RODATA, $64
DATA log4<>+0(SB)/8, $0x3e11e9bf3e11e9bf
DATA log4<>+8(SB)/8, $0x3e11e9bf3e11e9bf
DATA log4<>+16(SB)/8, $0x3e11e9bf3e11e9bf
DATA log4<>+24(SB)/8, $0x3e11e9bf3e11e9bf
DATA log4<>+32(SB)/8, $0x3e11e9bf3e11e9bf
DATA log4<>+40(SB)/8, $0x3e11e9bf3e11e9bf
DATA log4<>+48(SB)/8, $0x3e11e9bf3e11e9bf
DATA log4<>+56(SB)/8, $0x3e11e9bf3e11e9bf
GLOBL log4<>(SB), RODATA, $64
DATA log5<>+0(SB)/8, $0xbe2aae50be2aae50
DATA log5<>+8(SB)/8, $0xbe2aae50be2aae50
DATA log5<>+16(SB)/8, $0xbe2aae50be2aae50
DATA log5<>+24(SB)/8, $0xbe2aae50be2aae50
DATA log5<>+32(SB)/8, $0xbe2aae50be2aae50
DATA log5<>+40(SB)/8, $0xbe2aae50be2aae50
DATA log5<>+48(SB)/8, $0xbe2aae50be2aae50
DATA log5<>+56(SB)/8, $0xbe2aae50be2aae50
GLOBL log5<>(SB), RODATA, $64
DATA log6<>+0(SB)/8, $0x3e4cceac3e4cceac
DATA log6<>+8(SB)/8, $0x3e4cceac3e4cceac
DATA log6<>+16(SB)/8, $0x3e4cceac3e4cceac
DATA log6<>+24(SB)/8, $0x3e4cceac3e4cceac
DATA log6<>+32(SB)/8, $0x3e4cceac3e4cceac
DATA log6<>+40(SB)/8, $0x3e4cceac3e4cceac
DATA log6<>+48(SB)/8, $0x3e4cceac3e4cceac
DATA log6<>+56(SB)/8, $0x3e4cceac3e4cceac
GLOBL log6<>(SB), RODATA, $64
DATA log7<>+0(SB)/8, $0xbe7ffffcbe7ffffc
DATA log7<>+8(SB)/8, $0xbe7ffffcbe7ffffc
DATA log7<>+16(SB)/8, $0xbe7ffffcbe7ffffc
DATA log7<>+24(SB)/8, $0xbe7ffffcbe7ffffc
DATA log7<>+32(SB)/8, $0xbe7ffffcbe7ffffc
DATA log7<>+40(SB)/8, $0xbe7ffffcbe7ffffc
DATA log7<>+48(SB)/8, $0xbe7ffffcbe7ffffc
DATA log7<>+56(SB)/8, $0xbe7ffffcbe7ffffc
GLOBL log7<>(SB), RODATA, $64
DATA log8<>+0(SB)/8, $0x3eaaaaaa3eaaaaaa
DATA log8<>+8(SB)/8, $0x3eaaaaaa3eaaaaaa
DATA log8<>+16(SB)/8, $0x3eaaaaaa3eaaaaaa
DATA log8<>+24(SB)/8, $0x3eaaaaaa3eaaaaaa
DATA log8<>+32(SB)/8, $0x3eaaaaaa3eaaaaaa
DATA log8<>+40(SB)/8, $0x3eaaaaaa3eaaaaaa
DATA log8<>+48(SB)/8, $0x3eaaaaaa3eaaaaaa
DATA log8<>+56(SB)/8, $0x3eaaaaaa3eaaaaaa
GLOBL log8<>(SB), RODATA, $64
DATA tanh0<>+0(SB)/8, $0xbbbaf0eabbbaf0ea
DATA tanh0<>+8(SB)/8, $0xbbbaf0eabbbaf0ea
DATA tanh0<>+16(SB)/8, $0xbbbaf0eabbbaf0ea
DATA tanh0<>+24(SB)/8, $0xbbbaf0eabbbaf0ea
DATA tanh0<>+32(SB)/8, $0xbbbaf0eabbbaf0ea
DATA tanh0<>+40(SB)/8, $0xbbbaf0eabbbaf0ea
DATA tanh0<>+48(SB)/8, $0xbbbaf0eabbbaf0ea
DATA tanh0<>+56(SB)/8, $0xbbbaf0eabbbaf0ea
GLOBL tanh0<>(SB), RODATA, $64
DATA tanh1<>+0(SB)/8, $0x3ca9134e3ca9134e
DATA tanh1<>+8(SB)/8, $0x3ca9134e3ca9134e
DATA tanh1<>+16(SB)/8, $0x3ca9134e3ca9134e
DATA tanh1<>+24(SB)/8, $0x3ca9134e3ca9134e
DATA tanh1<>+32(SB)/8, $0x3ca9134e3ca9134e
DATA tanh1<>+40(SB)/8, $0x3ca9134e3ca9134e
DATA tanh1<>+48(SB)/8, $0x3ca9134e3ca9134e
DATA tanh1<>+56(SB)/8, $0x3ca9134e3ca9134e
GLOBL tanh1<>(SB), RODATA, $64
DATA tanh2<>+0(SB)/8, $0xbd5c1e2dbd5c1e2d
DATA tanh2<>+8(SB)/8, $0xbd5c1e2dbd5c1e2d
DATA tanh2<>+16(SB)/8, $0xbd5c1e2dbd5c1e2d
DATA tanh2<>+24(SB)/8, $0xbd5c1e2dbd5c1e2d
DATA tanh2<>+32(SB)/8, $0xbd5c1e2dbd5c1e2d
DATA tanh2<>+40(SB)/8, $0xbd5c1e2dbd5c1e2d
DATA tanh2<>+48(SB)/8, $0xbd5c1e2dbd5c1e2d
DATA tanh2<>+56(SB)/8, $0xbd5c1e2dbd5c1e2d
GLOBL tanh2<>(SB), RODATA, $64
DATA tanh3<>+0(SB)/8, $0x3e0883933e088393
DATA tanh3<>+8(SB)/8, $0x3e0883933e088393
DATA tanh3<>+16(SB)/8, $0x3e0883933e088393
DATA tanh3<>+24(SB)/8, $0x3e0883933e088393
DATA tanh3<>+32(SB)/8, $0x3e0883933e088393
DATA tanh3<>+40(SB)/8, $0x3e0883933e088393
DATA tanh3<>+48(SB)/8, $0x3e0883933e088393
DATA tanh3<>+56(SB)/8, $0x3e0883933e088393
GLOBL tanh3<>(SB), RODATA, $64
DATA tanh4<>+0(SB)/8, $0xbeaaaa99beaaaa99
DATA tanh4<>+8(SB)/8, $0xbeaaaa99beaaaa99
DATA tanh4<>+16(SB)/8, $0xbeaaaa99beaaaa99
DATA tanh4<>+24(SB)/8, $0xbeaaaa99beaaaa99
DATA tanh4<>+32(SB)/8, $0xbeaaaa99beaaaa99
DATA tanh4<>+40(SB)/8, $0xbeaaaa99beaaaa99
DATA tanh4<>+48(SB)/8, $0xbeaaaa99beaaaa99
DATA tanh4<>+56(SB)/8, $0xbeaaaa99beaaaa99
GLOBL tanh4<>(SB), RODATA, $64
DATA one64<>+0(SB)/8, $0x3ff0000000000000
DATA one64<>+8(SB)/8, $0x3ff0000000000000
DATA one64<>+16(SB)/8, $0x3ff0000000000000
DATA one64<>+24(SB)/8, $0x3ff0000000000000
DATA one64<>+32(SB)/8, $0x3ff0000000000000
DATA one64<>+40(SB)/8, $0x3ff0000000000000
DATA one64<>+48(SB)/8, $0x3ff0000000000000
DATA one64<>+56(SB)/8, $0x3ff0000000000000
GLOBL one64<>(SB), RODATA, $64
DATA sign64<>+0(SB)/8, $0x8000000000000000
DATA sign64<>+8(SB)/8, $0x8000000000000000
DATA sign64<>+16(SB)/8, $0x8000000000000000
DATA sign64<>+24(SB)/8, $0x8000000000000000
DATA sign64<>+32(SB)/8, $0x8000000000000000
DATA sign64<>+40(SB)/8, $0x8000000000000000
DATA sign64<>+48(SB)/8, $0x8000000000000000
DATA sign64<>+56(SB)/8, $0x8000000000000000
GLOBL sign64<>(SB), RODATA, $64
DATA rest64<>+0(SB)/8, $0x7fffffffffffffff
DATA rest64<>+8(SB)/8, $0x7fffffffffffffff
DATA rest64<>+16(SB)/8, $0x7fffffffffffffff
DATA rest64<>+24(SB)/8, $0x7fffffffffffffff
DATA rest64<>+32(SB)/8, $0x7fffffffffffffff
DATA rest64<>+40(SB)/8, $0x7fffffffffffffff
DATA rest64<>+48(SB)/8, $0x7fffffffffffffff
DATA rest64<>+56(SB)/8, $0x7fffffffffffffff
GLOBL rest64<>(SB), RODATA, $64

// mask<>+32-n is the mask of the first n bytes of a vector.
DATA mask<>+0(SB)/8, $-1
DATA mask<>+8(SB)/8, $-1
DATA mask<>+16(SB)/8, $-1
DATA mask<>+24(SB)/8, $-1
DATA mask<>+32(SB)/8, $0
DATA mask<>+40(SB)/8, $0
DATA mask<>+48(SB)/8, $0
DATA mask<>+56(SB)/8, $0
GLOBL mask<>(SB), RODATA, $64

// Operands of 512 bits: four vectors, one, and one that is masked.

#define FOUR1x512 \
	VMOVUPS (SI), Z0; VMOVUPS (SI)(R8*1), Z1; VMOVUPS (SI)(R8*2), Z2; VMOVUPS (SI)(R11*1), Z3; LEAQ (SI)(R8*4), SI
#define ONE1x512 \
	VMOVUPS (SI), Z0; ADDQ R8, SI
#define REST1F32x512 \
	VMOVUPS.Z (SI), K1, Z0
#define REST1F64x512 \
	VMOVUPD.Z (SI), K1, Z0
#define FOUR2x512 \
	VMOVUPS (SI), Z0; VMOVUPS (SI)(R8*1), Z1; VMOVUPS (SI)(R8*2), Z2; VMOVUPS (SI)(R11*1), Z3; LEAQ (SI)(R8*4), SI; \
	VMOVUPS (BX), Z4; VMOVUPS (BX)(R9*1), Z5; VMOVUPS (BX)(R9*2), Z6; VMOVUPS (BX)(R12*1), Z7; LEAQ (BX)(R9*4), BX
#define ONE2x512 \
	VMOVUPS (SI), Z0; ADDQ R8, SI; VMOVUPS (BX), Z4; ADDQ R9, BX
#define REST2F32x512 \
	VMOVUPS.Z (SI), K1, Z0; VMOVUPS.Z (BX), K1, Z4
#define REST2F64x512 \
	VMOVUPD.Z (SI), K1, Z0; VMOVUPD.Z (BX), K1, Z4
#define FOUR3x512 \
	VMOVUPS (SI), Z0; VMOVUPS (SI)(R8*1), Z1; VMOVUPS (SI)(R8*2), Z2; VMOVUPS (SI)(R11*1), Z3; LEAQ (SI)(R8*4), SI; \
	VMOVUPS (BX), Z4; VMOVUPS (BX)(R9*1), Z5; VMOVUPS (BX)(R9*2), Z6; VMOVUPS (BX)(R12*1), Z7; LEAQ (BX)(R9*4), BX; \
	VMOVUPS (DX), Z8; VMOVUPS (DX)(R10*1), Z9; VMOVUPS (DX)(R10*2), Z10; VMOVUPS (DX)(R13*1), Z11; \
	LEAQ (DX)(R10*4), DX
#define ONE3x512 \
	VMOVUPS (SI), Z0; ADDQ R8, SI; VMOVUPS (BX), Z4; ADDQ R9, BX; VMOVUPS (DX), Z8; ADDQ R10, DX
#define REST3F32x512 \
	VMOVUPS.Z (SI), K1, Z0; VMOVUPS.Z (BX), K1, Z4; VMOVUPS.Z (DX), K1, Z8
#define REST3F64x512 \
	VMOVUPD.Z (SI), K1, Z0; VMOVUPD.Z (BX), K1, Z4; VMOVUPD.Z (DX), K1, Z8

// Operands of 256 bits: four vectors, one, and one that is masked.

#define FOUR1x256 \
	VMOVUPS (SI), Y0; VMOVUPS (SI)(R8*1), Y1; VMOVUPS (SI)(R8*2), Y2; VMOVUPS (SI)(R11*1), Y3; LEAQ (SI)(R8*4), SI
#define ONE1x256 \
	VMOVUPS (SI), Y0; ADDQ R8, SI
#define REST1F32x256 \
	VMASKMOVPS (SI), Y15, Y0
#define REST1F64x256 \
	VMASKMOVPD (SI), Y15, Y0
#define FOUR2x256 \
	VMOVUPS (SI), Y0; VMOVUPS (SI)(R8*1), Y1; VMOVUPS (SI)(R8*2), Y2; VMOVUPS (SI)(R11*1), Y3; LEAQ (SI)(R8*4), SI; \
	VMOVUPS (BX), Y4; VMOVUPS (BX)(R9*1), Y5; VMOVUPS (BX)(R9*2), Y6; VMOVUPS (BX)(R12*1), Y7; LEAQ (BX)(R9*4), BX
#define ONE2x256 \
	VMOVUPS (SI), Y0; ADDQ R8, SI; VMOVUPS (BX), Y4; ADDQ R9, BX
#define REST2F32x256 \
	VMASKMOVPS (SI), Y15, Y0; VMASKMOVPS (BX), Y15, Y4
#define REST2F64x256 \
	VMASKMOVPD (SI), Y15, Y0; VMASKMOVPD (BX), Y15, Y4
#define FOUR3x256 \
	VMOVUPS (SI), Y0; VMOVUPS (SI)(R8*1), Y1; VMOVUPS (SI)(R8*2), Y2; VMOVUPS (SI)(R11*1), Y3; LEAQ (SI)(R8*4), SI; \
	VMOVUPS (BX), Y4; VMOVUPS (BX)(R9*1), Y5; VMOVUPS (BX)(R9*2), Y6; VMOVUPS (BX)(R12*1), Y7; LEAQ (BX)(R9*4), BX; \
	VMOVUPS (DX), Y8; VMOVUPS (DX)(R10*1), Y9; VMOVUPS (DX)(R10*2), Y10; VMOVUPS (DX)(R13*1), Y11; \
	LEAQ (DX)(R10*4), DX
#define ONE3x256 \
	VMOVUPS (SI), Y0; ADDQ R8, SI; VMOVUPS (BX), Y4; ADDQ R9, BX; VMOVUPS (DX), Y8; ADDQ R10, DX
#define REST3F32x256 \
	VMASKMOVPS (SI), Y15, Y0; VMASKMOVPS (BX), Y15, Y4; VMASKMOVPS (DX), Y15, Y8
#define REST3F64x256 \
	VMASKMOVPD (SI), Y15, Y0; VMASKMOVPD (BX), Y15, Y4; VMASKMOVPD (DX), Y15, Y8

// PRIMITIVE is a cheap primitive, MASK makes the mask of the CX elements that are left, PER is the
// elements of a vector.
#define PRIMITIVE512(NAME, PER, FOUR, ONE, REST, INIT, OP, PUT) \
TEXT NAME<>(SB), NOSPLIT, $0-0; \
	INIT;                  \
	SUBQ $(4*PER), CX;     \
	JLT  few;              \
four:                      \
	FOUR;                  \
	OP(Z0, Z4, Z8);        \
	OP(Z1, Z5, Z9);        \
	OP(Z2, Z6, Z10);       \
	OP(Z3, Z7, Z11);       \
	VMOVUPS Z0, (DI);      \
	VMOVUPS Z1, 64(DI);    \
	VMOVUPS Z2, 128(DI);   \
	VMOVUPS Z3, 192(DI);   \
	ADDQ $256, DI;         \
	SUBQ $(4*PER), CX;     \
	JGE  four;             \
few:                       \
	ADDQ $(4*PER), CX;     \
	SUBQ $PER, CX;         \
	JLT  rest;             \
one:                       \
	ONE;                   \
	OP(Z0, Z4, Z8);        \
	VMOVUPS Z0, (DI);      \
	ADDQ $64, DI;          \
	SUBQ $PER, CX;         \
	JGE  one;              \
rest:                      \
	ADDQ $PER, CX;         \
	JZ   done;             \
	MOVQ $1, AX;           \
	SHLQ CX, AX;           \
	DECQ AX;               \
	KMOVW AX, K1;          \
	REST;                  \
	OP(Z0, Z4, Z8);        \
	PUT Z0, K1, (DI);      \
done:                      \
	VZEROUPPER;            \
	RET

// FUNCTION is a primitive that is slow enough to be done a vector at a time.
#define FUNCTION512(NAME, OP) \
TEXT NAME<>(SB), NOSPLIT, $0-0; \
	SUBQ $16, CX;          \
	JLT  rest;             \
one:                       \
	ONE1x512;              \
	OP;                    \
	VMOVUPS Z0, (DI);      \
	ADDQ $64, DI;          \
	SUBQ $16, CX;          \
	JGE  one;              \
rest:                      \
	ADDQ $16, CX;          \
	JZ   done;             \
	MOVQ $1, AX;           \
	SHLQ CX, AX;           \
	DECQ AX;               \
	KMOVW AX, K1;          \
	REST1F32x512;          \
	OP;                    \
	VMOVUPS Z0, K1, (DI);  \
done:                      \
	VZEROUPPER;            \
	RET

// SHIFT is the logarithm of the bytes of an element.
#define PRIMITIVE256(NAME, PER, SHIFT, FOUR, ONE, REST, INIT, OP, PUT) \
TEXT NAME<>(SB), NOSPLIT, $0-0; \
	INIT;                  \
	SUBQ $(4*PER), CX;     \
	JLT  few;              \
four:                      \
	FOUR;                  \
	OP(Y0, Y4, Y8);        \
	OP(Y1, Y5, Y9);        \
	OP(Y2, Y6, Y10);       \
	OP(Y3, Y7, Y11);       \
	VMOVUPS Y0, (DI);      \
	VMOVUPS Y1, 32(DI);    \
	VMOVUPS Y2, 64(DI);    \
	VMOVUPS Y3, 96(DI);    \
	ADDQ $128, DI;         \
	SUBQ $(4*PER), CX;     \
	JGE  four;             \
few:                       \
	ADDQ $(4*PER), CX;     \
	SUBQ $PER, CX;         \
	JLT  rest;             \
one:                       \
	ONE;                   \
	OP(Y0, Y4, Y8);        \
	VMOVUPS Y0, (DI);      \
	ADDQ $32, DI;          \
	SUBQ $PER, CX;         \
	JGE  one;              \
rest:                      \
	ADDQ $PER, CX;         \
	JZ   done;             \
	MASK256(SHIFT);        \
	REST;                  \
	OP(Y0, Y4, Y8);        \
	PUT Y0, Y15, (DI);     \
done:                      \
	VZEROUPPER;            \
	RET

#define MASK256(SHIFT) \
	LEAQ mask<>+32(SB), R11; \
	MOVQ CX, AX;           \
	SHLQ $SHIFT, AX;       \
	SUBQ AX, R11;          \
	VMOVDQU (R11), Y15

#define FUNCTION256(NAME, OP) \
TEXT NAME<>(SB), NOSPLIT, $0-0; \
	SUBQ $8, CX;           \
	JLT  rest;             \
one:                       \
	ONE1x256;              \
	OP;                    \
	VMOVUPS Y0, (DI);      \
	ADDQ $32, DI;          \
	SUBQ $8, CX;           \
	JGE  one;              \
rest:                      \
	ADDQ $8, CX;           \
	JZ   done;             \
	MASK256(2);            \
	REST1F32x256;          \
	OP;                    \
	VMASKMOVPS Y0, Y15, (DI); \
done:                      \
	VZEROUPPER;            \
	RET

#define NOTHING
#define ZERO512 VPXORD Z31, Z31, Z31

// EXP sets R = exp(R), with A, B and C as temporaries: see exp32.
#define EXP(R, A, B, C) \
	VMOVUPS expMost<>(SB), A; VMINPS R, A, R;   \
	VMOVUPS expLeast<>(SB), A; VMAXPS R, A, R;  \
	VMULPS log2e<>(SB), R, A;                   \
	VADDPS rounder<>(SB), A, A; VSUBPS rounder<>(SB), A, A; \
	VMULPS ln2Hi<>(SB), A, B; VSUBPS B, R, R;   \
	VMULPS ln2Lo<>(SB), A, B; VSUBPS B, R, R;   \
	VMULPS exp0<>(SB), R, B; VADDPS exp1<>(SB), B, B; \
	VMULPS R, B, B; VADDPS exp2<>(SB), B, B;    \
	VMULPS R, B, B; VADDPS exp3<>(SB), B, B;    \
	VMULPS R, B, B; VADDPS exp4<>(SB), B, B;    \
	VMULPS R, B, B; VADDPS exp5<>(SB), B, B;    \
	VMULPS R, R, C; VMULPS C, B, B; VADDPS R, B, B; VADDPS one32<>(SB), B, B; \
	VCVTPS2DQ A, A; VPSRAD $1, A, C; VPSUBD C, A, A; \
	VPADDD bias<>(SB), C, C; VPSLLD $23, C, C;  \
	VPADDD bias<>(SB), A, A; VPSLLD $23, A, A;  \
	VMULPS C, B, B; VMULPS A, B, R

// LOGTERMS sets B to the logarithm of 2^E*(1+R), with Z and C as temporaries: see log32.
#define LOGTERMS(R, E, B, Z, C) \
	VMULPS R, R, Z;                             \
	VMULPS log0<>(SB), R, B; VADDPS log1<>(SB), B, B; \
	VMULPS R, B, B; VADDPS log2<>(SB), B, B;    \
	VMULPS R, B, B; VADDPS log3<>(SB), B, B;    \
	VMULPS R, B, B; VADDPS log4<>(SB), B, B;    \
	VMULPS R, B, B; VADDPS log5<>(SB), B, B;    \
	VMULPS R, B, B; VADDPS log6<>(SB), B, B;    \
	VMULPS R, B, B; VADDPS log7<>(SB), B, B;    \
	VMULPS R, B, B; VADDPS log8<>(SB), B, B;    \
	VMULPS R, B, B; VMULPS Z, B, B;             \
	VMULPS ln2Lo<>(SB), E, C; VADDPS C, B, B;   \
	VMULPS half<>(SB), Z, C; VSUBPS C, B, B;    \
	VADDPS R, B, B;                             \
	VMULPS ln2Hi<>(SB), E, C; VADDPS C, B, B

#define LOG512 \
	VMOVUPS Z0, Z7;                             \
	VCMPPS $17, tiny<>(SB), Z0, K2;             \
	VMULPS scaleUp<>(SB), Z0, K2, Z0;           \
	VMOVDQU32 bias126<>(SB), Z1; VMOVDQU32 bias149<>(SB), K2, Z1; \
	VPSRLD $23, Z0, Z2; VPSUBD Z1, Z2, Z2; VCVTDQ2PS Z2, Z2; \
	VPANDD mantissa<>(SB), Z0, Z0; VPORD half<>(SB), Z0, Z0; \
	VCMPPS $17, rootHalf<>(SB), Z0, K2;         \
	VSUBPS one32<>(SB), Z2, K2, Z2; VADDPS Z0, Z0, K2, Z0; \
	VSUBPS one32<>(SB), Z0, Z0;                 \
	LOGTERMS(Z0, Z2, Z3, Z4, Z5);               \
	VPXORD Z5, Z5, Z5;                          \
	VCMPPS $17, Z5, Z7, K2; VMOVUPS nan32<>(SB), K2, Z3; \
	VCMPPS $0, Z5, Z7, K2; VMOVUPS minusInf<>(SB), K2, Z3; \
	VCMPPS $21, infinity<>(SB), Z7, K2; VMOVUPS Z7, K2, Z3; \
	VMOVUPS Z3, Z0

#define LOG256 \
	VMOVUPS Y0, Y7;                             \
	VCMPPS $17, tiny<>(SB), Y0, Y6;             \
	VMULPS scaleUp<>(SB), Y0, Y1; VBLENDVPS Y6, Y1, Y0, Y0; \
	VMOVDQU bias126<>(SB), Y1; VBLENDVPS Y6, bias149<>(SB), Y1, Y1; \
	VPSRLD $23, Y0, Y2; VPSUBD Y1, Y2, Y2; VCVTDQ2PS Y2, Y2; \
	VANDPS mantissa<>(SB), Y0, Y0; VORPS half<>(SB), Y0, Y0; \
	VCMPPS $17, rootHalf<>(SB), Y0, Y6;         \
	VSUBPS one32<>(SB), Y2, Y1; VBLENDVPS Y6, Y1, Y2, Y2; \
	VADDPS Y0, Y0, Y1; VBLENDVPS Y6, Y1, Y0, Y0; \
	VSUBPS one32<>(SB), Y0, Y0;                 \
	LOGTERMS(Y0, Y2, Y3, Y4, Y5);               \
	VXORPS Y5, Y5, Y5;                          \
	VCMPPS $17, Y5, Y7, Y6; VBLENDVPS Y6, nan32<>(SB), Y3, Y3; \
	VCMPPS $0, Y5, Y7, Y6; VBLENDVPS Y6, minusInf<>(SB), Y3, Y3; \
	VCMPPS $21, infinity<>(SB), Y7, Y6; VBLENDVPS Y6, Y7, Y3, Y0

// TANHS sets B = tanh(X) by the series for small X, and R to that of large ones without its sign,
// from R = abs(X): see tanh32.
#define TANHS(R, X, A, B, C, D) \
	VADDPS R, R, R;                             \
	EXP(R, A, B, C);                            \
	VADDPS one32<>(SB), R, R; VMOVUPS two<>(SB), A; VDIVPS R, A, A; \
	VMOVUPS one32<>(SB), R; VSUBPS A, R, R;     \
	VMULPS X, X, D;                             \
	VMULPS tanh0<>(SB), D, B; VADDPS tanh1<>(SB), B, B; \
	VMULPS D, B, B; VADDPS tanh2<>(SB), B, B;   \
	VMULPS D, B, B; VADDPS tanh3<>(SB), B, B;   \
	VMULPS D, B, B; VADDPS tanh4<>(SB), B, B;   \
	VMULPS D, B, B; VMULPS X, B, B; VADDPS X, B, B

#define TANH512 \
	VMOVUPS Z0, Z7;                             \
	VPANDD rest32<>(SB), Z0, Z0;                \
	VCMPPS $29, tanhSmall<>(SB), Z0, K2;        \
	TANHS(Z0, Z7, Z1, Z2, Z3, Z4);              \
	VPANDD sign32<>(SB), Z7, Z7; VPORD Z7, Z0, Z0; \
	VMOVUPS Z0, K2, Z2; VMOVUPS Z2, Z0

#define TANH256 \
	VMOVUPS Y0, Y7;                             \
	VANDPS rest32<>(SB), Y0, Y0;                \
	VCMPPS $29, tanhSmall<>(SB), Y0, Y6;        \
	TANHS(Y0, Y7, Y1, Y2, Y3, Y4);              \
	VANDPS sign32<>(SB), Y7, Y7; VORPS Y7, Y0, Y0; \
	VBLENDVPS Y6, Y0, Y2, Y0

#define SIGMOID512 \
	VPXORD sign32<>(SB), Z0, Z0;                \
	EXP(Z0, Z1, Z2, Z3);                        \
	VADDPS one32<>(SB), Z0, Z0; VMOVUPS one32<>(SB), Z1; VDIVPS Z0, Z1, Z0

#define SIGMOID256 \
	VXORPS sign32<>(SB), Y0, Y0;                \
	EXP(Y0, Y1, Y2, Y3);                        \
	VADDPS one32<>(SB), Y0, Y0; VMOVUPS one32<>(SB), Y1; VDIVPS Y0, Y1, Y0

#define EXP512 EXP(Z0, Z1, Z2, Z3)
#define EXP256 EXP(Y0, Y1, Y2, Y3)

// FOLD512 folds a (CX elements) into the 64 lanes at d: lane i = op(lane i, a[i], a[i+64], ...). The last elements, fewer
// than 64, go to the first lanes only.
#define FOLD512(NAME, OP) \
TEXT NAME<>(SB), NOSPLIT, $0-0; \
	VMOVUPS (DI), Z0;      \
	VMOVUPS 64(DI), Z1;    \
	VMOVUPS 128(DI), Z2;   \
	VMOVUPS 192(DI), Z3;   \
	SUBQ $64, CX;          \
	JLT  rest;             \
all:                       \
	VMOVUPS (SI), Z4;      \
	VMOVUPS 64(SI), Z5;    \
	VMOVUPS 128(SI), Z6;   \
	VMOVUPS 192(SI), Z7;   \
	OP(Z0, Z4, Z8);        \
	OP(Z1, Z5, Z8);        \
	OP(Z2, Z6, Z8);        \
	OP(Z3, Z7, Z8);        \
	ADDQ $256, SI;         \
	SUBQ $64, CX;          \
	JGE  all;              \
rest:                      \
	ADDQ $64, CX;          \
	JZ   done;             \
	MOVQ $1, AX;           \
	SHLQ CX, AX;           \
	DECQ AX;               \
	SOME512(0, Z0, OP);    \
	SOME512(64, Z1, OP);   \
	SOME512(128, Z2, OP);  \
	SOME512(192, Z3, OP);  \
done:                      \
	VMOVUPS Z0, (DI);      \
	VMOVUPS Z1, 64(DI);    \
	VMOVUPS Z2, 128(DI);   \
	VMOVUPS Z3, 192(DI);   \
	VZEROUPPER;            \
	RET

// SOME512 folds the elements of AX's lowest bits, at an offset.
#define SOME512(at, R, OP) \
	KMOVW AX, K1;          \
	SHRQ $16, AX;          \
	VMOVUPS.Z at(SI), K1, Z4; \
	VMOVUPS R, Z5;         \
	OP(R, Z4, Z8);         \
	VBLENDMPS R, Z5, K1, R

#define FOLD256(NAME, OP) \
TEXT NAME<>(SB), NOSPLIT, $0-0; \
	VMOVUPS (DI), Y0;      \
	VMOVUPS 32(DI), Y1;    \
	VMOVUPS 64(DI), Y2;    \
	VMOVUPS 96(DI), Y3;    \
	VMOVUPS 128(DI), Y4;   \
	VMOVUPS 160(DI), Y5;   \
	VMOVUPS 192(DI), Y6;   \
	VMOVUPS 224(DI), Y7;   \
	SUBQ $64, CX;          \
	JLT  rest;             \
all:                       \
	VMOVUPS (SI), Y8; OP(Y0, Y8, Y9);     \
	VMOVUPS 32(SI), Y8; OP(Y1, Y8, Y9);   \
	VMOVUPS 64(SI), Y8; OP(Y2, Y8, Y9);   \
	VMOVUPS 96(SI), Y8; OP(Y3, Y8, Y9);   \
	VMOVUPS 128(SI), Y8; OP(Y4, Y8, Y9);  \
	VMOVUPS 160(SI), Y8; OP(Y5, Y8, Y9);  \
	VMOVUPS 192(SI), Y8; OP(Y6, Y8, Y9);  \
	VMOVUPS 224(SI), Y8; OP(Y7, Y8, Y9);  \
	ADDQ $256, SI;         \
	SUBQ $64, CX;          \
	JGE  all;              \
rest:                      \
	ADDQ $64, CX;          \
	JZ   done;             \
	SOME256(0, Y0, OP);    \
	SOME256(32, Y1, OP);   \
	SOME256(64, Y2, OP);   \
	SOME256(96, Y3, OP);   \
	SOME256(128, Y4, OP);  \
	SOME256(160, Y5, OP);  \
	SOME256(192, Y6, OP);  \
	SOME256(224, Y7, OP);  \
done:                      \
	VMOVUPS Y0, (DI);      \
	VMOVUPS Y1, 32(DI);    \
	VMOVUPS Y2, 64(DI);    \
	VMOVUPS Y3, 96(DI);    \
	VMOVUPS Y4, 128(DI);   \
	VMOVUPS Y5, 160(DI);   \
	VMOVUPS Y6, 192(DI);   \
	VMOVUPS Y7, 224(DI);   \
	VZEROUPPER;            \
	RET

// SOME256 folds up to 8 of the CX elements that are left, at an offset, and subtracts them from CX.
#define SOME256(at, R, OP) \
	MOVQ CX, AX;           \
	MOVQ $8, R8;           \
	CMPQ AX, R8;           \
	CMOVQGT R8, AX;        \
	SUBQ AX, CX;           \
	SHLQ $2, AX;           \
	LEAQ mask<>+32(SB), R8; \
	SUBQ AX, R8;           \
	VMOVDQU (R8), Y15;     \
	VMASKMOVPS at(SI), Y15, Y8; \
	VMOVUPS R, Y9;         \
	OP(R, Y8, Y10);        \
	VBLENDVPS Y15, R, Y9, R

// REDUCE512 sets d[0] to the reduction of a: FOLD512 into lanes of INIT, which are then joined,
// half onto half.
#define REDUCE512(NAME, INIT, OP) \
TEXT NAME<>(SB), NOSPLIT, $0-0; \
	INIT;                  \
	VMOVAPS Z0, Z1;        \
	VMOVAPS Z0, Z2;        \
	VMOVAPS Z0, Z3;        \
	SUBQ $64, CX;          \
	JLT  rest;             \
all:                       \
	VMOVUPS (SI), Z4;      \
	VMOVUPS 64(SI), Z5;    \
	VMOVUPS 128(SI), Z6;   \
	VMOVUPS 192(SI), Z7;   \
	OP(Z0, Z4, Z8);        \
	OP(Z1, Z5, Z8);        \
	OP(Z2, Z6, Z8);        \
	OP(Z3, Z7, Z8);        \
	ADDQ $256, SI;         \
	SUBQ $64, CX;          \
	JGE  all;              \
rest:                      \
	ADDQ $64, CX;          \
	JZ   join;             \
	MOVQ $1, AX;           \
	SHLQ CX, AX;           \
	DECQ AX;               \
	SOME512(0, Z0, OP);    \
	SOME512(64, Z1, OP);   \
	SOME512(128, Z2, OP);  \
	SOME512(192, Z3, OP);  \
join:                      \
	OP(Z0, Z2, Z8);        \
	OP(Z1, Z3, Z8);        \
	OP(Z0, Z1, Z8);        \
	VEXTRACTF32X8 $1, Z0, Y1; \
	OP(Z0, Z1, Z8);        \
	VEXTRACTF128 $1, Y0, X1; \
	OP(Z0, Z1, Z8);        \
	VPSHUFD $14, X0, X1;   \
	OP(Z0, Z1, Z8);        \
	VPSHUFD $1, X0, X1;    \
	OP(Z0, Z1, Z8);        \
	VMOVSS X0, (DI);       \
	VZEROUPPER;            \
	RET

#define REDUCE256(NAME, INIT, OP) \
TEXT NAME<>(SB), NOSPLIT, $0-0; \
	INIT;                  \
	VMOVAPS Y0, Y1;        \
	VMOVAPS Y0, Y2;        \
	VMOVAPS Y0, Y3;        \
	VMOVAPS Y0, Y4;        \
	VMOVAPS Y0, Y5;        \
	VMOVAPS Y0, Y6;        \
	VMOVAPS Y0, Y7;        \
	SUBQ $64, CX;          \
	JLT  rest;             \
all:                       \
	VMOVUPS (SI), Y8; OP(Y0, Y8, Y9);     \
	VMOVUPS 32(SI), Y8; OP(Y1, Y8, Y9);   \
	VMOVUPS 64(SI), Y8; OP(Y2, Y8, Y9);   \
	VMOVUPS 96(SI), Y8; OP(Y3, Y8, Y9);   \
	VMOVUPS 128(SI), Y8; OP(Y4, Y8, Y9);  \
	VMOVUPS 160(SI), Y8; OP(Y5, Y8, Y9);  \
	VMOVUPS 192(SI), Y8; OP(Y6, Y8, Y9);  \
	VMOVUPS 224(SI), Y8; OP(Y7, Y8, Y9);  \
	ADDQ $256, SI;         \
	SUBQ $64, CX;          \
	JGE  all;              \
rest:                      \
	ADDQ $64, CX;          \
	JZ   join;             \
	SOME256(0, Y0, OP);    \
	SOME256(32, Y1, OP);   \
	SOME256(64, Y2, OP);   \
	SOME256(96, Y3, OP);   \
	SOME256(128, Y4, OP);  \
	SOME256(160, Y5, OP);  \
	SOME256(192, Y6, OP);  \
	SOME256(224, Y7, OP);  \
join:                      \
	OP(Y0, Y4, Y9);        \
	OP(Y1, Y5, Y9);        \
	OP(Y2, Y6, Y9);        \
	OP(Y3, Y7, Y9);        \
	OP(Y0, Y2, Y9);        \
	OP(Y1, Y3, Y9);        \
	OP(Y0, Y1, Y9);        \
	VEXTRACTF128 $1, Y0, X1; \
	OP(Y0, Y1, Y9);        \
	VPSHUFD $14, X0, X1;   \
	OP(Y0, Y1, Y9);        \
	VPSHUFD $1, X0, X1;    \
	OP(Y0, Y1, Y9);        \
	VMOVSS X0, (DI);       \
	VZEROUPPER;            \
	RET

#define NOUGHT512 VPXORD Z0, Z0, Z0
#define NOUGHT256 VXORPS Y0, Y0, Y0
#define LOWEST512 VMOVUPS minusInf<>(SB), Z0
#define LOWEST256 VMOVUPS minusInf<>(SB), Y0

// float32 in 512 bits.

#define COPY32x512(R, S, T)
#define NEG32x512(R, S, T) VPXORQ sign32<>(SB), R, R
#define ABS32x512(R, S, T) VPANDQ rest32<>(SB), R, R
#define CEIL32x512(R, S, T) VRNDSCALEPS $10, R, R
#define FLOOR32x512(R, S, T) VRNDSCALEPS $9, R, R
#define SQUARE32x512(R, S, T) VMULPS R, R, R
#define CUBE32x512(R, S, T) VMULPS R, R, S; VMULPS R, S, R
#define SQRT32x512(R, S, T) VSQRTPS R, R
#define RSQRT32x512(R, S, T) VSQRTPS R, R; VMOVUPS one32<>(SB), S; VDIVPS R, S, R
#define INVERSE32x512(R, S, T) VMOVUPS one32<>(SB), S; VDIVPS R, S, R
#define ADD32x512(R, S, T) VADDPS S, R, R
#define SUB32x512(R, S, T) VSUBPS S, R, R
#define MUL32x512(R, S, T) VMULPS S, R, R
#define DIV32x512(R, S, T) VDIVPS S, R, R
#define MAXIMUM32x512(R, S, T) \
	VMAXPS S, R, Z16; VMAXPS R, S, Z17; VPANDQ Z17, Z16, Z16; \
	VCMPPS $3, S, R, K2; VADDPS S, R, K2, Z16; VMOVUPS Z16, R
#define MINIMUM32x512(R, S, T) \
	VMINPS S, R, Z16; VMINPS R, S, Z17; VPORQ Z17, Z16, Z16; \
	VCMPPS $3, S, R, K2; VADDPS S, R, K2, Z16; VMOVUPS Z16, R
#define LESS32x512(R, S, T) VCMPPS $17, S, R, K2; VMOVUPS.Z one32<>(SB), K2, R
#define LESSEQUAL32x512(R, S, T) VCMPPS $18, S, R, K2; VMOVUPS.Z one32<>(SB), K2, R
#define GREATER32x512(R, S, T) VCMPPS $30, S, R, K2; VMOVUPS.Z one32<>(SB), K2, R
#define GREATEREQUAL32x512(R, S, T) VCMPPS $29, S, R, K2; VMOVUPS.Z one32<>(SB), K2, R
#define EQUAL32x512(R, S, T) VCMPPS $0, S, R, K2; VMOVUPS.Z one32<>(SB), K2, R
#define NOTEQUAL32x512(R, S, T) VCMPPS $4, S, R, K2; VMOVUPS.Z one32<>(SB), K2, R
#define SELECT32x512(R, S, T) VCMPPS $4, Z31, R, K2; VMOVUPS S, K2, T; VMOVUPS T, R
#define MULADD32x512(R, S, T) VMULPS S, R, R; VADDPS T, R, R

PRIMITIVE512(copyF32x512, 16, FOUR1x512, ONE1x512, REST1F32x512, NOTHING, COPY32x512, VMOVUPS)
PRIMITIVE512(negF32x512, 16, FOUR1x512, ONE1x512, REST1F32x512, NOTHING, NEG32x512, VMOVUPS)
PRIMITIVE512(absF32x512, 16, FOUR1x512, ONE1x512, REST1F32x512, NOTHING, ABS32x512, VMOVUPS)
PRIMITIVE512(ceilF32x512, 16, FOUR1x512, ONE1x512, REST1F32x512, NOTHING, CEIL32x512, VMOVUPS)
PRIMITIVE512(floorF32x512, 16, FOUR1x512, ONE1x512, REST1F32x512, NOTHING, FLOOR32x512, VMOVUPS)
PRIMITIVE512(squareF32x512, 16, FOUR1x512, ONE1x512, REST1F32x512, NOTHING, SQUARE32x512, VMOVUPS)
PRIMITIVE512(cubeF32x512, 16, FOUR1x512, ONE1x512, REST1F32x512, NOTHING, CUBE32x512, VMOVUPS)
PRIMITIVE512(sqrtF32x512, 16, FOUR1x512, ONE1x512, REST1F32x512, NOTHING, SQRT32x512, VMOVUPS)
PRIMITIVE512(rsqrtF32x512, 16, FOUR1x512, ONE1x512, REST1F32x512, NOTHING, RSQRT32x512, VMOVUPS)
PRIMITIVE512(inverseF32x512, 16, FOUR1x512, ONE1x512, REST1F32x512, NOTHING, INVERSE32x512, VMOVUPS)
FUNCTION512(expF32x512, EXP512)
FUNCTION512(logF32x512, LOG512)
FUNCTION512(tanhF32x512, TANH512)
FUNCTION512(sigmoidF32x512, SIGMOID512)
PRIMITIVE512(addF32x512, 16, FOUR2x512, ONE2x512, REST2F32x512, NOTHING, ADD32x512, VMOVUPS)
PRIMITIVE512(subF32x512, 16, FOUR2x512, ONE2x512, REST2F32x512, NOTHING, SUB32x512, VMOVUPS)
PRIMITIVE512(mulF32x512, 16, FOUR2x512, ONE2x512, REST2F32x512, NOTHING, MUL32x512, VMOVUPS)
PRIMITIVE512(divF32x512, 16, FOUR2x512, ONE2x512, REST2F32x512, NOTHING, DIV32x512, VMOVUPS)
PRIMITIVE512(maximumF32x512, 16, FOUR2x512, ONE2x512, REST2F32x512, NOTHING, MAXIMUM32x512, VMOVUPS)
PRIMITIVE512(minimumF32x512, 16, FOUR2x512, ONE2x512, REST2F32x512, NOTHING, MINIMUM32x512, VMOVUPS)
PRIMITIVE512(lessF32x512, 16, FOUR2x512, ONE2x512, REST2F32x512, NOTHING, LESS32x512, VMOVUPS)
PRIMITIVE512(lessEqualF32x512, 16, FOUR2x512, ONE2x512, REST2F32x512, NOTHING, LESSEQUAL32x512, VMOVUPS)
PRIMITIVE512(greaterF32x512, 16, FOUR2x512, ONE2x512, REST2F32x512, NOTHING, GREATER32x512, VMOVUPS)
PRIMITIVE512(greaterEqualF32x512, 16, FOUR2x512, ONE2x512, REST2F32x512, NOTHING, GREATEREQUAL32x512, VMOVUPS)
PRIMITIVE512(equalF32x512, 16, FOUR2x512, ONE2x512, REST2F32x512, NOTHING, EQUAL32x512, VMOVUPS)
PRIMITIVE512(notEqualF32x512, 16, FOUR2x512, ONE2x512, REST2F32x512, NOTHING, NOTEQUAL32x512, VMOVUPS)
PRIMITIVE512(selectF32x512, 16, FOUR3x512, ONE3x512, REST3F32x512, ZERO512, SELECT32x512, VMOVUPS)
PRIMITIVE512(mulAddF32x512, 16, FOUR3x512, ONE3x512, REST3F32x512, NOTHING, MULADD32x512, VMOVUPS)

FOLD512(foldSumF32x512, ADD32x512)
FOLD512(foldMaxF32x512, MAXIMUM32x512)
REDUCE512(sumF32x512, NOUGHT512, ADD32x512)
REDUCE512(maxF32x512, LOWEST512, MAXIMUM32x512)

DATA vecsF32x512<>+0(SB)/8, $copyF32x512<>(SB)
DATA vecsF32x512<>+8(SB)/8, $negF32x512<>(SB)
DATA vecsF32x512<>+16(SB)/8, $absF32x512<>(SB)
DATA vecsF32x512<>+24(SB)/8, $ceilF32x512<>(SB)
DATA vecsF32x512<>+32(SB)/8, $floorF32x512<>(SB)
DATA vecsF32x512<>+40(SB)/8, $squareF32x512<>(SB)
DATA vecsF32x512<>+48(SB)/8, $cubeF32x512<>(SB)
DATA vecsF32x512<>+56(SB)/8, $sqrtF32x512<>(SB)
DATA vecsF32x512<>+64(SB)/8, $rsqrtF32x512<>(SB)
DATA vecsF32x512<>+72(SB)/8, $inverseF32x512<>(SB)
DATA vecsF32x512<>+80(SB)/8, $expF32x512<>(SB)
DATA vecsF32x512<>+88(SB)/8, $logF32x512<>(SB)
DATA vecsF32x512<>+96(SB)/8, $tanhF32x512<>(SB)
DATA vecsF32x512<>+104(SB)/8, $sigmoidF32x512<>(SB)
DATA vecsF32x512<>+112(SB)/8, $addF32x512<>(SB)
DATA vecsF32x512<>+120(SB)/8, $subF32x512<>(SB)
DATA vecsF32x512<>+128(SB)/8, $mulF32x512<>(SB)
DATA vecsF32x512<>+136(SB)/8, $divF32x512<>(SB)
DATA vecsF32x512<>+144(SB)/8, $maximumF32x512<>(SB)
DATA vecsF32x512<>+152(SB)/8, $minimumF32x512<>(SB)
DATA vecsF32x512<>+160(SB)/8, $lessF32x512<>(SB)
DATA vecsF32x512<>+168(SB)/8, $lessEqualF32x512<>(SB)
DATA vecsF32x512<>+176(SB)/8, $greaterF32x512<>(SB)
DATA vecsF32x512<>+184(SB)/8, $greaterEqualF32x512<>(SB)
DATA vecsF32x512<>+192(SB)/8, $equalF32x512<>(SB)
DATA vecsF32x512<>+200(SB)/8, $notEqualF32x512<>(SB)
DATA vecsF32x512<>+208(SB)/8, $selectF32x512<>(SB)
DATA vecsF32x512<>+216(SB)/8, $mulAddF32x512<>(SB)
DATA vecsF32x512<>+224(SB)/8, $foldSumF32x512<>(SB)
DATA vecsF32x512<>+232(SB)/8, $foldMaxF32x512<>(SB)
DATA vecsF32x512<>+240(SB)/8, $sumF32x512<>(SB)
DATA vecsF32x512<>+248(SB)/8, $maxF32x512<>(SB)
GLOBL vecsF32x512<>(SB), RODATA, $256

// func vecF32x512(v *vecArgs)
TEXT ·vecF32x512(SB), NOSPLIT, $0-8
	ARGUMENTS(6)
	LEAQ vecsF32x512<>(SB), R15
	MOVQ (R15)(AX*8), R15
	JMP  R15

// float64 in 512 bits.

#define COPY64x512(R, S, T)
#define NEG64x512(R, S, T) VPXORQ sign64<>(SB), R, R
#define ABS64x512(R, S, T) VPANDQ rest64<>(SB), R, R
#define CEIL64x512(R, S, T) VRNDSCALEPD $10, R, R
#define FLOOR64x512(R, S, T) VRNDSCALEPD $9, R, R
#define SQUARE64x512(R, S, T) VMULPD R, R, R
#define CUBE64x512(R, S, T) VMULPD R, R, S; VMULPD R, S, R
#define SQRT64x512(R, S, T) VSQRTPD R, R
#define RSQRT64x512(R, S, T) VSQRTPD R, R; VMOVUPS one64<>(SB), S; VDIVPD R, S, R
#define INVERSE64x512(R, S, T) VMOVUPS one64<>(SB), S; VDIVPD R, S, R
#define ADD64x512(R, S, T) VADDPD S, R, R
#define SUB64x512(R, S, T) VSUBPD S, R, R
#define MUL64x512(R, S, T) VMULPD S, R, R
#define DIV64x512(R, S, T) VDIVPD S, R, R
#define MAXIMUM64x512(R, S, T) \
	VMAXPD S, R, Z16; VMAXPD R, S, Z17; VPANDQ Z17, Z16, Z16; \
	VCMPPD $3, S, R, K2; VADDPD S, R, K2, Z16; VMOVUPS Z16, R
#define MINIMUM64x512(R, S, T) \
	VMINPD S, R, Z16; VMINPD R, S, Z17; VPORQ Z17, Z16, Z16; \
	VCMPPD $3, S, R, K2; VADDPD S, R, K2, Z16; VMOVUPS Z16, R
#define LESS64x512(R, S, T) VCMPPD $17, S, R, K2; VMOVUPD.Z one64<>(SB), K2, R
#define LESSEQUAL64x512(R, S, T) VCMPPD $18, S, R, K2; VMOVUPD.Z one64<>(SB), K2, R
#define GREATER64x512(R, S, T) VCMPPD $30, S, R, K2; VMOVUPD.Z one64<>(SB), K2, R
#define GREATEREQUAL64x512(R, S, T) VCMPPD $29, S, R, K2; VMOVUPD.Z one64<>(SB), K2, R
#define EQUAL64x512(R, S, T) VCMPPD $0, S, R, K2; VMOVUPD.Z one64<>(SB), K2, R
#define NOTEQUAL64x512(R, S, T) VCMPPD $4, S, R, K2; VMOVUPD.Z one64<>(SB), K2, R
#define SELECT64x512(R, S, T) VCMPPD $4, Z31, R, K2; VMOVUPD S, K2, T; VMOVUPS T, R
#define MULADD64x512(R, S, T) VMULPD S, R, R; VADDPD T, R, R

PRIMITIVE512(copyF64x512, 8, FOUR1x512, ONE1x512, REST1F64x512, NOTHING, COPY64x512, VMOVUPD)
PRIMITIVE512(negF64x512, 8, FOUR1x512, ONE1x512, REST1F64x512, NOTHING, NEG64x512, VMOVUPD)
PRIMITIVE512(absF64x512, 8, FOUR1x512, ONE1x512, REST1F64x512, NOTHING, ABS64x512, VMOVUPD)
PRIMITIVE512(ceilF64x512, 8, FOUR1x512, ONE1x512, REST1F64x512, NOTHING, CEIL64x512, VMOVUPD)
PRIMITIVE512(floorF64x512, 8, FOUR1x512, ONE1x512, REST1F64x512, NOTHING, FLOOR64x512, VMOVUPD)
PRIMITIVE512(squareF64x512, 8, FOUR1x512, ONE1x512, REST1F64x512, NOTHING, SQUARE64x512, VMOVUPD)
PRIMITIVE512(cubeF64x512, 8, FOUR1x512, ONE1x512, REST1F64x512, NOTHING, CUBE64x512, VMOVUPD)
PRIMITIVE512(sqrtF64x512, 8, FOUR1x512, ONE1x512, REST1F64x512, NOTHING, SQRT64x512, VMOVUPD)
PRIMITIVE512(rsqrtF64x512, 8, FOUR1x512, ONE1x512, REST1F64x512, NOTHING, RSQRT64x512, VMOVUPD)
PRIMITIVE512(inverseF64x512, 8, FOUR1x512, ONE1x512, REST1F64x512, NOTHING, INVERSE64x512, VMOVUPD)
PRIMITIVE512(addF64x512, 8, FOUR2x512, ONE2x512, REST2F64x512, NOTHING, ADD64x512, VMOVUPD)
PRIMITIVE512(subF64x512, 8, FOUR2x512, ONE2x512, REST2F64x512, NOTHING, SUB64x512, VMOVUPD)
PRIMITIVE512(mulF64x512, 8, FOUR2x512, ONE2x512, REST2F64x512, NOTHING, MUL64x512, VMOVUPD)
PRIMITIVE512(divF64x512, 8, FOUR2x512, ONE2x512, REST2F64x512, NOTHING, DIV64x512, VMOVUPD)
PRIMITIVE512(maximumF64x512, 8, FOUR2x512, ONE2x512, REST2F64x512, NOTHING, MAXIMUM64x512, VMOVUPD)
PRIMITIVE512(minimumF64x512, 8, FOUR2x512, ONE2x512, REST2F64x512, NOTHING, MINIMUM64x512, VMOVUPD)
PRIMITIVE512(lessF64x512, 8, FOUR2x512, ONE2x512, REST2F64x512, NOTHING, LESS64x512, VMOVUPD)
PRIMITIVE512(lessEqualF64x512, 8, FOUR2x512, ONE2x512, REST2F64x512, NOTHING, LESSEQUAL64x512, VMOVUPD)
PRIMITIVE512(greaterF64x512, 8, FOUR2x512, ONE2x512, REST2F64x512, NOTHING, GREATER64x512, VMOVUPD)
PRIMITIVE512(greaterEqualF64x512, 8, FOUR2x512, ONE2x512, REST2F64x512, NOTHING, GREATEREQUAL64x512, VMOVUPD)
PRIMITIVE512(equalF64x512, 8, FOUR2x512, ONE2x512, REST2F64x512, NOTHING, EQUAL64x512, VMOVUPD)
PRIMITIVE512(notEqualF64x512, 8, FOUR2x512, ONE2x512, REST2F64x512, NOTHING, NOTEQUAL64x512, VMOVUPD)
PRIMITIVE512(selectF64x512, 8, FOUR3x512, ONE3x512, REST3F64x512, ZERO512, SELECT64x512, VMOVUPD)
PRIMITIVE512(mulAddF64x512, 8, FOUR3x512, ONE3x512, REST3F64x512, NOTHING, MULADD64x512, VMOVUPD)

DATA vecsF64x512<>+0(SB)/8, $copyF64x512<>(SB)
DATA vecsF64x512<>+8(SB)/8, $negF64x512<>(SB)
DATA vecsF64x512<>+16(SB)/8, $absF64x512<>(SB)
DATA vecsF64x512<>+24(SB)/8, $ceilF64x512<>(SB)
DATA vecsF64x512<>+32(SB)/8, $floorF64x512<>(SB)
DATA vecsF64x512<>+40(SB)/8, $squareF64x512<>(SB)
DATA vecsF64x512<>+48(SB)/8, $cubeF64x512<>(SB)
DATA vecsF64x512<>+56(SB)/8, $sqrtF64x512<>(SB)
DATA vecsF64x512<>+64(SB)/8, $rsqrtF64x512<>(SB)
DATA vecsF64x512<>+72(SB)/8, $inverseF64x512<>(SB)
DATA vecsF64x512<>+80(SB)/8, $copyF64x512<>(SB)
DATA vecsF64x512<>+88(SB)/8, $copyF64x512<>(SB)
DATA vecsF64x512<>+96(SB)/8, $copyF64x512<>(SB)
DATA vecsF64x512<>+104(SB)/8, $copyF64x512<>(SB)
DATA vecsF64x512<>+112(SB)/8, $addF64x512<>(SB)
DATA vecsF64x512<>+120(SB)/8, $subF64x512<>(SB)
DATA vecsF64x512<>+128(SB)/8, $mulF64x512<>(SB)
DATA vecsF64x512<>+136(SB)/8, $divF64x512<>(SB)
DATA vecsF64x512<>+144(SB)/8, $maximumF64x512<>(SB)
DATA vecsF64x512<>+152(SB)/8, $minimumF64x512<>(SB)
DATA vecsF64x512<>+160(SB)/8, $lessF64x512<>(SB)
DATA vecsF64x512<>+168(SB)/8, $lessEqualF64x512<>(SB)
DATA vecsF64x512<>+176(SB)/8, $greaterF64x512<>(SB)
DATA vecsF64x512<>+184(SB)/8, $greaterEqualF64x512<>(SB)
DATA vecsF64x512<>+192(SB)/8, $equalF64x512<>(SB)
DATA vecsF64x512<>+200(SB)/8, $notEqualF64x512<>(SB)
DATA vecsF64x512<>+208(SB)/8, $selectF64x512<>(SB)
DATA vecsF64x512<>+216(SB)/8, $mulAddF64x512<>(SB)
GLOBL vecsF64x512<>(SB), RODATA, $224

// func vecF64x512(v *vecArgs)
TEXT ·vecF64x512(SB), NOSPLIT, $0-8
	ARGUMENTS(6)
	LEAQ vecsF64x512<>(SB), R15
	MOVQ (R15)(AX*8), R15
	JMP  R15

// float32 in 256 bits.

#define COPY32x256(R, S, T)
#define NEG32x256(R, S, T) VXORPS sign32<>(SB), R, R
#define ABS32x256(R, S, T) VANDPS rest32<>(SB), R, R
#define CEIL32x256(R, S, T) VROUNDPS $10, R, R
#define FLOOR32x256(R, S, T) VROUNDPS $9, R, R
#define SQUARE32x256(R, S, T) VMULPS R, R, R
#define CUBE32x256(R, S, T) VMULPS R, R, S; VMULPS R, S, R
#define SQRT32x256(R, S, T) VSQRTPS R, R
#define RSQRT32x256(R, S, T) VSQRTPS R, R; VMOVUPS one32<>(SB), S; VDIVPS R, S, R
#define INVERSE32x256(R, S, T) VMOVUPS one32<>(SB), S; VDIVPS R, S, R
#define ADD32x256(R, S, T) VADDPS S, R, R
#define SUB32x256(R, S, T) VSUBPS S, R, R
#define MUL32x256(R, S, T) VMULPS S, R, R
#define DIV32x256(R, S, T) VDIVPS S, R, R
#define MAXIMUM32x256(R, S, T) \
	VMAXPS S, R, Y12; VMAXPS R, S, Y13; VANDPS Y13, Y12, Y12; \
	VCMPPS $3, S, R, Y13; VADDPS S, R, R; VBLENDVPS Y13, R, Y12, R
#define MINIMUM32x256(R, S, T) \
	VMINPS S, R, Y12; VMINPS R, S, Y13; VORPS Y13, Y12, Y12; \
	VCMPPS $3, S, R, Y13; VADDPS S, R, R; VBLENDVPS Y13, R, Y12, R
#define LESS32x256(R, S, T) VCMPPS $17, S, R, R; VANDPS one32<>(SB), R, R
#define LESSEQUAL32x256(R, S, T) VCMPPS $18, S, R, R; VANDPS one32<>(SB), R, R
#define GREATER32x256(R, S, T) VCMPPS $30, S, R, R; VANDPS one32<>(SB), R, R
#define GREATEREQUAL32x256(R, S, T) VCMPPS $29, S, R, R; VANDPS one32<>(SB), R, R
#define EQUAL32x256(R, S, T) VCMPPS $0, S, R, R; VANDPS one32<>(SB), R, R
#define NOTEQUAL32x256(R, S, T) VCMPPS $4, S, R, R; VANDPS one32<>(SB), R, R
#define SELECT32x256(R, S, T) VXORPS Y12, Y12, Y12; VCMPPS $4, Y12, R, R; VBLENDVPS R, S, T, R
#define MULADD32x256(R, S, T) VMULPS S, R, R; VADDPS T, R, R

PRIMITIVE256(copyF32x256, 8, 2, FOUR1x256, ONE1x256, REST1F32x256, NOTHING, COPY32x256, VMASKMOVPS)
PRIMITIVE256(negF32x256, 8, 2, FOUR1x256, ONE1x256, REST1F32x256, NOTHING, NEG32x256, VMASKMOVPS)
PRIMITIVE256(absF32x256, 8, 2, FOUR1x256, ONE1x256, REST1F32x256, NOTHING, ABS32x256, VMASKMOVPS)
PRIMITIVE256(ceilF32x256, 8, 2, FOUR1x256, ONE1x256, REST1F32x256, NOTHING, CEIL32x256, VMASKMOVPS)
PRIMITIVE256(floorF32x256, 8, 2, FOUR1x256, ONE1x256, REST1F32x256, NOTHING, FLOOR32x256, VMASKMOVPS)
PRIMITIVE256(squareF32x256, 8, 2, FOUR1x256, ONE1x256, REST1F32x256, NOTHING, SQUARE32x256, VMASKMOVPS)
PRIMITIVE256(cubeF32x256, 8, 2, FOUR1x256, ONE1x256, REST1F32x256, NOTHING, CUBE32x256, VMASKMOVPS)
PRIMITIVE256(sqrtF32x256, 8, 2, FOUR1x256, ONE1x256, REST1F32x256, NOTHING, SQRT32x256, VMASKMOVPS)
PRIMITIVE256(rsqrtF32x256, 8, 2, FOUR1x256, ONE1x256, REST1F32x256, NOTHING, RSQRT32x256, VMASKMOVPS)
PRIMITIVE256(inverseF32x256, 8, 2, FOUR1x256, ONE1x256, REST1F32x256, NOTHING, INVERSE32x256, VMASKMOVPS)
FUNCTION256(expF32x256, EXP256)
FUNCTION256(logF32x256, LOG256)
FUNCTION256(tanhF32x256, TANH256)
FUNCTION256(sigmoidF32x256, SIGMOID256)
PRIMITIVE256(addF32x256, 8, 2, FOUR2x256, ONE2x256, REST2F32x256, NOTHING, ADD32x256, VMASKMOVPS)
PRIMITIVE256(subF32x256, 8, 2, FOUR2x256, ONE2x256, REST2F32x256, NOTHING, SUB32x256, VMASKMOVPS)
PRIMITIVE256(mulF32x256, 8, 2, FOUR2x256, ONE2x256, REST2F32x256, NOTHING, MUL32x256, VMASKMOVPS)
PRIMITIVE256(divF32x256, 8, 2, FOUR2x256, ONE2x256, REST2F32x256, NOTHING, DIV32x256, VMASKMOVPS)
PRIMITIVE256(maximumF32x256, 8, 2, FOUR2x256, ONE2x256, REST2F32x256, NOTHING, MAXIMUM32x256, VMASKMOVPS)
PRIMITIVE256(minimumF32x256, 8, 2, FOUR2x256, ONE2x256, REST2F32x256, NOTHING, MINIMUM32x256, VMASKMOVPS)
PRIMITIVE256(lessF32x256, 8, 2, FOUR2x256, ONE2x256, REST2F32x256, NOTHING, LESS32x256, VMASKMOVPS)
PRIMITIVE256(lessEqualF32x256, 8, 2, FOUR2x256, ONE2x256, REST2F32x256, NOTHING, LESSEQUAL32x256, VMASKMOVPS)
PRIMITIVE256(greaterF32x256, 8, 2, FOUR2x256, ONE2x256, REST2F32x256, NOTHING, GREATER32x256, VMASKMOVPS)
PRIMITIVE256(greaterEqualF32x256, 8, 2, FOUR2x256, ONE2x256, REST2F32x256, NOTHING, GREATEREQUAL32x256, VMASKMOVPS)
PRIMITIVE256(equalF32x256, 8, 2, FOUR2x256, ONE2x256, REST2F32x256, NOTHING, EQUAL32x256, VMASKMOVPS)
PRIMITIVE256(notEqualF32x256, 8, 2, FOUR2x256, ONE2x256, REST2F32x256, NOTHING, NOTEQUAL32x256, VMASKMOVPS)
PRIMITIVE256(selectF32x256, 8, 2, FOUR3x256, ONE3x256, REST3F32x256, NOTHING, SELECT32x256, VMASKMOVPS)
PRIMITIVE256(mulAddF32x256, 8, 2, FOUR3x256, ONE3x256, REST3F32x256, NOTHING, MULADD32x256, VMASKMOVPS)

FOLD256(foldSumF32x256, ADD32x256)
FOLD256(foldMaxF32x256, MAXIMUM32x256)
REDUCE256(sumF32x256, NOUGHT256, ADD32x256)
REDUCE256(maxF32x256, LOWEST256, MAXIMUM32x256)

DATA vecsF32x256<>+0(SB)/8, $copyF32x256<>(SB)
DATA vecsF32x256<>+8(SB)/8, $negF32x256<>(SB)
DATA vecsF32x256<>+16(SB)/8, $absF32x256<>(SB)
DATA vecsF32x256<>+24(SB)/8, $ceilF32x256<>(SB)
DATA vecsF32x256<>+32(SB)/8, $floorF32x256<>(SB)
DATA vecsF32x256<>+40(SB)/8, $squareF32x256<>(SB)
DATA vecsF32x256<>+48(SB)/8, $cubeF32x256<>(SB)
DATA vecsF32x256<>+56(SB)/8, $sqrtF32x256<>(SB)
DATA vecsF32x256<>+64(SB)/8, $rsqrtF32x256<>(SB)
DATA vecsF32x256<>+72(SB)/8, $inverseF32x256<>(SB)
DATA vecsF32x256<>+80(SB)/8, $expF32x256<>(SB)
DATA vecsF32x256<>+88(SB)/8, $logF32x256<>(SB)
DATA vecsF32x256<>+96(SB)/8, $tanhF32x256<>(SB)
DATA vecsF32x256<>+104(SB)/8, $sigmoidF32x256<>(SB)
DATA vecsF32x256<>+112(SB)/8, $addF32x256<>(SB)
DATA vecsF32x256<>+120(SB)/8, $subF32x256<>(SB)
DATA vecsF32x256<>+128(SB)/8, $mulF32x256<>(SB)
DATA vecsF32x256<>+136(SB)/8, $divF32x256<>(SB)
DATA vecsF32x256<>+144(SB)/8, $maximumF32x256<>(SB)
DATA vecsF32x256<>+152(SB)/8, $minimumF32x256<>(SB)
DATA vecsF32x256<>+160(SB)/8, $lessF32x256<>(SB)
DATA vecsF32x256<>+168(SB)/8, $lessEqualF32x256<>(SB)
DATA vecsF32x256<>+176(SB)/8, $greaterF32x256<>(SB)
DATA vecsF32x256<>+184(SB)/8, $greaterEqualF32x256<>(SB)
DATA vecsF32x256<>+192(SB)/8, $equalF32x256<>(SB)
DATA vecsF32x256<>+200(SB)/8, $notEqualF32x256<>(SB)
DATA vecsF32x256<>+208(SB)/8, $selectF32x256<>(SB)
DATA vecsF32x256<>+216(SB)/8, $mulAddF32x256<>(SB)
DATA vecsF32x256<>+224(SB)/8, $foldSumF32x256<>(SB)
DATA vecsF32x256<>+232(SB)/8, $foldMaxF32x256<>(SB)
DATA vecsF32x256<>+240(SB)/8, $sumF32x256<>(SB)
DATA vecsF32x256<>+248(SB)/8, $maxF32x256<>(SB)
GLOBL vecsF32x256<>(SB), RODATA, $256

// func vecF32x256(v *vecArgs)
TEXT ·vecF32x256(SB), NOSPLIT, $0-8
	ARGUMENTS(5)
	LEAQ vecsF32x256<>(SB), R15
	MOVQ (R15)(AX*8), R15
	JMP  R15

// float64 in 256 bits.

#define COPY64x256(R, S, T)
#define NEG64x256(R, S, T) VXORPS sign64<>(SB), R, R
#define ABS64x256(R, S, T) VANDPS rest64<>(SB), R, R
#define CEIL64x256(R, S, T) VROUNDPD $10, R, R
#define FLOOR64x256(R, S, T) VROUNDPD $9, R, R
#define SQUARE64x256(R, S, T) VMULPD R, R, R
#define CUBE64x256(R, S, T) VMULPD R, R, S; VMULPD R, S, R
#define SQRT64x256(R, S, T) VSQRTPD R, R
#define RSQRT64x256(R, S, T) VSQRTPD R, R; VMOVUPS one64<>(SB), S; VDIVPD R, S, R
#define INVERSE64x256(R, S, T) VMOVUPS one64<>(SB), S; VDIVPD R, S, R
#define ADD64x256(R, S, T) VADDPD S, R, R
#define SUB64x256(R, S, T) VSUBPD S, R, R
#define MUL64x256(R, S, T) VMULPD S, R, R
#define DIV64x256(R, S, T) VDIVPD S, R, R
#define MAXIMUM64x256(R, S, T) \
	VMAXPD S, R, Y12; VMAXPD R, S, Y13; VANDPS Y13, Y12, Y12; \
	VCMPPD $3, S, R, Y13; VADDPD S, R, R; VBLENDVPD Y13, R, Y12, R
#define MINIMUM64x256(R, S, T) \
	VMINPD S, R, Y12; VMINPD R, S, Y13; VORPS Y13, Y12, Y12; \
	VCMPPD $3, S, R, Y13; VADDPD S, R, R; VBLENDVPD Y13, R, Y12, R
#define LESS64x256(R, S, T) VCMPPD $17, S, R, R; VANDPS one64<>(SB), R, R
#define LESSEQUAL64x256(R, S, T) VCMPPD $18, S, R, R; VANDPS one64<>(SB), R, R
#define GREATER64x256(R, S, T) VCMPPD $30, S, R, R; VANDPS one64<>(SB), R, R
#define GREATEREQUAL64x256(R, S, T) VCMPPD $29, S, R, R; VANDPS one64<>(SB), R, R
#define EQUAL64x256(R, S, T) VCMPPD $0, S, R, R; VANDPS one64<>(SB), R, R
#define NOTEQUAL64x256(R, S, T) VCMPPD $4, S, R, R; VANDPS one64<>(SB), R, R
#define SELECT64x256(R, S, T) VXORPS Y12, Y12, Y12; VCMPPD $4, Y12, R, R; VBLENDVPD R, S, T, R
#define MULADD64x256(R, S, T) VMULPD S, R, R; VADDPD T, R, R

PRIMITIVE256(copyF64x256, 4, 3, FOUR1x256, ONE1x256, REST1F64x256, NOTHING, COPY64x256, VMASKMOVPD)
PRIMITIVE256(negF64x256, 4, 3, FOUR1x256, ONE1x256, REST1F64x256, NOTHING, NEG64x256, VMASKMOVPD)
PRIMITIVE256(absF64x256, 4, 3, FOUR1x256, ONE1x256, REST1F64x256, NOTHING, ABS64x256, VMASKMOVPD)
PRIMITIVE256(ceilF64x256, 4, 3, FOUR1x256, ONE1x256, REST1F64x256, NOTHING, CEIL64x256, VMASKMOVPD)
PRIMITIVE256(floorF64x256, 4, 3, FOUR1x256, ONE1x256, REST1F64x256, NOTHING, FLOOR64x256, VMASKMOVPD)
PRIMITIVE256(squareF64x256, 4, 3, FOUR1x256, ONE1x256, REST1F64x256, NOTHING, SQUARE64x256, VMASKMOVPD)
PRIMITIVE256(cubeF64x256, 4, 3, FOUR1x256, ONE1x256, REST1F64x256, NOTHING, CUBE64x256, VMASKMOVPD)
PRIMITIVE256(sqrtF64x256, 4, 3, FOUR1x256, ONE1x256, REST1F64x256, NOTHING, SQRT64x256, VMASKMOVPD)
PRIMITIVE256(rsqrtF64x256, 4, 3, FOUR1x256, ONE1x256, REST1F64x256, NOTHING, RSQRT64x256, VMASKMOVPD)
PRIMITIVE256(inverseF64x256, 4, 3, FOUR1x256, ONE1x256, REST1F64x256, NOTHING, INVERSE64x256, VMASKMOVPD)
PRIMITIVE256(addF64x256, 4, 3, FOUR2x256, ONE2x256, REST2F64x256, NOTHING, ADD64x256, VMASKMOVPD)
PRIMITIVE256(subF64x256, 4, 3, FOUR2x256, ONE2x256, REST2F64x256, NOTHING, SUB64x256, VMASKMOVPD)
PRIMITIVE256(mulF64x256, 4, 3, FOUR2x256, ONE2x256, REST2F64x256, NOTHING, MUL64x256, VMASKMOVPD)
PRIMITIVE256(divF64x256, 4, 3, FOUR2x256, ONE2x256, REST2F64x256, NOTHING, DIV64x256, VMASKMOVPD)
PRIMITIVE256(maximumF64x256, 4, 3, FOUR2x256, ONE2x256, REST2F64x256, NOTHING, MAXIMUM64x256, VMASKMOVPD)
PRIMITIVE256(minimumF64x256, 4, 3, FOUR2x256, ONE2x256, REST2F64x256, NOTHING, MINIMUM64x256, VMASKMOVPD)
PRIMITIVE256(lessF64x256, 4, 3, FOUR2x256, ONE2x256, REST2F64x256, NOTHING, LESS64x256, VMASKMOVPD)
PRIMITIVE256(lessEqualF64x256, 4, 3, FOUR2x256, ONE2x256, REST2F64x256, NOTHING, LESSEQUAL64x256, VMASKMOVPD)
PRIMITIVE256(greaterF64x256, 4, 3, FOUR2x256, ONE2x256, REST2F64x256, NOTHING, GREATER64x256, VMASKMOVPD)
PRIMITIVE256(greaterEqualF64x256, 4, 3, FOUR2x256, ONE2x256, REST2F64x256, NOTHING, GREATEREQUAL64x256, VMASKMOVPD)
PRIMITIVE256(equalF64x256, 4, 3, FOUR2x256, ONE2x256, REST2F64x256, NOTHING, EQUAL64x256, VMASKMOVPD)
PRIMITIVE256(notEqualF64x256, 4, 3, FOUR2x256, ONE2x256, REST2F64x256, NOTHING, NOTEQUAL64x256, VMASKMOVPD)
PRIMITIVE256(selectF64x256, 4, 3, FOUR3x256, ONE3x256, REST3F64x256, NOTHING, SELECT64x256, VMASKMOVPD)
PRIMITIVE256(mulAddF64x256, 4, 3, FOUR3x256, ONE3x256, REST3F64x256, NOTHING, MULADD64x256, VMASKMOVPD)

DATA vecsF64x256<>+0(SB)/8, $copyF64x256<>(SB)
DATA vecsF64x256<>+8(SB)/8, $negF64x256<>(SB)
DATA vecsF64x256<>+16(SB)/8, $absF64x256<>(SB)
DATA vecsF64x256<>+24(SB)/8, $ceilF64x256<>(SB)
DATA vecsF64x256<>+32(SB)/8, $floorF64x256<>(SB)
DATA vecsF64x256<>+40(SB)/8, $squareF64x256<>(SB)
DATA vecsF64x256<>+48(SB)/8, $cubeF64x256<>(SB)
DATA vecsF64x256<>+56(SB)/8, $sqrtF64x256<>(SB)
DATA vecsF64x256<>+64(SB)/8, $rsqrtF64x256<>(SB)
DATA vecsF64x256<>+72(SB)/8, $inverseF64x256<>(SB)
DATA vecsF64x256<>+80(SB)/8, $copyF64x256<>(SB)
DATA vecsF64x256<>+88(SB)/8, $copyF64x256<>(SB)
DATA vecsF64x256<>+96(SB)/8, $copyF64x256<>(SB)
DATA vecsF64x256<>+104(SB)/8, $copyF64x256<>(SB)
DATA vecsF64x256<>+112(SB)/8, $addF64x256<>(SB)
DATA vecsF64x256<>+120(SB)/8, $subF64x256<>(SB)
DATA vecsF64x256<>+128(SB)/8, $mulF64x256<>(SB)
DATA vecsF64x256<>+136(SB)/8, $divF64x256<>(SB)
DATA vecsF64x256<>+144(SB)/8, $maximumF64x256<>(SB)
DATA vecsF64x256<>+152(SB)/8, $minimumF64x256<>(SB)
DATA vecsF64x256<>+160(SB)/8, $lessF64x256<>(SB)
DATA vecsF64x256<>+168(SB)/8, $lessEqualF64x256<>(SB)
DATA vecsF64x256<>+176(SB)/8, $greaterF64x256<>(SB)
DATA vecsF64x256<>+184(SB)/8, $greaterEqualF64x256<>(SB)
DATA vecsF64x256<>+192(SB)/8, $equalF64x256<>(SB)
DATA vecsF64x256<>+200(SB)/8, $notEqualF64x256<>(SB)
DATA vecsF64x256<>+208(SB)/8, $selectF64x256<>(SB)
DATA vecsF64x256<>+216(SB)/8, $mulAddF64x256<>(SB)
GLOBL vecsF64x256<>(SB), RODATA, $224

// func vecF64x256(v *vecArgs)
TEXT ·vecF64x256(SB), NOSPLIT, $0-8
	ARGUMENTS(5)
	LEAQ vecsF64x256<>(SB), R15
	MOVQ (R15)(AX*8), R15
	JMP  R15
