package data

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/foreign"
)

// IDX is the content of an idx file of unsigned bytes, the format of MNIST.
//
// Source: yann.lecun.com/exdb/mnist (the file format).
type IDX struct {
	Path string // of the file that was read, perhaps with .gz
	Dims []int  // the first is the number of samples
	Data []byte // row by row
}

// maxElements bounds the elements in a header.
const maxElements = 1 << 30

// FindIDX returns path, or path with .gz if only that exists.
//
// Errors: os.ErrNotExist if both are missing.
func FindIDX(path string) (string, error) {
	for _, p := range []string{path, path + ".gz"} {
		_, err := os.Stat(p)
		if err == nil {
			return p, nil
		}
		if !errors.Is(err, os.ErrNotExist) {
			return "", err
		}
	}
	return "", missingError(path)
}

// missingError is the os.ErrNotExist for a file, by its path, that is missing with and without .gz.
type missingError string

// Error returns the text, without that of os.ErrNotExist.
func (e missingError) Error() string { return string(e) + " and its .gz are missing" }

// Unwrap returns os.ErrNotExist.
func (e missingError) Unwrap() error { return os.ErrNotExist }

// ReadIDX reads an idx file of unsigned bytes with so many dimensions, 0 for any number: path, or
// path with .gz if only that exists. Its content may be compressed by gzip, whatever its name is.
//
// Errors: those of FindIDX and the file system; dist.ErrInvalid for damage and for another format,
// naming the file and the byte, which counts after decompression; for a truncated file also
// io.ErrUnexpectedEOF.
func ReadIDX(path string, dims int) (*IDX, error) {
	path, err := FindIDX(path)
	if err != nil {
		return nil, err
	}
	f, err := foreign.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() // only read, so a failed close loses nothing
	x := &IDX{Path: path}
	if x.Dims, x.Data, err = readIDX(f, dims); err != nil {
		return nil, fmt.Errorf("%w: %s is damaged: %w", dist.ErrInvalid, path, err)
	}
	return x, nil
}

// readIDX returns the dimensions and bytes of an idx file, gzipped or not. wantDims 0 means any
// number of dimensions.
func readIDX(r io.Reader, wantDims int) (dims []int, data []byte, err error) {
	br := bufio.NewReaderSize(r, 1<<16)
	if magic, err := br.Peek(2); err == nil && magic[0] == 0x1f && magic[1] == 0x8b {
		zr, err := gzip.NewReader(br)
		if err != nil {
			return nil, nil, fmt.Errorf("gzip: %w", err)
		}
		br = bufio.NewReaderSize(zr, 1<<16)
	}
	if dims, err = readIDXHeader(br, wantDims); err != nil {
		return nil, nil, err
	}
	n, begin := 1, 4+4*len(dims)
	for _, d := range dims {
		n *= d
	}
	var body bytes.Buffer // grows with the data: a damaged header costs no memory
	if got, err := io.CopyN(&body, br, int64(n)); err != nil {
		return nil, nil, fmt.Errorf("data ends after %d of %d bytes, at byte %d: %w", got, n, int64(begin)+got, noEOF(err))
	}
	if _, err := br.ReadByte(); !errors.Is(err, io.EOF) {
		if err != nil {
			return nil, nil, fmt.Errorf("after the data, at byte %d: %w", begin+n, err)
		}
		return nil, nil, fmt.Errorf("more data than the %d bytes in the header, from byte %d on", n, begin+n)
	}
	return dims, body.Bytes(), nil
}

// readIDXHeader returns the dimensions.
func readIDXHeader(br *bufio.Reader, wantDims int) (dims []int, err error) {
	begin, _ := br.Peek(foreign.SniffBytes) // a short file has less
	kind := foreign.Sniff(begin)
	var magic [4]byte
	if _, err := io.ReadFull(br, magic[:]); err != nil {
		return nil, fmt.Errorf("header: %w", noEOF(err))
	}
	const unsignedByte = 8
	if kind != "" && magic[0] != 0 {
		return nil, fmt.Errorf("not an idx file: it is %s", kind)
	}
	if magic[0] != 0 || magic[1] != 0 || magic[2] != unsignedByte || magic[3] == 0 || wantDims > 0 && int(magic[3]) != wantDims {
		want := ""
		if wantDims > 0 {
			want = fmt.Sprintf(" with %d dimensions", wantDims)
		}
		return nil, fmt.Errorf("header % x: want an idx file of bytes%s", magic, want)
	}
	n := 1
	for range int(magic[3]) {
		var d [4]byte
		if _, err := io.ReadFull(br, d[:]); err != nil {
			return nil, fmt.Errorf("header: %w", noEOF(err))
		}
		v := binary.BigEndian.Uint32(d[:])
		if v == 0 || uint64(v) > maxElements || uint64(n)*uint64(v) > maxElements {
			return nil, fmt.Errorf("dimensions %v, %d are out of range, at byte %d", dims, v, 4+4*len(dims))
		}
		dims = append(dims, int(v))
		n *= int(v)
	}
	return dims, nil
}

func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
