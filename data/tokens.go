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
	Paths      []string // files, in this order; a folder means its files *.bin, sorted by name
	Vocabulary int      // tokens are 0 to Vocabulary-1; 0 means any
}

// Shard is one file of tokens.
type Shard struct {
	Path   string
	Format TokenFormat
	Tokens int
}

// Tokens is the text in the files of a TokensConfig, one after the other. The files are mapped: so
// they may be larger than memory, and ranks of one host share their pages.
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
// tokens, or shorter or longer than its header says, naming the file and the place; a folder
// without *.bin; those of the operating system.
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
		inside, err := filepath.Glob(filepath.Join(escaped(path), "*.bin"))
		switch {
		case err != nil:
			return nil, err
		case len(inside) > 0:
			all = append(all, inside...) // sorted
		case isFolder(path):
			return nil, fmt.Errorf("%w: folder %s has no file *.bin", dist.ErrInvalid, path)
		default:
			all = append(all, path)
		}
	}
	return all, nil
}

// escaped returns a pattern that matches path alone.
func escaped(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
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

// isFolder reports whether path is a folder.
func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// measure sets Format and Tokens.
func (s *shard) measure() (err error) {
	defer catch(&err)
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	size := len(s.mapped)
	if s.Format = formatOf(s.mapped); s.Format != TokensUint16 {
		version := binary.LittleEndian.Uint32(s.mapped[4:])
		said := int(binary.LittleEndian.Uint32(s.mapped[8:]))
		s.Tokens = (size - headerBytes) / s.Format.width()
		switch {
		case version != s.Format.version():
			return fmt.Errorf("%w: version %d in byte 4 of the header, want %d", dist.ErrInvalid, version, s.Format.version())
		case size < headerBytes || said != s.Tokens || size != headerBytes+said*s.Format.width():
			return fmt.Errorf("%w: %d tokens by byte 8 of the header, which need %d bytes; the file has %d: it is incomplete, or another file's end is in it",
				dist.ErrInvalid, said, headerBytes+said*s.Format.width(), size)
		}
	} else if s.Tokens = size / 2; size%2 != 0 {
		return fmt.Errorf("%w: %d bytes, and 2 bytes are a token%s", dist.ErrInvalid, size, kindOf(s.mapped))
	}
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
// vocabulary; a file that was cut since it was opened, or cannot be read. They name file and byte.
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
	begin := s.Format.header() + from*width
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

// Samples returns the number of samples of context tokens: each has the next token as the target of
// each token, so that the last target is the first token of the next sample.
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
