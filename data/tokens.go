package data

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"sort"
	"strings"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/foreign"
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
	mapped []byte // the file
	unmap  func() error
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
	f, err := foreign.Open(path)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, f.Close()) }() // the mapping stays
	info, err := f.Stat()
	if err == nil && info.Size() == 0 {
		err = fmt.Errorf("%w: the file is empty", dist.ErrInvalid)
	}
	if err == nil {
		s.Path = path
		s.mapped, s.unmap, err = mapFile(f, info.Size())
	}
	if err == nil {
		if err = s.measure(); err != nil {
			err = errors.Join(err, s.unmap())
		}
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", path, err)
	}
	return s, err
}

// measure sets Format and Tokens.
func (s *shard) measure() (err error) {
	defer catch(&err)
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	size := len(s.mapped)
	if s.Format = formatOf(s.mapped); s.Format != TokensUint16 {
		_, want := s.Format.header()
		version := binary.LittleEndian.Uint32(s.mapped[4:])
		said := int(binary.LittleEndian.Uint32(s.mapped[8:]))
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
		return fmt.Errorf("%w: %d bytes, and 2 bytes are a token%s", dist.ErrInvalid, size, kindOf(s.mapped))
	case damagedHeader(s.mapped):
		return fmt.Errorf("%w: the magic number in byte 0 of the header is %d, want 20240520 or 20240801", dist.ErrInvalid, binary.LittleEndian.Uint32(s.mapped))
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

// kindOf returns ": it is ..." for a format that package foreign knows.
func kindOf(b []byte) string {
	if name := foreign.Sniff(b[:min(len(b), 512)]); name != "" {
		return ": it is " + name
	}
	return ""
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
func (t *Tokens) Read(at int, into []int32) error {
	if at < 0 || len(into) > t.Len() || at > t.Len()-len(into) {
		return fmt.Errorf("tokens: %w: %d tokens from number %d, and there are %d", dist.ErrInvalid, len(into), at, t.Len())
	}
	for i := sort.SearchInts(t.starts, at+1) - 1; len(into) > 0; i++ {
		s := &t.shards[i]
		from := at - t.starts[i]
		n := min(len(into), s.Tokens-from)
		if err := s.read(from, into[:n], t.vocabulary); err != nil {
			return fmt.Errorf("tokens: %s: %w", s.Path, err)
		}
		at, into = at+n, into[n:]
	}
	return nil
}

// read copies tokens from number from on of this file.
func (s *shard) read(from int, into []int32, vocabulary int) (err error) {
	defer catch(&err)
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	width := s.Format.width()
	begin := s.Format.begin() + from*width
	b := s.mapped[begin:]
	if width == 2 {
		for i := range into {
			into[i] = int32(binary.LittleEndian.Uint16(b[2*i:]))
		}
	} else {
		for i := range into {
			into[i] = int32(binary.LittleEndian.Uint32(b[4*i:])) // a token above 2^31-1 is negative
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

// catch turns the fault of a mapped page that cannot be read into an error.
func catch(err *error) {
	switch r := recover().(type) {
	case nil:
	case interface {
		runtime.Error
		Addr() uintptr
	}:
		*err = errors.New("the file was cut since it was opened, or its disk fails")
	default:
		*err = fmt.Errorf("BUG: %v", r)
	}
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

// Close unmaps the files. No other method may run, or be called later.
func (t *Tokens) Close() error {
	var errs []error
	for _, s := range slices.Backward(t.shards) {
		errs = append(errs, s.unmap())
	}
	t.shards, t.starts = nil, []int{0}
	return errors.Join(errs...)
}
