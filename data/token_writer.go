package data

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/symgrad/symgrad/dist"
)

// TokenWriterConfig are the settings of a TokenWriter.
type TokenWriterConfig struct {
	Dir         string      // folder of this text alone; it is made with the first file
	Name        string      // files are Dir/Name_000000.bin, Name_000001.bin, ...
	Format      TokenFormat // one with a header
	ShardTokens int         // tokens of a file, the last has fewer; 0 means 100 million
}

// TokenWriter writes tokens to files that OpenTokens and llm.c read. A file gets its name when it
// is complete. After an error no file of the writer stays.
type TokenWriter struct {
	c      TokenWriterConfig
	file   *os.File // nil between files
	out    *bufio.Writer
	in     int // tokens in file
	paths  []string
	err    error // the first, or dist.ErrClosed
	closed bool
}

// defaultShardTokens is TokenWriterConfig.ShardTokens if that is 0, as in the files of llm.c.
const defaultShardTokens = 100_000_000

// maxShardTokens is the largest number of tokens that a header holds.
const maxShardTokens = 1<<31 - 1

// NewTokenWriter returns a writer.
//
// Owns: the caller calls Close or Abandon. Errors: dist.ErrInvalid for a format without a header, a
// number of tokens that a header cannot hold, and a folder with files *.bin: OpenTokens would read
// them as one text with the new ones.
func NewTokenWriter(c TokenWriterConfig) (*TokenWriter, error) {
	if c.ShardTokens == 0 {
		c.ShardTokens = defaultShardTokens
	}
	magic, _ := c.Format.header()
	if c.Name == "" || filepath.Base(c.Name) != c.Name || c.ShardTokens < 1 || c.ShardTokens > maxShardTokens || magic == 0 {
		return nil, fmt.Errorf("token writer: %w: name %q, %d tokens of a file as %v; want a file name, 1 to %d tokens and a format with a header",
			dist.ErrInvalid, c.Name, c.ShardTokens, c.Format, maxShardTokens)
	}
	files, err := os.ReadDir(c.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("token writer: %w", err)
	}
	for _, file := range files {
		if strings.HasSuffix(file.Name(), ".bin") {
			return nil, fmt.Errorf("token writer: %w: %s exists: remove it, or choose another folder, since a folder is one text",
				dist.ErrInvalid, filepath.Join(c.Dir, file.Name()))
		}
	}
	return &TokenWriter{c: c}, nil
}

// Paths returns the files that are complete.
func (w *TokenWriter) Paths() []string { return w.paths }

// Write appends tokens.
//
// Errors: dist.ErrInvalid for a token that the format cannot hold; those of the operating system;
// dist.ErrClosed. After an error each call returns it.
func (w *TokenWriter) Write(tokens []int) error {
	for _, token := range tokens {
		if w.err == nil && (token < 0 || token > w.c.Format.maxToken()) {
			w.err = fmt.Errorf("token writer: %w: token %d, and %v holds 0 to %d", dist.ErrInvalid, token, w.c.Format, w.c.Format.maxToken())
		}
		if w.err == nil && w.file == nil {
			w.err = w.begin()
		}
		if w.err != nil {
			return w.err
		}
		var b [4]byte
		binary.LittleEndian.PutUint32(b[:], uint32(token))
		_, w.err = w.out.Write(b[:w.c.Format.width()])
		if w.in++; w.err == nil && w.in == w.c.ShardTokens {
			w.err = w.end()
		}
	}
	return w.err
}

// begin starts a file, with room for the header.
func (w *TokenWriter) begin() (err error) {
	if err := os.MkdirAll(w.c.Dir, 0o777); err != nil {
		return err
	}
	path := filepath.Join(w.c.Dir, fmt.Sprintf("%s_%06d.bin.tmp", w.c.Name, len(w.paths)))
	if w.file, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o666); err != nil {
		return err
	}
	w.out, w.in = bufio.NewWriterSize(w.file, 1<<20), 0
	_, err = w.out.Write(make([]byte, headerBytes))
	return err
}

// end completes a file. After an error Abandon removes it.
func (w *TokenWriter) end() error {
	magic, version := w.c.Format.header()
	header := make([]byte, 12)
	for i, word := range []uint32{magic, version, uint32(w.in)} {
		binary.LittleEndian.PutUint32(header[4*i:], word)
	}
	err := w.out.Flush()
	if err == nil {
		_, err = w.file.WriteAt(header, 0)
	}
	if err == nil {
		err = w.file.Sync()
	}
	path := w.file.Name()[:len(w.file.Name())-len(".tmp")]
	if err == nil {
		err = os.Rename(w.file.Name(), path)
	}
	if err != nil {
		return err
	}
	w.paths = append(w.paths, path)
	f := w.file
	w.file = nil
	return f.Close()
}

// Close completes the last file. After an error it removes all files of the writer, and returns the
// error. A second Close does nothing.
func (w *TokenWriter) Close() error {
	if w.closed {
		return nil
	}
	if w.err == nil && w.file != nil {
		w.err = w.end()
	}
	if err := w.err; err != nil {
		return errors.Join(err, w.Abandon())
	}
	w.closed, w.err = true, dist.ErrClosed
	return nil
}

// Abandon removes all files of the writer: it replaces Close for a text that cannot be completed.
// After Close it does nothing.
func (w *TokenWriter) Abandon() error {
	if w.closed {
		return nil
	}
	w.closed, w.err = true, dist.ErrClosed
	var errs []error
	if w.file != nil {
		errs = append(errs, w.file.Close(), os.Remove(w.file.Name()))
		w.file = nil
	}
	for _, path := range w.paths {
		errs = append(errs, os.Remove(path))
	}
	w.paths = nil
	return errors.Join(errs...)
}
