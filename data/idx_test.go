package data

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
)

// idx is an idx file of unsigned bytes.
func idx(data []byte, dims ...int) []byte {
	b := []byte{0, 0, 8, byte(len(dims))}
	for _, d := range dims {
		b = binary.BigEndian.AppendUint32(b, uint32(d))
	}
	return append(b, data...)
}

func gzipped(t testing.TB, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestReadIDXReadsPlainAndGzipped(t *testing.T) {
	want := []byte{1, 2, 3, 4, 5, 6}
	plain := idx(want, 1, 3, 2)
	for name, file := range map[string][]byte{"plain": plain, "gzip": gzipped(t, plain)} {
		dims, data, err := readIDX(bytes.NewReader(file), 3)
		if err != nil || !slices.Equal(dims, []int{1, 3, 2}) || !bytes.Equal(data, want) {
			t.Errorf("%s: dimensions %v, data %v, %v", name, dims, data, err)
		}
	}
}

func TestReadIDXRefusesDamage(t *testing.T) {
	good := idx([]byte{1, 2, 3, 4}, 2, 2)
	zipped := gzipped(t, good)
	flipped := slices.Clone(zipped)
	flipped[len(flipped)-6] ^= 0xff // in the checksum
	for _, test := range []struct {
		name  string
		file  []byte
		text  string
		short bool // io.ErrUnexpectedEOF
	}{
		{name: "empty", file: nil, text: "header", short: true},
		{name: "half a header", file: good[:3], text: "header", short: true},
		{name: "half the dimensions", file: good[:9], text: "header", short: true},
		{name: "no data", file: good[:12], text: "ends after 0 of 4 bytes", short: true},
		{name: "truncated", file: good[:15], text: "ends after 3 of 4 bytes", short: true},
		{name: "one byte more", file: append(slices.Clone(good), 0), text: "more data than the 4 bytes"},
		{name: "wrong magic", file: append([]byte{1}, good[1:]...), text: "01 00 08 02"},
		{name: "floats", file: append([]byte{0, 0, 13}, good[3:]...), text: "00 00 0d 02"},
		{name: "another number of dimensions", file: idx([]byte{1}, 1), text: "with 2 dimensions"},
		{name: "a dimension of zero", file: idx(nil, 2, 0), text: "out of range"},
		{name: "too large", file: idx(nil, 1<<20, 1<<20), text: "out of range"},
		{name: "large and truncated", file: idx([]byte{1}, 1<<15, 1<<15), text: "ends after 1 of 1073741824", short: true},
		{name: "gzip without its checksum", file: zipped[:len(zipped)-8], text: "after the data", short: true},
		{name: "half a gzip header", file: zipped[:5], text: "gzip", short: true},
		{name: "wrong checksum", file: flipped, text: "checksum"},
		{name: "bytes after the gzip stream", file: append(slices.Clone(zipped), "another ten bytes"...), text: "after the data"},
		{name: "one byte more in the gzip stream", file: gzipped(t, append(slices.Clone(good), 0)), text: "more data than the 4 bytes"},
	} {
		_, _, err := readIDX(bytes.NewReader(test.file), 2)
		if err == nil || !strings.Contains(err.Error(), test.text) {
			t.Errorf("%s: error %v, want one with %q", test.name, err, test.text)
		}
		if errors.Is(err, io.ErrUnexpectedEOF) != test.short {
			t.Errorf("%s: error %v, truncated: %v", test.name, err, test.short)
		}
	}
}

// For any bytes, readIDX returns, and accepted data matches the header.
func FuzzReadIDX(f *testing.F) {
	f.Add(idx([]byte{1, 2, 3, 4, 5, 6}, 1, 3, 2), 3)
	f.Add(idx([]byte{7, 8}, 2), 1)
	f.Add(idx(nil, 1<<30), 1)
	f.Add(idx([]byte{1}, 1<<31, 1<<31), 2)
	f.Add(gzipped(f, idx([]byte{1, 2}, 2)), 1)
	f.Add([]byte{0x1f, 0x8b, 8}, 1)
	f.Fuzz(func(t *testing.T, file []byte, wantDims int) {
		wantDims &= 7
		dims, data, err := readIDX(bytes.NewReader(file), wantDims)
		if err != nil {
			return
		}
		n := 1
		for _, d := range dims {
			n *= d
		}
		if wantDims > 0 && len(dims) != wantDims || len(data) != n {
			t.Fatalf("%d bytes for dimensions %v, want %d of them", len(data), dims, wantDims)
		}
		again, same, err := readIDX(bytes.NewReader(idx(data, dims...)), wantDims)
		if err != nil || !slices.Equal(again, dims) || !bytes.Equal(same, data) {
			t.Fatalf("written again: %v, %v", again, err)
		}
	})
}
