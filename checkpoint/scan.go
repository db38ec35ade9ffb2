package checkpoint

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// maxDepth is the deepest nesting of a header: the limit of serde_json, which the reference reader
// uses.
const maxDepth = 128

// scanner reads JSON that is valid UTF-8, from left to right. Strings without escapes are
// substrings of text.
type scanner struct {
	text string
	at   int
	pool []int // memory of the lists that ints returned
}

// wrong returns an error with the position of the scanner.
func (p *scanner) wrong(format string, args ...any) error {
	return fmt.Errorf("byte %d: %s", p.at, fmt.Sprintf(format, args...))
}

// found describes the next character for an error.
func (p *scanner) found() string {
	if p.at >= len(p.text) {
		return "the end of the text"
	}
	r, _ := utf8.DecodeRuneInString(p.text[p.at:])
	return strconv.QuoteRune(r)
}

// space skips blanks.
func (p *scanner) space() {
	for p.at < len(p.text) && isBlank(p.text[p.at]) {
		p.at++
	}
}

func isBlank(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' }

// next returns the next character without reading it; 0 at the end.
func (p *scanner) next() byte {
	if p.at < len(p.text) {
		return p.text[p.at]
	}
	return 0
}

// expect reads the character c after blanks.
func (p *scanner) expect(c byte) error {
	if p.space(); p.at >= len(p.text) || p.text[p.at] != c {
		return p.wrong("want %q, not %s", c, p.found())
	}
	p.at++
	return nil
}

// more reads up to the next item of a list or an object that ends with end. It returns false at the
// end.
func (p *scanner) more(end byte, first bool) (bool, error) {
	p.space()
	switch c := p.next(); {
	case c == end && p.at < len(p.text):
		p.at++
		return false, nil
	case first:
		return true, nil
	case c == ',':
		p.at++
		p.space()
		return true, nil
	}
	return false, p.wrong("want a comma or %q, not %s", end, p.found())
}

// key reads the name of the next member of an object, and its colon. more is false at the end of
// the object.
func (p *scanner) key(first bool) (name string, more bool, err error) {
	if more, err = p.more('}', first); err == nil && more {
		if name, err = p.str(); err == nil {
			err = p.expect(':')
		}
	}
	return name, more && err == nil, err
}

// str reads a string after blanks.
func (p *scanner) str() (string, error) {
	if p.space(); p.next() != '"' {
		return "", p.wrong("want a string, not %s", p.found())
	}
	p.at++
	begin := p.at
	for ; p.at < len(p.text); p.at++ {
		switch c := p.text[p.at]; {
		case c == '"':
			p.at++
			return p.text[begin : p.at-1], nil
		case c == '\\':
			return p.escaped(begin)
		case c < ' ':
			return "", p.wrong("a control character in a string")
		}
	}
	return "", p.wrong("a string without an end")
}

// escapes maps one-character escapes to their meaning.
var escapes = [256]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

// escaped reads the rest of a string that starts at begin, from its first backslash on.
func (p *scanner) escaped(begin int) (string, error) {
	var b strings.Builder
	b.WriteString(p.text[begin:p.at])
	for p.at < len(p.text) {
		c := p.text[p.at]
		switch {
		case c == '"':
			p.at++
			return b.String(), nil
		case c < ' ':
			return "", p.wrong("a control character in a string")
		case c != '\\':
			b.WriteByte(c)
			p.at++
			continue
		}
		p.at++
		switch c = p.next(); {
		case c == 'u':
			r, err := p.unicode()
			if err != nil {
				return "", err
			}
			b.WriteRune(r)
		case escapes[c] != 0:
			b.WriteByte(escapes[c])
			p.at++
		default:
			return "", p.wrong("unknown escape %s", p.found())
		}
	}
	return "", p.wrong("a string without an end")
}

// unicode reads an escape from its u on, including the second half of a surrogate pair.
func (p *scanner) unicode() (rune, error) {
	r, err := p.hex()
	if err != nil || !utf16.IsSurrogate(r) {
		return r, err
	}
	if strings.HasPrefix(p.text[p.at:], `\u`) {
		p.at++
		second, err := p.hex()
		if err != nil {
			return 0, err
		}
		if pair := utf16.DecodeRune(r, second); pair != utf8.RuneError {
			return pair, nil
		}
	}
	return 0, p.wrong("half a surrogate pair, \\u%04x", r)
}

// hex reads u and four hexadecimal digits.
func (p *scanner) hex() (rune, error) {
	if len(p.text)-p.at < 5 {
		return 0, p.wrong("an escape without four digits")
	}
	var r rune
	for _, c := range []byte(p.text[p.at+1 : p.at+5]) {
		switch {
		case '0' <= c && c <= '9':
			r = r<<4 | rune(c-'0')
		case 'a' <= c|0x20 && c|0x20 <= 'f':
			r = r<<4 | rune(c|0x20-'a'+10)
		default:
			return 0, p.wrong("an escape without four digits")
		}
	}
	p.at += 5
	return r, nil
}

// ints reads a list of numbers that are not negative.
func (p *scanner) ints() ([]int, error) {
	if err := p.expect('['); err != nil {
		return nil, err
	}
	begin := len(p.pool)
	for first := true; ; first = false {
		more, err := p.more(']', first)
		if err != nil {
			return nil, err
		}
		if !more {
			return p.pool[begin:len(p.pool):len(p.pool)], nil
		}
		n, err := p.count()
		if err != nil {
			return nil, err
		}
		p.pool = append(p.pool, n)
	}
}

// count reads one number of ints.
func (p *scanner) count() (int, error) {
	begin, n := p.at, 0
	fits := true
	for ; '0' <= p.next() && p.next() <= '9'; p.at++ {
		d := int(p.text[p.at] - '0')
		fits = fits && n <= (math.MaxInt-d)/10
		n = n*10 + d
	}
	digits := p.at - begin
	if fits && digits > 0 && (p.text[begin] != '0' || digits == 1) && !strings.ContainsRune(".eE", rune(p.next())) {
		return n, nil
	}
	rest := p.text[begin:min(len(p.text), begin+40)]
	if end := strings.IndexAny(rest, ",]} \t\r\n"); end >= 0 {
		rest = rest[:end]
	}
	p.at = begin
	return 0, p.wrong("%s is not a number of elements or bytes", rest)
}

// number reads a number of any kind.
func (p *scanner) number() error {
	digits := func() bool {
		begin := p.at
		for '0' <= p.next() && p.next() <= '9' {
			p.at++
		}
		return p.at > begin
	}
	if p.next() == '-' {
		p.at++
	}
	ok := true
	if p.next() == '0' {
		p.at++
	} else {
		ok = digits()
	}
	if ok && p.next() == '.' {
		p.at++
		ok = digits()
	}
	if ok && (p.next() == 'e' || p.next() == 'E') {
		p.at++
		if p.next() == '+' || p.next() == '-' {
			p.at++
		}
		ok = digits()
	}
	if !ok {
		return p.wrong("want a number, not %s", p.found())
	}
	return nil
}

// skip reads a value of any kind, nested in depth lists and objects.
func (p *scanner) skip(depth int) error {
	p.space()
	switch c := p.next(); c {
	case '"':
		_, err := p.str()
		return err
	case '{', '[':
		return p.skipAll(depth + 1)
	default:
		for _, word := range []string{"null", "true", "false"} {
			if strings.HasPrefix(p.text[p.at:], word) {
				p.at += len(word)
				return nil
			}
		}
		return p.number()
	}
}

// skipAll reads a list or an object.
func (p *scanner) skipAll(depth int) error {
	if depth > maxDepth {
		return p.wrong("more than %d lists and objects in each other", maxDepth)
	}
	list := p.next() == '['
	p.at++
	for first := true; ; first = false {
		var more bool
		var err error
		if list {
			more, err = p.more(']', first)
		} else {
			_, more, err = p.key(first)
		}
		if err != nil || !more {
			return err
		}
		if err := p.skip(depth); err != nil {
			return err
		}
	}
}
