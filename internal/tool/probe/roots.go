package probe

import (
	"context"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"
)

// Roots has all input of this package.
type Roots struct {
	FS      fs.FS    // the file system from "/" on; should support symbolic links (fs.ReadLinkFS)
	Environ []string // as from os.Environ

	// Statfs returns the total and free bytes of the file system at a path.
	Statfs func(path string) (total, free int64, err error)

	// TryMemfd creates shared memory as backend shm does: it creates, reserves, seals, maps,
	// touches and frees it.
	TryMemfd func(bytes int64) error

	// Ask asks a library a question. It should be a Child.
	Ask func(ctx context.Context, q Question) Answer
}

// This returns the Roots of this machine.
func This(environ []string, ask func(ctx context.Context, q Question) Answer) Roots {
	return Roots{FS: os.DirFS("/"), Environ: environ, Statfs: statfs, TryMemfd: tryMemfd, Ask: ask}
}

// text returns the content of a file without surrounding space, or "" if it cannot be read.
func (r Roots) text(name string) string {
	b, err := fs.ReadFile(r.FS, strings.TrimPrefix(path.Clean(name), "/"))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(strings.ToValidUTF8(string(b), "?"))
}

// number returns the number in a file.
func (r Roots) number(name string) (int64, bool) {
	n, err := strconv.ParseInt(r.text(name), 10, 64)
	return n, err == nil
}

// glob returns the absolute paths that match an absolute pattern, sorted.
func (r Roots) glob(pattern string) []string {
	names, _ := fs.Glob(r.FS, strings.TrimPrefix(pattern, "/")) // the patterns of this package are well-formed
	for i, n := range names {
		names[i] = "/" + n
	}
	return names
}

// variable returns the value of an environment variable; the last one counts.
func (r Roots) variable(name string) string {
	value := ""
	for _, s := range r.Environ {
		if v, ok := strings.CutPrefix(s, name+"="); ok {
			value = v
		}
	}
	return value
}

// field returns the value of the first line "name : value" of a file of /proc.
func field(text, name string) string {
	for line := range strings.Lines(text) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// kibibytes returns the bytes in a field "24684092 kB"; 0 if it is invalid.
func kibibytes(text, name string) int64 {
	digits, ok := strings.CutSuffix(field(text, name), " kB")
	if !ok {
		return 0
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n < 0 {
		return 0
	}
	return n << 10
}

// countList returns how many numbers a kernel list contains: 6 for "0-3,8,10".
func countList(list string) int {
	count := 0
	for _, part := range strings.Split(strings.TrimSpace(list), ",") {
		from, to, isRange := strings.Cut(part, "-")
		a, err := strconv.Atoi(from)
		if err != nil {
			continue
		}
		b := a
		if isRange {
			if b, err = strconv.Atoi(to); err != nil {
				continue
			}
		}
		count += max(0, b-a+1)
	}
	return count
}
