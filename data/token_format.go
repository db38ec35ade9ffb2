package data

import "encoding/binary"

// TokenFormat is the format of a file of tokens. All numbers are little-endian.
//
// nanoGPT writes TokensUint16. llm.c writes the other two, with a header of 256 int32: a magic
// number, a version and the number of tokens; the rest is 0 (dev/data/data_common.py of llm.c).
type TokenFormat int

// The formats.
const (
	TokensUint16       TokenFormat = iota // uint16, without a header
	TokensHeaderUint16                    // uint16: magic number 20240520, version 1
	TokensHeaderUint32                    // uint32: magic number 20240801, version 7
)

// headerBytes is the length of a header.
const headerBytes = 256 * 4

// formatOf returns the format of a file that begins with b.
func formatOf(b []byte) TokenFormat {
	for _, f := range []TokenFormat{TokensHeaderUint16, TokensHeaderUint32} {
		if len(b) >= 12 && binary.LittleEndian.Uint32(b) == f.magic() {
			return f
		}
	}
	return TokensUint16
}

// String returns "uint16", "uint16 with header" or "uint32 with header".
func (f TokenFormat) String() string {
	return [...]string{"uint16", "uint16 with header", "uint32 with header"}[f]
}

func (f TokenFormat) magic() uint32   { return [...]uint32{0, 20240520, 20240801}[f] }
func (f TokenFormat) version() uint32 { return [...]uint32{0, 1, 7}[f] }

// width returns the bytes of a token.
func (f TokenFormat) width() int { return [...]int{2, 2, 4}[f] }

// header returns the bytes before the first token.
func (f TokenFormat) header() int {
	if f == TokensUint16 {
		return 0
	}
	return headerBytes
}

// most returns the largest token.
func (f TokenFormat) most() int { return [...]int{1<<16 - 1, 1<<16 - 1, 1<<31 - 1}[f] }
