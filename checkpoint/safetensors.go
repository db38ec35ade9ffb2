package checkpoint

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/symgrad/symgrad/tensor"
)

// Type is the element type of an entry of a safetensors file. It differs from tensor.DType because
// tensor has no Bool.
type Type uint8

// The types, in the order in which the reference library sorts them: by size, ascending. A file has
// the largest first.
const (
	NoType Type = iota
	Bool        // one byte, 0 or 1
	U8
	I8
	I16
	U16
	F16
	BF16
	I32
	U32
	F32
	F64
	I64
	U64
)

var types = [...]struct {
	name string
	dt   tensor.DType
}{
	NoType: {"none", tensor.Invalid},
	Bool:   {"BOOL", tensor.U8},
	U8:     {"U8", tensor.U8}, I8: {"I8", tensor.I8}, I16: {"I16", tensor.I16}, U16: {"U16", tensor.U16},
	F16: {"F16", tensor.F16}, BF16: {"BF16", tensor.BF16}, I32: {"I32", tensor.I32}, U32: {"U32", tensor.U32},
	F32: {"F32", tensor.F32}, F64: {"F64", tensor.F64}, I64: {"I64", tensor.I64}, U64: {"U64", tensor.U64},
}

// String returns the name in a file: "F32", "BOOL".
func (t Type) String() string {
	if int(t) >= len(types) {
		return fmt.Sprintf("type(%d)", uint8(t))
	}
	return types[t].name
}

// DType returns the type of a Buffer of such elements; U8 for Bool, tensor.Invalid for NoType.
func (t Type) DType() tensor.DType {
	if int(t) >= len(types) {
		return tensor.Invalid
	}
	return types[t].dt
}

// TypeOf returns the Type of dt; NoType for an invalid one.
func TypeOf(dt tensor.DType) Type {
	for t := U8; dt.Valid() && int(t) < len(types); t++ {
		if types[t].dt == dt {
			return t
		}
	}
	return NoType
}

// others has the bits of the reference library's types that no tensor.DType has: types of at most 8
// bits, and complex ones.
var others = map[string]int{"F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "C64": 64}

// otherPattern reports whether name is spelled like the format's dtypes, so that it may belong to a
// later version.
func otherPattern(name string) bool {
	return name != "" && len(name) <= 32 && name[0] >= 'A' && name[0] <= 'Z' &&
		strings.Trim(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == ""
}

// parseType returns the Type of a name in a file.
func parseType(name string) (Type, bool) {
	for t := Bool; int(t) < len(types); t++ {
		if types[t].name == name {
			return t, true
		}
	}
	return NoType, false
}

// maxHeader is the reference library's limit: MAX_HEADER_SIZE in safetensors/src/tensor.rs.
const maxHeader = 100_000_000

// metadataKey is the member of a header that is not a tensor.
const metadataKey = "__metadata__"

// Entry is one tensor of a safetensors file.
type Entry struct {
	Name   string
	Type   Type   // NoType for a dtype without a Type: it can be listed, but not read
	Other  string // the name of such a dtype: "F8_E4M3"
	Shape  []int
	Offset int64 // of the first byte, from the start of the data
	Bytes  int64
}

// Len returns the number of elements.
func (e *Entry) Len() int {
	if e.Type == NoType {
		n, _ := product(e.Shape, 1) // ReadHeader rejects shapes that overflow
		return n
	}
	return int(e.Bytes) / e.Type.DType().Size()
}

// typeName returns the dtype's name in the file.
func (e *Entry) typeName() string { return cmp.Or(e.Other, e.Type.String()) }

// Header is the header of a safetensors file.
type Header struct {
	Metadata map[string]string // nil for none
	Entries  []Entry           // by Offset
	Start    int64             // start of the data: the length of the header plus 8

	find map[string]int // index in Entries; nil if ReadHeader did not make the Header
}

// Bytes returns the size of the whole file.
func (h *Header) Bytes() int64 {
	if n := len(h.Entries); n > 0 {
		return h.Start + h.Entries[n-1].Offset + h.Entries[n-1].Bytes
	}
	return h.Start
}

// Find returns the entry of a name, or nil.
func (h *Header) Find(name string) *Entry {
	if i, ok := h.find[name]; ok && h.Entries[i].Name == name {
		return &h.Entries[i]
	}
	for i := range h.Entries {
		if h.Entries[i].Name == name {
			return &h.Entries[i]
		}
	}
	return nil
}

// layOut sorts entries like the reference library, the largest elements first and then by name, and
// sets their offsets. Every entry is then aligned to its element.
//
// Returns: the order, as indices into entries. Errors: ErrInvalid for a duplicate, empty or
// non-UTF-8 name, an unknown type, or a negative or too large shape.
func layOut(entries []Entry) ([]int, error) {
	order := make([]int, len(entries))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(entries[b].Type, entries[a].Type), strings.Compare(entries[a].Name, entries[b].Name))
	})
	names := make(map[string]bool, len(entries))
	var offset int64
	for _, i := range order {
		e := &entries[i]
		size := e.Type.DType().Size()
		switch {
		case e.Name == "" || e.Name == metadataKey || !utf8.ValidString(e.Name):
			return nil, fmt.Errorf("%w: no tensor of a safetensors file can be called %q", ErrInvalid, e.Name)
		case names[e.Name]:
			return nil, fmt.Errorf("%w: two tensors are called %q", ErrInvalid, e.Name)
		case size == 0:
			return nil, fmt.Errorf("%w: tensor %q: %v is no type of a safetensors file", ErrInvalid, e.Name, e.Type)
		}
		names[e.Name] = true
		n, err := product(e.Shape, size)
		if err != nil || offset > math.MaxInt64-int64(n) {
			return nil, fmt.Errorf("%w: tensor %q: shape %v has more bytes than a file, or a negative dimension", ErrInvalid, e.Name, e.Shape)
		}
		e.Offset, e.Bytes = offset, int64(n)
		offset += int64(n)
	}
	return order, nil
}

// encodeHeader returns the text of a header, with its length in front, for entries with offsets, in
// the given order. It equals the reference library's text; blanks at its end align the data to 8.
//
// Errors: ErrInvalid for metadata that is not UTF-8, or a header longer than readers accept.
func encodeHeader(metadata map[string]string, entries []Entry, order []int) ([]byte, error) {
	var b bytes.Buffer
	b.Write(make([]byte, 8))
	comma := "{"
	if metadata != nil {
		for k, v := range metadata {
			if !utf8.ValidString(k + v) {
				return nil, fmt.Errorf("%w: metadata %q: no UTF-8", ErrInvalid, k)
			}
		}
		fmt.Fprintf(&b, `{"%s":%s`, metadataKey, jsonText(metadata)) // JSON writes a map sorted by key
		comma = ","
	}
	for _, i := range order {
		e := &entries[i]
		shape := "[]"
		if len(e.Shape) > 0 {
			shape = string(jsonText(e.Shape))
		}
		fmt.Fprintf(&b, `%s%s:{"dtype":"%v","shape":%s,"data_offsets":[%d,%d]}`, comma, jsonText(e.Name), e.Type, shape, e.Offset, e.Offset+e.Bytes)
		comma = ","
	}
	if comma == "{" {
		b.WriteByte('{')
	}
	b.WriteByte('}')
	for b.Len()%8 != 0 {
		b.WriteByte(' ')
	}
	if n := b.Len() - 8; n > maxHeader {
		return nil, fmt.Errorf("%w: a header of %d B for %d tensors; readers take %d B at most", ErrInvalid, n, len(order), maxHeader)
	}
	binary.LittleEndian.PutUint64(b.Bytes(), uint64(b.Len()-8))
	return b.Bytes(), nil
}

// jsonText returns v as JSON without HTML escapes. v has strings and numbers, which always encode.
func jsonText(v any) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if enc.Encode(v) != nil {
		return nil
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
