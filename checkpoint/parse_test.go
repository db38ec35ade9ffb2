package checkpoint

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/symgrad/symgrad/tensor"
)

// Headers that the reference reader accepts, from huggingface's safetensors/src/tensor.rs and its
// serde_json.
func TestReadHeaderTakesWhatTheReferenceTakes(t *testing.T) {
	for name, tt := range map[string]struct {
		header string
		data   int
	}{
		"unknown members":                         {`{"w":{"note":"x","dtype":"F32","more":[{"a":[1e3,-0.5,true,null]}],"shape":[2],"data_offsets":[0,8]}}`, 8},
		"the same unknown member twice":           {`{"w":{"note":1,"note":2,"dtype":"F32","shape":[2],"data_offsets":[0,8]}}`, 8},
		"null metadata":                           {`{"__metadata__":null,"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}`, 8},
		"blanks everywhere":                       {" {\t\"w\" : { \"dtype\" :\n\"F32\" , \"shape\" : [ 2 ] , \"data_offsets\" : [ 0 , 8 ] } } ", 8},
		"a 0 before a huge length":                {`{"a":{"dtype":"F32","shape":[0,9223372036854775807,4],"data_offsets":[0,0]}}`, 0},
		"a 0 after huge lengths":                  {`{"a":{"dtype":"F32","shape":[9223372036854775807,4,0],"data_offsets":[0,0]}}`, 0},
		"escapes in a name":                       {`{"\u0077\n\ud83d\ude00":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}`, 8},
		"an escape in a dtype":                    {`{"w":{"dtype":"\u004632","shape":[2],"data_offsets":[0,8]}}`, 8},
		"no name":                                 {`{"":{"dtype":"U8","shape":[],"data_offsets":[0,1]}}`, 1},
		"tensors in another order than the bytes": {`{"b":{"dtype":"U8","shape":[1],"data_offsets":[1,2]},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, 2},
		"lists and objects in each other":         {`{"w":{"x":` + strings.Repeat("[", 126) + strings.Repeat("]", 126) + `,"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, 1},
	} {
		file := fileOf(tt.header, tt.data)
		h, err := ReadHeader(bytes.NewReader(file), int64(len(file)))
		if err != nil || len(h.Entries) == 0 || h.Find(h.Entries[0].Name) != &h.Entries[0] || h.Find("absent") != nil {
			t.Errorf("%s: %+v, %v", name, h, err)
		}
	}
}

func TestReadHeaderRefusesWhatTheReferenceRefuses(t *testing.T) {
	tensor := `"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]%s}`
	for want, header := range map[string]string{
		`half a surrogate pair, \ud800`:                 `{"a\ud800":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`,
		`half a surrogate pair, \udc00`:                 `{"a\udc00\ud800":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`,
		`half a surrogate pair, \ud801`:                 `{"a\ud801\u0041":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`,
		`tensor "w": "x": byte`:                         "{" + fmt.Sprintf(tensor, `,"x":"\ud8ff"`) + "}",
		`__metadata__: "k": byte`:                       `{"__metadata__":{"k":"\udfff"}}`,
		"a control character":                           "{\"a\n\":{}}",
		"a string without an end":                       `{"a`,
		`unknown escape 'x'`:                            `{"\x41":{}}`,
		"an escape without four digits":                 `{"\u00g0":{}}`,
		`want a comma or '}', not '"'`:                  `{` + fmt.Sprintf(tensor, "") + ` "v":{}}`,
		`want a string, not '}'`:                        `{` + fmt.Sprintf(tensor, "") + `,}`,
		`want a number, not ']'`:                        "{" + fmt.Sprintf(tensor, `,"x":[1,]`) + "}",
		`02 is not a number of elements`:                `{"w":{"dtype":"U8","shape":[02],"data_offsets":[0,2]}}`,
		`want a number, not 'n'`:                        "{" + fmt.Sprintf(tensor, `,"x":nul`) + "}",
		"more than 128 lists and objects in each other": "{" + fmt.Sprintf(tensor, `,"x":`+strings.Repeat("[", 127)+strings.Repeat("]", 127)) + "}",
		`want '{', not 'n'`:                             `{"w":null}`,
	} {
		file := fileOf(header, 1)
		if _, err := ReadHeader(bytes.NewReader(file), int64(len(file))); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", header, err, want)
		}
	}
}

// A tensor of a dtype without a Type leaves the other tensors readable.
func TestOtherDTypesAreListedAndNotRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.safetensors")
	for dtype, shape := range map[string]int{"F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F4": 16, "C64": 1, "F8_E4M3FNUZ": 99} {
		header := fmt.Sprintf(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"%s","shape":[%d],"data_offsets":[8,16]}}`, dtype, shape)
		if err := os.WriteFile(path, fileOf(header, 16), 0o666); err != nil {
			t.Fatal(err)
		}
		f, err := OpenFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if e := f.Header().Find("b"); e == nil || e.Type != NoType || e.Other != dtype || e.Len() != shape || e.Bytes != 8 {
			t.Errorf("%s: %+v", dtype, e)
		}
		if err := f.Read("a", 0, tensor.Of(make([]float32, 2))); err != nil {
			t.Error(err)
		}
		err = f.Read("b", 0, tensor.Of(make([]uint8, 8)))
		if !errors.Is(err, ErrUnsupported) || errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), `tensor "b": elements of dtype `+dtype+" are not supported") {
			t.Errorf("%s: %v", dtype, err)
		}
		closed(t, f)
	}
	for want, header := range map[string]string{
		"F6_E2M3[3] does not end with a byte":    `{"w":{"dtype":"F6_E2M3","shape":[3],"data_offsets":[0,3]}}`,
		"F6_E3M2[8] has 6 B, data_offsets [0 8]": `{"w":{"dtype":"F6_E3M2","shape":[8],"data_offsets":[0,8]}}`,
		"has more bytes than an int counts":      `{"w":{"dtype":"C64","shape":[9223372036854775807],"data_offsets":[0,8]}}`,
	} {
		file := fileOf(header, 8)
		if _, err := ReadHeader(bytes.NewReader(file), int64(len(file))); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", header, err)
		}
	}
}

// A file of another format is named in the error, and its text is not read as a length.
func TestFilesOfOtherFormatsAreNamed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.safetensors")
	for want, text := range map[string]string{
		"a Git LFS pointer":  "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12\n",
		"an HTML page":       "\n<!DOCTYPE html><html><body>404 Not Found</body></html>",
		"an XML text":        `<?xml version="1.0"?><Error><Code>AccessDenied</Code></Error>`,
		"a JSON text":        `{"error":"Repository not found"}`,
		"gzip":               "\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff",
		"a zip archive":      "PK\x03\x04\x00\x00\x08\x08\x00\x00",
		"a Python pickle":    "\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.",
		"an HDF5 file":       "\x89HDF\r\n\x1a\n\x00",
		"zeros":              strings.Repeat("\x00", 4096),
		"it is empty":        "",
		"it is a text, perh": "Not Found",
	} {
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		_, err := OpenFile(path)
		if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "a header of") {
			t.Errorf("%v, want %q", err, want)
		}
	}
	// A safetensors file that is cut short is not taken for another format because of its length
	// bytes.
	header := `{"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`
	header += strings.Repeat(" ", 0x7b-len(header)) // begins with {
	file := fileOf(header, 1)[:100]
	if _, err := ReadHeader(bytes.NewReader(file), int64(len(file))); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "a header of 123 B in a file of 100 B") {
		t.Error(err)
	}
}

// oracle reads a header by encoding/json's tokens. It is slow and short.
func oracle(text string) (*Header, error) {
	if half := halfSurrogate(text); !utf8.ValidString(text) || !json.Valid([]byte(text)) || half {
		return nil, errors.New("not JSON")
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &members); err != nil || members == nil || duplicates(text, nil) {
		return nil, errors.New("not an object of different names")
	}
	h := &Header{}
	for name, raw := range members {
		if name == metadataKey {
			if err := json.Unmarshal(raw, &h.Metadata); err != nil || duplicates(string(raw), nil) || bytes.Contains(raw, []byte("null")) && h.Metadata != nil && hasNull(raw) {
				return nil, errors.New("not metadata")
			}
			continue
		}
		var tensor map[string]json.RawMessage
		if err := json.Unmarshal(raw, &tensor); err != nil || tensor == nil || duplicates(string(raw), []string{"dtype", "shape", "data_offsets"}) {
			return nil, errors.New("not a tensor")
		}
		e := Entry{Name: name, Shape: []int{}}
		var dtype *string
		shape, at := []*int{}, []*int{}
		err := errors.Join(json.Unmarshal(tensor["dtype"], &dtype), json.Unmarshal(tensor["shape"], &shape), json.Unmarshal(tensor["data_offsets"], &at))
		bad := func(n *int) bool { return n == nil || *n < 0 }
		negativeZero := bytes.Contains(tensor["shape"], []byte("-")) || bytes.Contains(tensor["data_offsets"], []byte("-"))
		if err != nil || dtype == nil || shape == nil || len(at) != 2 || slices.ContainsFunc(append(shape, at...), bad) || *at[0] > *at[1] || negativeZero {
			return nil, errors.New("not a description")
		}
		for _, d := range shape {
			e.Shape = append(e.Shape, *d)
		}
		e.Offset, e.Bytes = int64(*at[0]), int64(*at[1]-*at[0])
		if t, ok := parseType(*dtype); ok {
			e.Type = t
		} else if e.Other = *dtype; !otherPattern(*dtype) {
			return nil, errors.New("not a dtype")
		}
		if n, err := e.size(); err != nil || n != e.Bytes {
			return nil, errors.New("not its size")
		}
		h.Entries = append(h.Entries, e)
	}
	return h, nil
}

// hasNull reports whether a value of an object is null.
func hasNull(raw json.RawMessage) bool {
	var values map[string]*string
	_ = json.Unmarshal(raw, &values) // the caller has
	for _, v := range values {
		if v == nil {
			return true
		}
	}
	return false
}

var (
	escapePattern = regexp.MustCompile(`\\(u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|.)`)
	halfPattern   = regexp.MustCompile(`^\\u[dD][89a-fA-F][0-9a-fA-F]{2}$`)
)

// halfSurrogate reports whether text, which may be JSON, has an escape of half a pair.
func halfSurrogate(text string) bool {
	return slices.ContainsFunc(escapePattern.FindAllString(text, -1), halfPattern.MatchString)
}

// duplicates reports whether one of the names, or any name if there are none, is twice in the JSON
// object text.
func duplicates(text string, names []string) bool {
	d := json.NewDecoder(strings.NewReader(text))
	seen, depth, key := map[string]bool{}, 0, false
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) || err != nil {
			return false
		}
		if of, ok := token.(json.Delim); ok {
			if of == '{' || of == '[' {
				depth++
			} else {
				depth--
			}
			key = depth == 1
			continue
		}
		if name, ok := token.(string); ok && depth == 1 && key {
			if seen[name] && (names == nil || slices.Contains(names, name)) {
				return true
			}
			seen[name] = true
		}
		key = depth == 1 && !key
	}
}

// deep reports whether text has lists and objects nested too deeply to read.
func deep(text string) bool {
	return strings.Count(text, "[")+strings.Count(text, "{") > maxDepth
}

// FuzzHeader compares the parser with encoding/json: both accept the same texts and read the same
// values.
func FuzzHeader(f *testing.F) {
	for _, text := range []string{
		`{}`, ` {"w":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8],"x":[1.5e-3,{"a":"\n"}]},"__metadata__":{"a":"b"}} `,
		`{"__metadata__":null,"\ud83d\ude00":{"dtype":"F4","shape":[16],"data_offsets":[8,16]}}`,
		`{"\ud800":{"dtype":"BOOL","shape":[],"data_offsets":[0,1]}}`, `{"a":{"shape":[0,9223372036854775807,4],"dtype":"U8","data_offsets":[3,3]}}`,
		`{"a":{"dtype":"U8","shape":[01],"data_offsets":[0,1]}}`, `{"a":{"dtype":"U8","shape":[-0],"data_offsets":[0,0]}}`,
		`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"\u0061":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`,
		`{"__metadata__":{"a":null}}`, `{"a":{"dtype":null,"shape":null,"data_offsets":[null,1]}}`, `{"a":{"dtype":"X9","shape":[2],"data_offsets":[0,1]}}`,
		`{"a":{"DType":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1],"x":"\\ud800"}}`, "{\"a\x7f\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := parseHeader(text)
		want, refused := oracle(text)
		if err == nil { // duplicates are found by their order in the file
			names := map[string]bool{}
			for i := range got.Entries {
				names[got.Entries[i].Name] = true
			}
			if len(names) != len(got.Entries) {
				err = errors.New("twice")
			}
		}
		if (err == nil) != (refused == nil) && !deep(text) {
			t.Fatalf("%q: %v; encoding/json: %v", text, err, refused)
		}
		if err != nil || refused != nil {
			return
		}
		byName := func(a, b Entry) int { return strings.Compare(a.Name, b.Name) }
		slices.SortFunc(got.Entries, byName)
		slices.SortFunc(want.Entries, byName)
		if len(got.Entries) != len(want.Entries) || len(got.Entries) > 0 && !reflect.DeepEqual(got.Entries, want.Entries) || !reflect.DeepEqual(got.Metadata, want.Metadata) {
			t.Errorf("%q:\n%+v\n%+v", text, got, want)
		}
	})
}

// BenchmarkReadHeader compares the reader of headers with encoding/json, for 100,000 tensors.
func BenchmarkReadHeader(b *testing.B) {
	const n = 100000
	var text strings.Builder
	for i := range n {
		fmt.Fprintf(&text, `,"t%d":{"dtype":"F32","shape":[1],"data_offsets":[%d,%d]}`, i, 4*i, 4*i+4)
	}
	header := "{" + text.String()[1:] + "}"
	file := fileOf(header, 4*n)
	b.Run("ReadHeader", func(b *testing.B) {
		b.SetBytes(int64(len(header)))
		for b.Loop() {
			if h, err := ReadHeader(bytes.NewReader(file), int64(len(file))); err != nil || len(h.Entries) != n {
				b.Fatal(err)
			}
		}
	})
	b.Run("encoding/json", func(b *testing.B) {
		b.SetBytes(int64(len(header)))
		for b.Loop() {
			var into map[string]struct {
				DType   string   `json:"dtype"`
				Shape   []int64  `json:"shape"`
				Offsets [2]int64 `json:"data_offsets"`
			}
			if err := json.Unmarshal([]byte(header), &into); err != nil {
				b.Fatal(err)
			}
		}
	})
}
