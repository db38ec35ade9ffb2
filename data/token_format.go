package data

import (
	"encoding/binary"
	"fmt"
)

// TokenFormat is the format of a file of tokens. All numbers are little-endian.
//
// llm.c writes files with a header of 256 int32: a magic number, a version and the number of
// tokens; the rest is 0 (its dev/data/data_common.py). nanoGPT writes files without a header.
type TokenFormat int

// The formats.
const (
	TokensHeaderUint16 TokenFormat = iota // uint16: magic number 20240520, version 1
	TokensHeaderUint32                    // uint32: magic number 20240801, version 7
	TokensUint16                          // uint16, without a header
)

// headerBytes is the length of a header.
const headerBytes = 256 * 4

// formatOf returns the format of a file that begins with b.
func formatOf(b []byte) TokenFormat {
	for _, f := range []TokenFormat{TokensHeaderUint16, TokensHeaderUint32} {
		if magic, _ := f.header(); len(b) >= 12 && binary.LittleEndian.Uint32(b) == magic {
			return f
		}
	}
	return TokensUint16
}

// String returns "uint16 with header", "uint32 with header" or "uint16 without header".
func (f TokenFormat) String() string {
	switch f {
	case TokensHeaderUint16:
		return "uint16 with header"
	case TokensHeaderUint32:
		return "uint32 with header"
	case TokensUint16:
		return "uint16 without header"
	}
	return fmt.Sprintf("TokenFormat(%d)", int(f))
}

// header returns the magic number and the version; 0 without a header.
func (f TokenFormat) header() (magic, version uint32) {
	switch f {
	case TokensHeaderUint16:
		return 20240520, 1
	case TokensHeaderUint32:
		return 20240801, 7
	}
	return 0, 0
}

// width returns the bytes of a token.
func (f TokenFormat) width() int {
	if f == TokensHeaderUint32 {
		return 4
	}
	return 2
}

// begin returns the bytes before the first token.
func (f TokenFormat) begin() int {
	if f == TokensUint16 {
		return 0
	}
	return headerBytes
}

// maxToken returns the largest token.
func (f TokenFormat) maxToken() int {
	if f == TokensHeaderUint32 {
		return 1<<31 - 1
	}
	return 1<<16 - 1
}
