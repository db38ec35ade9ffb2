package bpe

import (
	"errors"
	"io"
	"unicode"
	"unicode/utf8"
)

// partBytes is the length from which EncodeAll encodes a part of a text. Tests change it.
var partBytes = 1 << 20

// EncodeAll calls write with the tokens of a text, which may be larger than memory. They are those
// of Encode: the text is cut only between two words, where no token can go on. A text without words
// is encoded as one part, in memory.
//
// Errors: those of Encode, with the byte's place in the whole text; those of r and of write.
func (e *Encoding) EncodeAll(r io.Reader, write func(tokens []int) error) error {
	var part []byte
	done, searched := int64(0), 0 // bytes encoded; bytes of part without a cut
	block := make([]byte, min(partBytes, 1<<16))
	for {
		n, err := r.Read(block)
		part = append(part, block[:n]...)
		end := len(part)
		if err == nil {
			if end < partBytes {
				continue
			}
			if end = lastCut(part, searched); end < 0 {
				searched = max(0, len(part)-2*utf8.UTFMax)
				continue
			}
		} else if !errors.Is(err, io.EOF) {
			return err
		}
		tokens, failed := e.encode(string(part[:end]), done)
		if failed == nil {
			failed = write(tokens)
		}
		if failed != nil || err != nil {
			return failed
		}
		done, searched = done+int64(end), 0
		part = part[:copy(part, part[end:])]
	}
}

// lastCut returns the last place in text, from a place on, where no token of any encoding goes on:
// before a single space, or after a single end of line, between two letters. It returns -1 for
// none.
func lastCut(text []byte, from int) int {
	for i := len(text) - 1; i >= from; i-- {
		if text[i] != ' ' && text[i] != '\n' {
			continue
		}
		before, _ := utf8.DecodeLastRune(text[:i])
		after, _ := utf8.DecodeRune(text[i+1:])
		switch {
		case !unicode.IsLetter(before) || !unicode.IsLetter(after):
		case text[i] == ' ':
			return i
		default:
			return i + 1
		}
	}
	return -1
}
