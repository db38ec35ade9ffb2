package checkpoint

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// ReadHeader is the header of a safetensors file of size bytes. It is strict: entries fill the data without a hole and
// without sharing a byte, names are there once, and nothing stands behind the last one.
//
// Errors: ErrCorrupt, which names the tensor where one is to blame; ErrUnsupported for a dtype of the format that no
// tensor.DType has; those of r.
func ReadHeader(r io.ReaderAt, size int64) (*Header, error) {
	var length [8]byte
	if size < 8 {
		return nil, fmt.Errorf("%w: %d B are too short for a safetensors file", ErrCorrupt, size)
	}
	if _, err := r.ReadAt(length[:], 0); err != nil {
		return nil, fmt.Errorf("the header's length: %w", err)
	}
	n := binary.LittleEndian.Uint64(length[:])
	switch {
	case n > maxHeader:
		return nil, fmt.Errorf("%w: a header of %d B, more than the %d B that are allowed", ErrCorrupt, n, maxHeader)
	case n > uint64(size-8):
		return nil, fmt.Errorf("%w: a header of %d B in a file of %d B: it is cut short", ErrCorrupt, n, size)
	}
	text := make([]byte, n)
	if _, err := r.ReadAt(text, 8); err != nil && !(errors.Is(err, io.EOF) && size == int64(n)+8) {
		return nil, fmt.Errorf("the header: %w", err)
	}
	h, err := parseHeader(text)
	if errors.Is(err, ErrUnsupported) {
		return nil, fmt.Errorf("header: %w", err)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: header: %w", ErrCorrupt, err)
	}
	h.Start = int64(n) + 8
	if err := h.check(size - h.Start); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return h, nil
}

// check sorts entries by their offset and compares them with the bytes of data that there are.
func (h *Header) check(data int64) error {
	slices.SortFunc(h.Entries, func(a, b Entry) int {
		return cmp.Or(cmp.Compare(a.Offset, b.Offset), cmp.Compare(a.Bytes, b.Bytes), strings.Compare(a.Name, b.Name))
	})
	var end int64
	for i := range h.Entries {
		e := &h.Entries[i]
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

// parseHeader is the JSON object of a header. encoding/json would take the last of two members with one name and mend
// what is no UTF-8, so it only gives the tokens.
func parseHeader(text []byte) (*Header, error) {
	if len(text) == 0 || text[0] != '{' {
		return nil, errors.New("it does not begin with {")
	}
	if !utf8.Valid(text) {
		return nil, errors.New("it is no UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	h, seen := &Header{}, map[string]bool{}
	err := object(d, func(name string) error {
		if seen[name] {
			return fmt.Errorf("%q is there twice", name)
		}
		seen[name] = true
		if name == metadataKey {
			return h.parseMetadata(d)
		}
		e := Entry{Name: name}
		if err := e.parse(d); err != nil {
			return fmt.Errorf("tensor %q: %w", name, err)
		}
		h.Entries = append(h.Entries, e)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something stands behind its end")
	}
	return h, nil
}

func (h *Header) parseMetadata(d *json.Decoder) error {
	h.Metadata = map[string]string{}
	return object(d, func(key string) error {
		if _, ok := h.Metadata[key]; ok {
			return fmt.Errorf("%s: %q is there twice", metadataKey, key)
		}
		value, err := token[string](d)
		if err != nil {
			return fmt.Errorf("%s: %q: %w", metadataKey, key, err)
		}
		h.Metadata[key] = value
		return nil
	})
}

// parse reads dtype, shape and data_offsets, in any order.
func (e *Entry) parse(d *json.Decoder) error {
	seen, offsets := map[string]bool{}, []int(nil)
	err := object(d, func(key string) error {
		if seen[key] {
			return fmt.Errorf("%q is there twice", key)
		}
		seen[key] = true
		var err error
		switch key {
		case "dtype":
			var name string
			if name, err = token[string](d); err == nil {
				var ok bool
				if e.Type, ok = parseType(name); slices.Contains(others, name) {
					err = fmt.Errorf("elements of dtype %s are %w", name, ErrUnsupported)
				} else if !ok {
					err = fmt.Errorf("unknown dtype %q", name)
				}
			}
		case "shape":
			e.Shape, err = ints(d)
		case "data_offsets":
			offsets, err = ints(d)
		default:
			err = fmt.Errorf("unknown member %q", key)
		}
		return err
	})
	switch {
	case err != nil:
		return err
	case len(seen) != 3:
		return errors.New("want dtype, shape and data_offsets")
	case len(offsets) != 2 || offsets[0] > offsets[1]:
		return fmt.Errorf("data_offsets %v: want a begin and an end", offsets)
	}
	e.Offset, e.Bytes = int64(offsets[0]), int64(offsets[1]-offsets[0])
	n, err := product(e.Shape, e.Type.DType().Size())
	if err != nil {
		return err
	}
	if int64(n) != e.Bytes {
		return fmt.Errorf("%v%v has %d B, data_offsets %v have %d", e.Type, e.Shape, n, offsets, e.Bytes)
	}
	return nil
}

// object reads an object and calls member for each of its members, which reads the value.
func object(d *json.Decoder, member func(name string) error) error {
	if err := delim(d, '{'); err != nil {
		return err
	}
	for d.More() {
		name, err := token[string](d)
		if err != nil {
			return err
		}
		if err := member(name); err != nil {
			return err
		}
	}
	return delim(d, '}')
}

// ints reads a list of numbers that are not negative.
func ints(d *json.Decoder) ([]int, error) {
	if err := delim(d, '['); err != nil {
		return nil, err
	}
	list := []int{}
	for d.More() {
		text, err := token[json.Number](d)
		if err != nil {
			return nil, err
		}
		n, err := strconv.Atoi(string(text))
		if err != nil || n < 0 {
			return nil, fmt.Errorf("%s is no number of elements or bytes", text)
		}
		list = append(list, n)
	}
	return list, delim(d, ']')
}

func delim(d *json.Decoder, want json.Delim) error {
	got, err := token[json.Delim](d)
	if err == nil && got != want {
		err = fmt.Errorf("%v where %v should be", got, want)
	}
	return err
}

// token reads the next token, which has to be a T.
func token[T any](d *json.Decoder) (T, error) {
	var zero T
	tok, err := d.Token()
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return zero, err
	}
	value, ok := tok.(T)
	if !ok {
		return zero, fmt.Errorf("%v where a %s should be", tok, strings.TrimPrefix(fmt.Sprintf("%T", zero), "json."))
	}
	return value, nil
}
