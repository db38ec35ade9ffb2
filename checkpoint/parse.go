package checkpoint

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/symgrad/symgrad/internal/foreign"
)

// ReadHeader reads the header of a safetensors file of size bytes. Like the reference reader
// (huggingface's safetensors/src/tensor.rs) it accepts unknown members of a tensor, a null
// __metadata__, and dtypes that no tensor.DType has. Entries must fill the data without a hole or a
// shared byte. Names must differ: the format forbids duplicate keys, although the reference reader
// takes the last.
//
// Errors: ErrCorrupt, which names the tensor, or the format of a file that is no safetensors file;
// those of r.
func ReadHeader(r io.ReaderAt, size int64) (*Header, error) {
	var length [8]byte
	if size < 8 {
		return nil, mistaken(r, size, "%d B are too short for a safetensors file", size)
	}
	if _, err := r.ReadAt(length[:], 0); err != nil {
		return nil, fmt.Errorf("the header's length: %w", err)
	}
	n := binary.LittleEndian.Uint64(length[:])
	switch {
	case n > maxHeader:
		return nil, mistaken(r, size, "a header of %d B, more than the %d B that are allowed", n, maxHeader)
	case n > uint64(size-8):
		return nil, mistaken(r, size, "a header of %d B in a file of %d B: it is cut short", n, size)
	}
	text := make([]byte, n)
	if _, err := r.ReadAt(text, 8); err != nil && !(errors.Is(err, io.EOF) && size == int64(n)+8) {
		return nil, fmt.Errorf("the header: %w", err)
	}
	h, err := parseHeader(string(text))
	if err != nil {
		return nil, mistaken(r, size, "header: %w", err)
	}
	h.Start = int64(n) + 8
	if err := h.check(size - h.Start); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return h, nil
}

// mistaken returns an ErrCorrupt for a file without a valid header. If the file starts like another
// format, the error names that format; otherwise it has the given text.
func mistaken(r io.ReaderAt, size int64, format string, args ...any) error {
	if size == 0 {
		return fmt.Errorf("%w: 0 B are too short for a safetensors file: it is empty", ErrCorrupt)
	}
	begin := make([]byte, min(size, foreign.SniffBytes))
	n, _ := r.ReadAt(begin, 0) // a read error was returned before
	if kind := foreign.Sniff(begin[:n]); kind != "" {
		return fmt.Errorf("%w: not a safetensors file: it is %s", ErrCorrupt, kind)
	}
	return fmt.Errorf("%w: %w", ErrCorrupt, fmt.Errorf(format, args...))
}

// check sorts entries by their offset and checks that they fill data bytes.
func (h *Header) check(data int64) error {
	slices.SortFunc(h.Entries, func(a, b Entry) int {
		return cmp.Or(cmp.Compare(a.Offset, b.Offset), cmp.Compare(a.Bytes, b.Bytes), strings.Compare(a.Name, b.Name))
	})
	h.find = make(map[string]int, len(h.Entries))
	var end int64
	for i := range h.Entries {
		e := &h.Entries[i]
		if h.find[e.Name] = i; len(h.find) != i+1 {
			return fmt.Errorf("two tensors are called %q", e.Name)
		}
		switch {
		case e.Offset < end:
			return fmt.Errorf("tensor %q at %d shares bytes with tensor %q, which ends at %d", e.Name, e.Offset, h.Entries[i-1].Name, end)
		case e.Offset > end:
			return fmt.Errorf("a hole of %d B before tensor %q", e.Offset-end, e.Name)
		case e.Bytes > data-e.Offset:
			return fmt.Errorf("tensor %q ends at byte %d, and there are %d: the file is cut short", e.Name, e.Offset+e.Bytes, data)
		}
		end = e.Offset + e.Bytes
	}
	if end != data {
		return fmt.Errorf("%d B of data, and tensors for %d", data, end)
	}
	return nil
}

// parseHeader reads the JSON object of a header in one pass. encoding/json would take the last of
// two members with one name, and replace invalid UTF-8 and half surrogate pairs. Its token reader
// is several times slower.
func parseHeader(text string) (*Header, error) {
	if !utf8.ValidString(text) {
		return nil, errors.New("not UTF-8")
	}
	p, h, metadata := &scanner{text: text, pool: []int{}}, &Header{}, false
	if err := p.expect('{'); err != nil {
		return nil, err
	}
	for first := true; ; first = false {
		name, more, err := p.key(first)
		if err != nil {
			return nil, err
		}
		if !more {
			break
		}
		if name != metadataKey {
			h.Entries = append(h.Entries, Entry{Name: strings.Clone(name)}) // a substring would keep all of text alive
			if err := h.Entries[len(h.Entries)-1].parse(p); err != nil {
				return nil, fmt.Errorf("tensor %q: %w", name, err)
			}
			continue
		}
		if metadata {
			return nil, fmt.Errorf("duplicate key %q", name)
		}
		metadata = true
		if h.Metadata, err = parseMetadata(p); err != nil {
			return nil, fmt.Errorf("%s: %w", metadataKey, err)
		}
	}
	if p.space(); p.at != len(text) {
		return nil, p.wrong("data after the end of the object")
	}
	return h, nil
}

// parseMetadata reads an object of strings, or null.
func parseMetadata(p *scanner) (map[string]string, error) {
	if p.space(); strings.HasPrefix(p.text[p.at:], "null") {
		p.at += len("null")
		return nil, nil
	}
	if err := p.expect('{'); err != nil {
		return nil, err
	}
	metadata := map[string]string{}
	for first := true; ; first = false {
		key, more, err := p.key(first)
		if err != nil || !more {
			return metadata, err
		}
		if _, ok := metadata[key]; ok {
			return nil, fmt.Errorf("duplicate key %q", key)
		}
		value, err := p.str()
		if err != nil {
			return nil, fmt.Errorf("%q: %w", key, err)
		}
		metadata[strings.Clone(key)] = strings.Clone(value)
	}
}

// parse reads the object of a tensor: dtype, shape and data_offsets, in any order. It ignores other
// members.
func (e *Entry) parse(p *scanner) error {
	if err := p.expect('{'); err != nil {
		return err
	}
	var seen struct{ dtype, shape, offsets bool }
	once := func(key string, was *bool) error {
		if *was {
			return fmt.Errorf("duplicate key %q", key)
		}
		*was = true
		return nil
	}
	var offsets []int
	for first := true; ; first = false {
		key, more, err := p.key(first)
		if err != nil {
			return err
		}
		if !more {
			break
		}
		switch key {
		case "dtype":
			if err = once(key, &seen.dtype); err == nil {
				err = e.parseType(p)
			}
		case "shape":
			if err = once(key, &seen.shape); err == nil {
				e.Shape, err = p.ints()
			}
		case "data_offsets":
			if err = once(key, &seen.offsets); err == nil {
				offsets, err = p.ints()
			}
		default:
			if err = p.skip(2); err != nil {
				err = fmt.Errorf("%q: %w", key, err)
			}
		}
		if err != nil {
			return err
		}
	}
	if !seen.dtype || !seen.shape || !seen.offsets {
		return errors.New("want dtype, shape and data_offsets")
	}
	return e.place(offsets)
}

// parseType reads a dtype. A dtype without a Type is kept as text.
func (e *Entry) parseType(p *scanner) error {
	name, err := p.str()
	if err != nil {
		return fmt.Errorf("dtype: %w", err)
	}
	var ok bool
	if e.Type, ok = parseType(name); ok {
		return nil
	}
	if !otherPattern(name) {
		return fmt.Errorf("unknown dtype %q", name)
	}
	e.Other = strings.Clone(name)
	return nil
}

// place sets the position of the elements, and checks their bytes against dtype and shape.
func (e *Entry) place(offsets []int) error {
	if len(offsets) != 2 || offsets[0] > offsets[1] {
		return fmt.Errorf("data_offsets %v: want a begin and an end", offsets)
	}
	e.Offset, e.Bytes = int64(offsets[0]), int64(offsets[1]-offsets[0])
	n, err := e.size()
	if err == nil && n != e.Bytes {
		err = fmt.Errorf("%s%v has %d B, data_offsets %v have %d", e.typeName(), e.Shape, n, offsets, e.Bytes)
	}
	return err
}

// size returns the bytes of e by dtype and shape, or by its offsets if the dtype has no known size.
func (e *Entry) size() (int64, error) {
	if e.Type != NoType {
		n, err := product(e.Shape, e.Type.DType().Size())
		return int64(n), err
	}
	n, err := product(e.Shape, 1)
	bits, known := others[e.Other]
	switch {
	case err != nil:
		return 0, err
	case !known:
		return e.Bytes, nil
	case bits%8 == 0:
		n, err = product(e.Shape, bits/8)
		return int64(n), err
	}
	size := n/8*bits + n%8*bits/8 // bits is less than 8
	if n%8*bits%8 != 0 {
		return 0, fmt.Errorf("%s%v does not end with a byte", e.Other, e.Shape)
	}
	return int64(size), nil
}
