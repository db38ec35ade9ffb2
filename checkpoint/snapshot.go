package checkpoint

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"unicode/utf8"
	"unsafe"

	"github.com/symgrad/symgrad/tensor"
)

// entryOf returns the file entry of r: a whole tensor has its own name and shape.
func entryOf(r *Run) Entry {
	e := Entry{Name: r.Tensor.Name, Type: TypeOf(r.Tensor.DType), Shape: r.Tensor.Shape}
	if r.Len != r.Tensor.Len() {
		e.Name = fmt.Sprintf("%s[%d:%d]", r.Tensor.Name, r.Offset, r.Offset+r.Len)
		e.Shape = []int{r.Len}
	}
	e.Shape = slices.Clone(e.Shape)
	return e
}

// clone returns a copy that shares no memory with t.
func (t Tensor) clone() Tensor {
	t.Shape = slices.Clone(t.Shape)
	return t
}

// bufferOver returns a Buffer of n elements over p.
func bufferOver(p []byte, n int, dt tensor.DType) (tensor.Buffer, error) {
	return tensor.FromPointer(unsafe.Pointer(unsafe.SliceData(p)), n, dt, tensor.Host)
}

// settle checks m, sets defaults and copies the parts that the caller may change.
//
// Errors: ErrInvalid for a negative step, or text that is no JSON.
func (m *Meta) settle() error {
	if m.Step < 0 || m.Stage < 0 {
		return fmt.Errorf("%w: step %d, stage %d", ErrInvalid, m.Step, m.Stage)
	}
	if !utf8.ValidString(m.Config) {
		return fmt.Errorf("%w: config: no UTF-8", ErrInvalid)
	}
	if m.ConfigHash == "" {
		sum := sha256.Sum256([]byte(m.Config))
		m.ConfigHash = hex.EncodeToString(sum[:])
	}
	m.Extra = maps.Clone(m.Extra)
	raw := map[string]*json.RawMessage{"sampler": &m.Sampler, "random": &m.Random, "scaler": &m.Scaler}
	for _, key := range slices.Sorted(maps.Keys(raw)) {
		if *raw[key] = slices.Clone(*raw[key]); *raw[key] != nil && !json.Valid(*raw[key]) {
			return fmt.Errorf("%w: %s: no JSON", ErrInvalid, key)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(m.Extra)) {
		if m.Extra[key] = slices.Clone(m.Extra[key]); !json.Valid(m.Extra[key]) {
			return fmt.Errorf("%w: extra %q: no JSON", ErrInvalid, key)
		}
	}
	return nil
}
