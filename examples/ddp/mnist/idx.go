package mnist

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/symgrad/symgrad/internal/foreign"
)

// maxElements bounds the elements in a header.
const maxElements = 1 << 30

// readIDX returns the dimensions and bytes of an idx file of unsigned bytes, gzipped or not.
//
// Errors: io.ErrUnexpectedEOF for a truncated file, and descriptions of other damage.
func readIDX(r io.Reader, wantDims int) (dims []int, data []byte, err error) {
	br := bufio.NewReaderSize(r, 1<<16)
	if magic, err := br.Peek(2); err == nil && magic[0] == 0x1f && magic[1] == 0x8b {
		zr, err := gzip.NewReader(br)
		if err != nil {
			return nil, nil, fmt.Errorf("gzip: %w", err)
		}
		br = bufio.NewReaderSize(zr, 1<<16)
	}
	begin, _ := br.Peek(foreign.SniffBytes) // a short file has less
	kind := foreign.Sniff(begin)
	var magic [4]byte
	if _, err := io.ReadFull(br, magic[:]); err != nil {
		return nil, nil, fmt.Errorf("header: %w", noEOF(err))
	}
	const unsignedByte = 8
	if kind != "" && magic[0] != 0 {
		return nil, nil, fmt.Errorf("not an idx file: it is %s", kind)
	}
	if magic[0] != 0 || magic[1] != 0 || magic[2] != unsignedByte || int(magic[3]) != wantDims {
		return nil, nil, fmt.Errorf("header % x: want an idx file of bytes with %d dimensions", magic, wantDims)
	}
	n := 1
	for range wantDims {
		var d [4]byte
		if _, err := io.ReadFull(br, d[:]); err != nil {
			return nil, nil, fmt.Errorf("header: %w", noEOF(err))
		}
		v := binary.BigEndian.Uint32(d[:])
		if v == 0 || uint64(v) > maxElements || uint64(n)*uint64(v) > maxElements {
			return nil, nil, fmt.Errorf("dimensions %v, %d are out of range", dims, v)
		}
		dims = append(dims, int(v))
		n *= int(v)
	}
	var body bytes.Buffer // grows with the data: a damaged header costs no memory
	if got, err := io.CopyN(&body, br, int64(n)); err != nil {
		return nil, nil, fmt.Errorf("data ends after %d of %d bytes: %w", got, n, noEOF(err))
	}
	if _, err := br.ReadByte(); !errors.Is(err, io.EOF) {
		if err != nil {
			return nil, nil, fmt.Errorf("after the data: %w", err)
		}
		return nil, nil, fmt.Errorf("more data than the %d bytes in the header", n)
	}
	return dims, body.Bytes(), nil
}

func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// find returns the path of name, or of name.gz, in dir.
//
// Errors: os.ErrNotExist if both are missing.
func find(dir, name string) (string, error) {
	path := filepath.Join(dir, name)
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

// openIDX reads name, or name.gz, in dir.
func openIDX(dir, name string, wantDims int) (dims []int, data []byte, err error) {
	path, err := find(dir, name)
	if err != nil {
		return nil, nil, err
	}
	f, err := foreign.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close() // only read, so a failed close loses nothing
	if dims, data, err = readIDX(f, wantDims); err != nil {
		return nil, nil, fmt.Errorf("%s is damaged: %w", path, err)
	}
	return dims, data, nil
}
