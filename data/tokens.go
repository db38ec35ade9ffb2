package data

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"sort"
	"strings"

	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
)

// TokensConfig names the files of a text that is encoded as tokens.
type TokensConfig struct {
	Paths      []string // files, in this order; a folder means all its files *.bin, sorted by name
	Vocabulary int      // tokens are 0 to Vocabulary-1; 0 means any
}

// Shard is one file of tokens.
type Shard struct {
	Path   string
	Format TokenFormat
	Tokens int
}

// Tokens is the text in the files of a TokensConfig, one after the other. The files are mapped: so
// they may be larger than memory, and ranks of one host share their pages. On Windows they are read
// into memory.
//
// Formats: see TokenFormat. Concurrency: any number of goroutines, except Close.
type Tokens struct {
	shards     []shard
	starts     []int // number of the first token of each shard, and of the end
	vocabulary int
}

// shard is a mapped Shard.
type shard struct {
	Shard
	file mapped
}

// OpenTokens opens the files, and compares their lengths with their headers.
//
// Owns: the caller closes the tokens. Errors: dist.ErrInvalid for a file of another format, without
// tokens, or shorter or longer than its header says, naming the file and the place; a file without
// a header whose name does not end in .bin; a folder without *.bin; those of the operating system.
func OpenTokens(c TokensConfig) (t *Tokens, err error) {
	if len(c.Paths) == 0 || c.Vocabulary < 0 {
		return nil, fmt.Errorf("tokens: %w: %d paths, a vocabulary of %d; want at least one path and 0 or more", dist.ErrInvalid, len(c.Paths), c.Vocabulary)
	}
	files, err := tokenFiles(c.Paths)
	if err != nil {
		return nil, fmt.Errorf("tokens: %w", err)
	}
	t = &Tokens{starts: []int{0}, vocabulary: c.Vocabulary}
	for _, path := range files {
		s, err := openShard(path)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("tokens: %w", err), t.Close())
		}
		t.shards, t.starts = append(t.shards, s), append(t.starts, t.Len()+s.Tokens)
	}
	return t, nil
}

// tokenFiles replaces folders by their files.
func tokenFiles(paths []string) ([]string, error) {
	var all []string
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil || !info.IsDir() {
			all = append(all, path) // openShard returns the error
			continue
		}
		inside, err := os.ReadDir(path) // sorted
		if err != nil {
			return nil, err
		}
		before := len(all)
		for _, file := range inside {
			if strings.HasSuffix(file.Name(), ".bin") {
				all = append(all, filepath.Join(path, file.Name()))
			}
		}
		if len(all) == before {
			return nil, fmt.Errorf("%w: folder %s has no file *.bin", dist.ErrInvalid, path)
		}
	}
	return all, nil
}

func openShard(path string) (s shard, err error) {
	if s.file, err = openMapped(path); err != nil {
		return s, err
	}
	s.Path = path
	if err = s.measure(); err != nil {
		err = fmt.Errorf("%s: %w", path, errors.Join(err, s.file.unmap()))
	}
	return s, err
}

// measure sets Format and Tokens.
func (s *shard) measure() (err error) {
	defer catch(&err)
	defer debug.SetPanicOnFault(onFault())
	size := len(s.file.bytes)
	if s.Format = formatOf(s.file.bytes); s.Format != TokensUint16 {
		_, want := s.Format.header()
		version := binary.LittleEndian.Uint32(s.file.bytes[4:])
		said := int(binary.LittleEndian.Uint32(s.file.bytes[8:]))
		s.Tokens = (size - headerBytes) / s.Format.width()
		switch {
		case version != want:
			return fmt.Errorf("%w: version %d in byte 4 of the header, want %d", dist.ErrInvalid, version, want)
		case size < headerBytes || said != s.Tokens || size != headerBytes+said*s.Format.width():
			return fmt.Errorf("%w: %d tokens by byte 8 of the header, which need %d bytes; the file has %d: it is incomplete, or another file's end is in it",
				dist.ErrInvalid, said, headerBytes+said*s.Format.width(), size)
		}
		return s.full()
	}
	switch s.Tokens = size / 2; {
	case size%2 != 0:
		return fmt.Errorf("%w: %d bytes, and 2 bytes are a token%s", dist.ErrInvalid, size, kindOf(s.file.bytes))
	case damagedHeader(s.file.bytes):
		return fmt.Errorf("%w: the magic number in byte 0 of the header is %d, want 20240520 or 20240801", dist.ErrInvalid, binary.LittleEndian.Uint32(s.file.bytes))
	case filepath.Ext(s.Path) != ".bin":
		return fmt.Errorf("%w: it has no header of tokens, and its name does not end in .bin, as those of files without a header must", dist.ErrInvalid)
	}
	return s.full()
}

// damagedHeader reports whether b begins with a header that fits, except for its first number.
func damagedHeader(b []byte) bool {
	if len(b) < headerBytes {
		return false
	}
	version, tokens := binary.LittleEndian.Uint32(b[4:]), int64(binary.LittleEndian.Uint32(b[8:]))
	for _, f := range []TokenFormat{TokensHeaderUint16, TokensHeaderUint32} {
		if _, v := f.header(); v == version && int64(len(b)) == headerBytes+tokens*int64(f.width()) {
			return true
		}
	}
	return false
}

// full returns an error for a file without tokens.
func (s *shard) full() error {
	if s.Tokens == 0 {
		return fmt.Errorf("%w: the file has no tokens", dist.ErrInvalid)
	}
	return nil
}

// Len returns the number of tokens.
func (t *Tokens) Len() int { return t.starts[len(t.starts)-1] }

// Shards returns the files, in order.
func (t *Tokens) Shards() []Shard {
	all := make([]Shard, len(t.shards))
	for i := range t.shards {
		all[i] = t.shards[i].Shard
	}
	return all
}

// Read copies the tokens from number at on into into. They may be in several files.
//
// Errors: dist.ErrInvalid for a range outside the text, and for a token that is not in the
// vocabulary, naming file and byte; pages of a file that are gone since it was opened, or cannot be
// read, naming the file. In a page that was cut in the middle, tokens after the cut are 0.
func (t *Tokens) Read(at int, into []int32) error { return readTokens(t, at, into) }

// readTokens is Read for both types of tokens.
func readTokens[T int | int32](t *Tokens, at int, into []T) error {
	if at < 0 || len(into) > t.Len() || at > t.Len()-len(into) {
		return fmt.Errorf("tokens: %w: %d tokens from number %d, and there are %d", dist.ErrInvalid, len(into), at, t.Len())
	}
	for i := sort.SearchInts(t.starts, at+1) - 1; len(into) > 0; i++ {
		s := &t.shards[i]
		from := at - t.starts[i]
		n := min(len(into), s.Tokens-from)
		if err := readShard(s, from, into[:n], t.vocabulary); err != nil {
			return fmt.Errorf("tokens: %s: %w", s.Path, err)
		}
		at, into = at+n, into[n:]
	}
	return nil
}

// readShard copies tokens from number from on of one file.
func readShard[T int | int32](s *shard, from int, into []T, vocabulary int) (err error) {
	defer catch(&err)
	defer debug.SetPanicOnFault(onFault())
	width := s.Format.width()
	begin := s.Format.begin() + from*width
	b := s.file.bytes[begin:]
	if width == 2 {
		for i := range into {
			into[i] = T(binary.LittleEndian.Uint16(b[2*i:]))
		}
	} else {
		for i := range into {
			into[i] = T(int32(binary.LittleEndian.Uint32(b[4*i:]))) // a token above 2^31-1 is negative
		}
	}
	for i, token := range into {
		if token < 0 || vocabulary > 0 && int(token) >= vocabulary {
			return fmt.Errorf("%w: token %d at byte %d; the vocabulary has %d tokens: set it to that of the encoding, or encode the text again",
				dist.ErrInvalid, uint32(token), begin+i*width, cmp.Or(int64(vocabulary), 1<<31))
		}
	}
	return nil
}

// Samples returns the number of samples of context tokens. The target of a token is the next token,
// so the last target of a sample is the first token of the next sample.
func (t *Tokens) Samples(context int) int {
	if context < 1 {
		return 0
	}
	return (t.Len() - 1) / context
}

// Sample reads sample i: inputs are the tokens from number i*len(inputs) on, and targets the token
// after each.
//
// Shapes/units: i from 0 to Samples(len(inputs))-1; inputs and targets of one length. Errors: those
// of Read; dist.ErrInvalid for other lengths.
func (t *Tokens) Sample(i int, inputs, targets []int32) error {
	n := len(inputs)
	if len(targets) != n || i < 0 || i >= t.Samples(n) {
		return fmt.Errorf("tokens: %w: sample %d of %d inputs and %d targets; there are %d samples of %d", dist.ErrInvalid, i, n, len(targets), t.Samples(n), n)
	}
	if err := t.Read(i*n, inputs); err != nil {
		return err
	}
	copy(targets, inputs[1:])
	return t.Read((i+1)*n, targets[n-1:])
}

// Dataset returns the samples of context tokens as a data set with the fields "tokens" and
// "targets", of context ints each, as Sample reads them. They are the same in each epoch.
//
// Owns: t, which must stay open. Errors: dist.ErrInvalid if the text is shorter than a sample.
func (t *Tokens) Dataset(context int) (Dataset, error) {
	if n := t.Samples(context); n < 1 {
		return nil, fmt.Errorf("tokens: %w: %d tokens are less than a sample of %d and its last target", dist.ErrInvalid, t.Len(), context)
	}
	return tokenSamples{t, context}, nil
}

// tokenSamples is the Dataset of a text.
type tokenSamples struct {
	tokens  *Tokens
	context int
}

// Len returns the number of samples.
func (s tokenSamples) Len() int { return s.tokens.Samples(s.context) }

// Fields returns the tokens and their targets.
func (s tokenSamples) Fields() []Field {
	return []Field{{"tokens", gtensor.Int, []int{s.context}}, {"targets", gtensor.Int, []int{s.context}}}
}

// Read reads a sample, as Tokens.Sample does.
func (s tokenSamples) Read(i, _ int, row []Values) error {
	inputs, targets := row[0].Int, row[1].Int
	if err := readTokens(s.tokens, i*s.context, inputs); err != nil {
		return err
	}
	copy(targets, inputs[1:])
	return readTokens(s.tokens, (i+1)*s.context, targets[s.context-1:])
}

// digestBlock and digestBlocks are the bytes of a block of Digest, and the blocks of a large file.
const (
	digestBlock  = 1 << 16
	digestBlocks = 256
)

// Digest identifies the text: the SHA-256 of the files' lengths and contents, in order. Of a file
// larger than 16 MiB it reads 256 blocks of 64 KiB, from the first to the last byte: a change
// between them is not noticed.
//
// Errors: a file that was cut, naming it.
func (t *Tokens) Digest() (string, error) {
	h := sha256.New() // writing to a hash cannot fail
	for i := range t.shards {
		s := &t.shards[i]
		if err := s.hash(h); err != nil {
			return "", fmt.Errorf("tokens: %s: %w", s.Path, err)
		}
	}
	return fmt.Sprintf("SHA-256 of %d tokens: %x", t.Len(), h.Sum(nil)), nil
}

// hash writes the length and the contents of the file, or blocks of them.
func (s *shard) hash(h io.Writer) (err error) {
	defer catch(&err)
	defer debug.SetPanicOnFault(onFault())
	b := s.file.bytes
	fmt.Fprintln(h, len(b))
	if len(b) <= digestBlocks*digestBlock {
		_, err := h.Write(b)
		return err
	}
	for k := range digestBlocks {
		at := int(int64(len(b)-digestBlock) / (digestBlocks - 1) * int64(k))
		if k == digestBlocks-1 {
			at = len(b) - digestBlock
		}
		if _, err := h.Write(b[at:][:digestBlock]); err != nil {
			return err
		}
	}
	return nil
}

// Close unmaps the files. No other method may run, or be called later.
func (t *Tokens) Close() error {
	var errs []error
	for _, s := range slices.Backward(t.shards) {
		errs = append(errs, s.file.unmap())
	}
	t.shards, t.starts = nil, []int{0}
	return errors.Join(errs...)
}
