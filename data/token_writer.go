package data

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/symgrad/symgrad/dist"
)

// TokenWriterConfig are the settings of a TokenWriter.
type TokenWriterConfig struct {
	Dir    string      // folder; it is made if it is missing
	Name   string      // files are Dir/Name_000000.bin, Name_000001.bin, ...
	Format TokenFormat // with a header
	Shard  int         // tokens of a file, the last has fewer; 0 means 100 million
}

// TokenWriter writes tokens to files that OpenTokens, nanoGPT's successors and llm.c read. A file
// has its name only when it is complete.
type TokenWriter struct {
	c      TokenWriterConfig
	file   *os.File // nil between files
	out    *bufio.Writer
	in     int // tokens in file
	number int // of the next file
	paths  []string
	err    error
}

// defaultShard is TokenWriterConfig.Shard if that is 0, as in the files of llm.c.
const defaultShard = 100_000_000

// mostShard is the largest number of tokens that a header holds.
const mostShard = 1<<31 - 1

// NewTokenWriter returns a writer.
//
// Owns: the caller calls Close or Abandon. Errors: dist.ErrInvalid for a format without a header, a
// number of tokens that a header cannot hold, and a folder that has files of that name.
func NewTokenWriter(c TokenWriterConfig) (*TokenWriter, error) {
	if c.Shard == 0 {
		c.Shard = defaultShard
	}
	if c.Name == "" || filepath.Base(c.Name) != c.Name || c.Shard < 1 || c.Shard > mostShard || c.Format.header() == 0 {
		return nil, fmt.Errorf("token writer: %w: name %q, %d tokens of a file as %v; want a file name, 1 to %d tokens and a format with a header",
			dist.ErrInvalid, c.Name, c.Shard, c.Format, mostShard)
	}
	if err := os.MkdirAll(c.Dir, 0o777); err != nil {
		return nil, fmt.Errorf("token writer: %w", err)
	}
	old, err := filepath.Glob(filepath.Join(escaped(c.Dir), escaped(c.Name)+"_*.bin"))
	if err != nil {
		return nil, fmt.Errorf("token writer: %w", err)
	}
	if len(old) > 0 {
		return nil, fmt.Errorf("token writer: %w: %s exists: remove it, or choose another folder", dist.ErrInvalid, old[0])
	}
	return &TokenWriter{c: c}, nil
}

// Paths returns the files that are complete.
func (w *TokenWriter) Paths() []string { return w.paths }

// Write appends tokens.
//
// Errors: dist.ErrInvalid for a token that the format cannot hold; those of the operating system.
// After an error each call returns it.
func (w *TokenWriter) Write(tokens []int) error {
	for _, token := range tokens {
		if w.err == nil && (token < 0 || token > w.c.Format.most()) {
			w.err = fmt.Errorf("token writer: %w: token %d, and %v holds 0 to %d", dist.ErrInvalid, token, w.c.Format, w.c.Format.most())
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
		if w.in++; w.err == nil && w.in == w.c.Shard {
			w.err = w.end()
		}
	}
	return w.err
}

// begin starts a file, with room for the header.
func (w *TokenWriter) begin() (err error) {
	path := filepath.Join(w.c.Dir, fmt.Sprintf("%s_%06d.bin", w.c.Name, w.number))
	if w.file, err = os.OpenFile(path+".tmp", os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o666); err != nil {
		return err
	}
	w.out, w.in = bufio.NewWriterSize(w.file, 1<<20), 0
	w.number++
	_, err = w.out.Write(make([]byte, headerBytes))
	return err
}

// end completes a file.
func (w *TokenWriter) end() error {
	f := w.file
	w.file = nil
	header := make([]byte, 12)
	for i, word := range []uint32{w.c.Format.magic(), w.c.Format.version(), uint32(w.in)} {
		binary.LittleEndian.PutUint32(header[4*i:], word)
	}
	err := w.out.Flush()
	if err == nil {
		_, err = f.WriteAt(header, 0)
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	path := f.Name()[:len(f.Name())-len(".tmp")]
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	w.paths = append(w.paths, path)
	return nil
}

// Close completes the last file. After an error it removes the incomplete one, and returns the
// error.
func (w *TokenWriter) Close() error {
	if w.file != nil && w.err == nil {
		w.err = w.end()
	}
	return errors.Join(w.err, w.Abandon())
}

// Abandon removes the incomplete file, if there is one. It replaces Close for a text that cannot be
// completed; complete files stay.
func (w *TokenWriter) Abandon() error {
	if w.file == nil {
		return nil
	}
	f := w.file
	w.file = nil
	return errors.Join(f.Close(), os.Remove(f.Name()))
}
