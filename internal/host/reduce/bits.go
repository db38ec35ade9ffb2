package reduce

import (
	"encoding/binary"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

// bitwise is Into for and, or and xor. They do not depend on the dtype, so it works on words of 8
// bytes.
func bitwise(dst tensor.Buffer, srcs []tensor.Buffer, red dist.RedKind) error {
	out := dst.Raw()
	var tile [tileElems]byte
	for lo := 0; lo < len(out); lo += tileElems {
		hi := min(lo+tileElems, len(out))
		acc := tile[:hi-lo] // separate from out, as dst may be a later source
		copy(acc, srcs[0].Raw()[lo:hi])
		for _, s := range srcs[1:] {
			combineBits(acc, s.Raw()[lo:hi], red)
		}
		copy(out[lo:hi], acc)
	}
	return nil
}

// combineBits sets acc[i] = acc[i] red x[i].
func combineBits(acc, x []byte, red dist.RedKind) {
	for ; len(acc) >= 8; acc, x = acc[8:], x[8:] {
		binary.NativeEndian.PutUint64(acc, bits(binary.NativeEndian.Uint64(acc), binary.NativeEndian.Uint64(x), red))
	}
	for i := range acc {
		acc[i] = byte(bits(uint64(acc[i]), uint64(x[i]), red))
	}
}

func bits(a, b uint64, red dist.RedKind) uint64 {
	switch red {
	case dist.RedAnd:
		return a & b
	case dist.RedOr:
		return a | b
	}
	return a ^ b
}
