package checkpoint

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/symgrad/symgrad/tensor"
)

// fileOf returns a safetensors file with the given header and n bytes of data.
func fileOf(header string, n int) []byte {
	p := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(p, header...), make([]byte, n)...)
}

// The text of headers, compared with the reference library's text for the same tensors.
func TestWriteFileIsByteForByte(t *testing.T) {
	six := tensor.Of([]float32{0, 1, 2, 3, 4, 5})
	for _, tt := range []struct {
		name     string
		metadata map[string]string
		tensors  []NamedTensor
		header   string // without its length
		data     []byte
	}{
		{"nothing", nil, nil, `{}      `, nil},
		{"metadata only", map[string]string{"framework": "pt"}, nil, `{"__metadata__":{"framework":"pt"}}     `, nil},
		{
			"one that needs no blanks", nil,
			[]NamedTensor{{Name: "attn.0", Shape: []int{1, 2, 3}, Data: six}},
			`{"attn.0":{"dtype":"F32","shape":[1,2,3],"data_offsets":[0,24]}}`, six.Raw(),
		},
		{
			"one that needs 7", nil,
			[]NamedTensor{{Name: "attn0", Shape: []int{1, 1, 2, 3}, Data: six}},
			`{"attn0":{"dtype":"F32","shape":[1,1,2,3],"data_offsets":[0,24]}}       `, six.Raw(),
		},
		{
			"large elements first, then by name",
			map[string]string{"b": "2", "a": "<1>"},
			[]NamedTensor{
				{Name: "z", Type: Bool, Shape: []int{3}, Data: tensor.Of([]uint8{1, 0, 1})},
				{Name: "b", Shape: []int{}, Data: tensor.Of([]float32{1})},
				{Name: "a", Shape: []int{1}, Data: tensor.Of([]float32{2})},
				{Name: "i", Shape: []int{1}, Data: tensor.Of([]int64{-1})},
				{Name: `q"é`, Shape: []int{0, 7}, Data: tensor.Of([]tensor.BFloat16{})},
			},
			`{"__metadata__":{"a":"<1>","b":"2"},"i":{"dtype":"I64","shape":[1],"data_offsets":[0,8]},` +
				`"a":{"dtype":"F32","shape":[1],"data_offsets":[8,12]},"b":{"dtype":"F32","shape":[],"data_offsets":[12,16]},` +
				`"q\"é":{"dtype":"BF16","shape":[0,7],"data_offsets":[16,16]},"z":{"dtype":"BOOL","shape":[3],"data_offsets":[16,19]}}     `,
			[]byte{255, 255, 255, 255, 255, 255, 255, 255, 0, 0, 0, 64, 0, 0, 128, 63, 1, 0, 1},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "x.safetensors")
			if err := WriteFile(path, tt.metadata, tt.tensors); err != nil {
				t.Fatal(err)
			}
			got, err := os.ReadFile(path)
			want := append(fileOf(tt.header, 0), tt.data...)
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("%v\n%q\n%q", err, got, want)
			}
			if len(tt.header)%8 != 0 {
				t.Errorf("the header expected here has %d B", len(tt.header))
			}
			h, err := ReadHeader(bytes.NewReader(got), int64(len(got)))
			if err != nil || h.Bytes() != int64(len(got)) || !reflect.DeepEqual(h.Metadata, tt.metadata) || len(h.Entries) != len(tt.tensors) {
				t.Errorf("%+v, %v", h, err)
			}
		})
	}
}

func TestReadHeaderIsStrict(t *testing.T) {
	one := `{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}`
	two := `{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"v":{"dtype":"U8","shape":[4],"data_offsets":[%d,%d]}}`
	with := func(old, replacement string) string { return strings.Replace(one, old, replacement, 1) }
	for want, file := range map[string][]byte{
		"0 B are too short":                 nil,
		"7 B are too short":                 make([]byte, 7),
		"a header of 60 B in a file of 8 B": {60, 0, 0, 0, 0, 0, 0, 0},
		"a header of 9223372036854775808 B, more than the 100000000 B": {0, 0, 0, 0, 0, 0, 0, 128},
		"a header of 100000001 B, more than":                           binary.LittleEndian.AppendUint64(nil, maxHeader+1),
		"byte 1: want '{', not 'x'":                                    fileOf(" x"+one, 8),
		"byte 0: want '{', not the end of the text":                    fileOf("", 0),
		"not UTF-8": fileOf(with("w", "\xff"), 8),
		"byte 20: want a string, not the end of the text":                    fileOf(one[:20], 8),
		"byte 54: data after the end of the object":                          fileOf(one+"x", 8),
		"data after the end of the object":                                   fileOf(one+"{}", 8),
		`two tensors are called "w"`:                                         fileOf(one[:len(one)-1]+","+one[1:], 8),
		`tensor "w": duplicate key "shape"`:                                  fileOf(with(`"shape":[2]`, `"shape":[2],"shape":[2]`), 8),
		`tensor "w": want dtype, shape and data_offsets`:                     fileOf(with(`"shape":[2],`, ``), 8),
		`tensor "w": unknown dtype "F8-E4M3"`:                                fileOf(with("F32", "F8-E4M3"), 8),
		`tensor "w": unknown dtype "f32"`:                                    fileOf(with("F32", "f32"), 8),
		`tensor "w": dtype: byte 14: want a string, not '3'`:                 fileOf(with(`"F32"`, "3"), 8),
		`tensor "w": byte 28: want '[', not '2'`:                             fileOf(with("[2]", "2"), 8),
		`-2 is not a number of elements`:                                     fileOf(with("[2]", "[-2]"), 8),
		`2.0 is not a number of elements`:                                    fileOf(with("[2]", "[2.0]"), 8),
		`18446744073709551614 is not a number of elements`:                   fileOf(with("[2]", "[18446744073709551614]"), 8),
		`tensor "w": shape [9223372036854775807] has more bytes than an int`: fileOf(with("[2]", "[9223372036854775807]"), 8),
		`tensor "w": shape [4294967296 4294967296] has more bytes`:           fileOf(with("[2]", "[4294967296,4294967296]"), 8),
		`tensor "w": F32[3] has 12 B, data_offsets [0 8] have 8`:             fileOf(with("[2]", "[3]"), 8),
		`tensor "w": data_offsets [8 0]: want a begin and an end`:            fileOf(with("[0,8]", "[8,0]"), 8),
		`tensor "w": data_offsets [0 4 8]: want a begin and an end`:          fileOf(with("[0,8]", "[0,4,8]"), 8),
		`a hole of 4 B before tensor "w"`:                                    fileOf(with("[0,8]", "[4,12]"), 12),
		`a hole of 2 B before tensor "v"`:                                    fileOf(fmt.Sprintf(two, 10, 14), 14),
		`tensor "v" at 6 shares bytes with tensor "w", which ends at 8`:      fileOf(fmt.Sprintf(two, 6, 10), 10),
		`tensor "w" ends at byte 8, and there are 7: the file is cut short`:  fileOf(one, 7),
		`9 B of data, and tensors for 8`:                                     fileOf(one, 9),
		`0 B of data, and tensors for 8`:                                     nil, // replaced below
		`__metadata__: duplicate key "k"`:                                    fileOf(`{"__metadata__":{"k":"a","k":"b"}}`, 0),
		`__metadata__: "k": byte 21: want a string, not '1'`:                 fileOf(`{"__metadata__":{"k":1}}`, 0),
		`duplicate key "__metadata__"`:                                       fileOf(`{"__metadata__":{},"__metadata__":{}}`, 0),
		`duplicate key "data_offsets"`:                                       fileOf(with(`"dtype":"F32",`, `"data_offsets":[0,8],`), 8),
	} {
		if want == `0 B of data, and tensors for 8` {
			want, file = `tensor "w" ends at byte 8, and there are 0`, fileOf(one, 0)
		}
		if _, err := ReadHeader(bytes.NewReader(file), int64(len(file))); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	for _, header := range []string{one, " \n" + one, one + " \t\r\n", `{}`, `{"w":{"shape":[2],"data_offsets":[0,8],"dtype":"F32"},"__metadata__":{}}`} {
		n := 8
		if header == `{}` {
			n = 0
		}
		if _, err := ReadHeader(bytes.NewReader(fileOf(header, n)), int64(len(header)+8+n)); err != nil {
			t.Errorf("%s: %v", header, err)
		}
	}
}

func TestWriteFileRefuses(t *testing.T) {
	four := tensor.Of(make([]float32, 4))
	for want, tensors := range map[string][]NamedTensor{
		`can be called ""`:                                {{Shape: []int{4}, Data: four}},
		`can be called "__metadata__"`:                    {{Name: "__metadata__", Shape: []int{4}, Data: four}},
		`two tensors are called "w"`:                      {{Name: "w", Shape: []int{4}, Data: four}, {Name: "w", Shape: []int{4}, Data: four}},
		`tensor "w": none is no type`:                     {{Name: "w", Shape: []int{0}}},
		`tensor "w": type(99) is no type`:                 {{Name: "w", Type: 99, Shape: []int{4}, Data: four}},
		`tensor "w" is F32[5], its data f32[4] on host`:   {{Name: "w", Shape: []int{5}, Data: four}},
		`tensor "w" is BOOL[16], its data f32[4] on host`: {{Name: "w", Type: Bool, Shape: []int{16}, Data: four}},
		`tensor "w": shape [-1] has more bytes`:           {{Name: "w", Shape: []int{-1}, Data: four}},
	} {
		dir := t.TempDir()
		err := WriteFile(filepath.Join(dir, "x"), nil, tensors)
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), want) || len(names(t, dir)) > 0 {
			t.Errorf("%v, want %q; left: %q", err, want, names(t, dir))
		}
	}
	if err := WriteFile(filepath.Join(t.TempDir(), "x"), map[string]string{"a": "\xff"}, nil); !errors.Is(err, ErrInvalid) {
		t.Errorf("metadata that is no UTF-8: %v", err)
	}
}

// Every written tensor is read back, in any part, and is aligned to its element.
func TestFileRoundTrip(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.safetensors")
	rapid.Check(t, func(t *rapid.T) {
		var tensors []NamedTensor
		for i := range rapid.IntRange(0, 8).Draw(t, "tensors") {
			shape := rapid.SliceOfN(rapid.IntRange(0, 5), 0, 4).Draw(t, "shape")
			typ := Type(rapid.IntRange(int(Bool), int(U64)).Draw(t, "type"))
			bytes, err := product(shape, typ.DType().Size())
			if err != nil {
				t.Fatal(err)
			}
			words := rapid.SliceOfN(rapid.Uint64(), bytes/8+1, bytes/8+1).Draw(t, "data")
			data, err := bufferOver(tensor.Of(words).Raw(), bytes/typ.DType().Size(), typ.DType())
			if err != nil {
				t.Fatal(err)
			}
			name := fmt.Sprintf("%s%d", rapid.StringN(0, 4, -1).Draw(t, "name"), i)
			tensors = append(tensors, NamedTensor{Name: name, Type: typ, Shape: shape, Data: data})
		}
		if err := WriteFile(path, nil, tensors); err != nil {
			t.Fatal(err)
		}
		f, err := OpenFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range tensors {
			e := f.Header().Find(want.Name)
			if e == nil || e.Type != want.Type || !slices.Equal(e.Shape, want.Shape) || e.Len() != want.Data.Len() {
				t.Fatalf("%+v of %+v", e, want)
			}
			if (f.Header().Start+e.Offset)%int64(want.Data.DType().Size()) != 0 || f.Header().Start%8 != 0 {
				t.Fatalf("%+v is not aligned", e)
			}
			from := rapid.IntRange(0, want.Data.Len()).Draw(t, "from")
			part, err := want.Data.Slice(from, want.Data.Len())
			if err != nil {
				t.Fatal(err)
			}
			got, err := bufferOver(tensor.Of(make([]uint64, part.Bytes()/8+1)).Raw(), part.Len(), part.DType())
			if err != nil {
				t.Fatal(err)
			}
			if err := f.Read(want.Name, from, got); err != nil || !bytes.Equal(got.Raw(), part.Raw()) {
				t.Fatalf("%s from %d: %v", want.Name, from, err)
			}
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestFileReadRefuses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.safetensors")
	if err := WriteFile(path, nil, []NamedTensor{{Name: "w", Shape: []int{4}, Data: tensor.Of([]float32{1, 2, 3, 4})}}); err != nil {
		t.Fatal(err)
	}
	f, err := OpenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	defer closed(t, f)
	for _, err := range []error{
		f.Read("v", 0, tensor.Of(make([]float32, 1))), f.Read("w", 0, tensor.Of(make([]float64, 1))), f.Read("w", 0, tensor.Of(make([]float32, 5))),
		f.Read("w", -1, tensor.Of(make([]float32, 1))), f.Read("w", 4, tensor.Of(make([]float32, 1))), f.Read("w", math.MaxInt, tensor.Of(make([]float32, 1))),
	} {
		if !errors.Is(err, ErrInvalid) {
			t.Error(err)
		}
	}
	if err := os.Truncate(path, 70); err != nil {
		t.Fatal(err)
	}
	if err := f.Read("w", 0, tensor.Of(make([]float32, 4))); !errors.Is(err, ErrCorrupt) {
		t.Errorf("a file cut short while it is open: %v", err)
	}
	for _, bad := range []string{path, filepath.Dir(path)} {
		if _, err := OpenFile(bad); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", bad, err)
		}
	}
	if _, err := OpenFile(path + "x"); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

func TestTypesPairWithDTypes(t *testing.T) {
	for _, dt := range tensor.DTypes() {
		typ := TypeOf(dt)
		if again, ok := parseType(typ.String()); !ok || again != typ || typ.DType() != dt || !strings.EqualFold(typ.String(), dt.String()) {
			t.Errorf("%v is %v", dt, typ)
		}
	}
	if TypeOf(tensor.Invalid) != NoType || Bool.DType() != tensor.U8 || Type(99).DType() != tensor.Invalid || Type(99).String() != "type(99)" {
		t.Error("types without a counterpart")
	}
	if _, ok := parseType("none"); ok {
		t.Error(`"none" is a type`)
	}
}

// No file makes the reader panic or take much memory, and no inconsistent file is accepted.
func FuzzReadHeader(f *testing.F) {
	f.Add(fileOf(`{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"__metadata__":{"a":"b"}}  `, 8))
	f.Add(fileOf(`{"w":{"dtype":"BOOL","shape":[0,3],"data_offsets":[0,0]},"v":{"dtype":"I64","shape":[],"data_offsets":[0,8]}}`, 8))
	f.Add(fileOf(`{"w":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}}`, 0))
	f.Add([]byte{255, 255, 255, 255, 255, 255, 255, 127, '{', '}'})
	f.Add(fileOf(`{"\ud800":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, 1))
	f.Fuzz(func(t *testing.T, p []byte) {
		h, err := ReadHeader(bytes.NewReader(p), int64(len(p)))
		if err != nil {
			if !errors.Is(err, ErrCorrupt) {
				t.Errorf("%v", err)
			}
			return
		}
		if h.Bytes() != int64(len(p)) {
			t.Errorf("%d B, and the header says %d", len(p), h.Bytes())
		}
		for i := range h.Entries {
			e := &h.Entries[i]
			if n, err := e.size(); err != nil || n != e.Bytes || e.Len() < 0 || h.Start+e.Offset+e.Bytes > int64(len(p)) {
				t.Errorf("%+v", e)
			}
		}
		order, err := layOut(slices.Clone(h.Entries)) // every readable header can be written
		if err != nil && !slices.ContainsFunc(h.Entries, func(e Entry) bool { return e.Name == "" || e.Type == NoType }) || len(order) > len(h.Entries) {
			t.Errorf("%v", err)
		}
	})
}
