package bpe

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"unicode"
	"unicode/utf8"
)

// partBytes is the length from which EncodeAll encodes a part of a text.
const partBytes = 1 << 20

// EncodeAll calls write with the tokens of a text, which may be larger than memory. They are those
// of Encode: the text is cut only at ends of lines where no token can go on, between a line that
// ends with a character that is no space and one that begins with such a character.
//
// Errors: those of Encode, whose byte counts from the begin of the text, of r and of write.
func (e *Encoding) EncodeAll(r io.Reader, write func(tokens []int) error) error {
	in := bufio.NewReaderSize(r, 1<<16)
	var part []byte
	done := int64(0)
	flush := func() error {
		if at := invalid(string(part)); at >= 0 {
			return fmt.Errorf("byte %d is not UTF-8: is it a text?", done+int64(at))
		}
		tokens, err := e.Encode(string(part))
		if err == nil {
			err = write(tokens)
		}
		done += int64(len(part))
		part = part[:0]
		return err
	}
	for {
		line, err := in.ReadSlice('\n')
		part = append(part, line...)
		switch {
		case err == io.EOF:
			return flush()
		case err != nil && !errors.Is(err, bufio.ErrBufferFull):
			return err
		case len(part) < partBytes || !endsLine(part):
			continue
		}
		next, err := in.Peek(utf8.UTFMax)
		if len(next) == 0 {
			if err == io.EOF {
				return flush()
			}
			return err
		}
		if first, _ := utf8.DecodeRune(next); unicode.IsSpace(first) {
			continue
		}
		if err := flush(); err != nil {
			return err
		}
	}
}

// endsLine reports whether text ends with a line's end after a character that is no space.
func endsLine(text []byte) bool {
	n := len(text)
	if n < 2 || text[n-1] != '\n' {
		return false
	}
	last, _ := utf8.DecodeLastRune(text[:n-1])
	return !unicode.IsSpace(last)
}
