package probe

import (
	"context"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"
)

// Roots is everything that this package reads from.
type Roots struct {
	FS      fs.FS    // the file system from "/" on; it should know symbolic links (fs.ReadLinkFS)
	Environ []string // as from os.Environ

	// Statfs is the size of the file system at a path, and how much of it is free, in bytes.
	Statfs func(path string) (total, free int64, err error)

	// TryMemfd makes shared memory of some bytes as backend shm does: creates, reserves, seals,
	// maps and touches it, and gives it back.
	TryMemfd func(bytes int64) error

	// Ask has a library answer a question. It should be a Child.
	Ask func(ctx context.Context, q Question) Answer
}

// This is the Roots of this machine.
func This(environ []string, ask func(ctx context.Context, q Question) Answer) Roots {
	return Roots{FS: os.DirFS("/"), Environ: environ, Statfs: statfs, TryMemfd: tryMemfd, Ask: ask}
}

// text is the text of a file without space around it, or "" if it cannot be read.
func (r Roots) text(name string) string {
	b, err := fs.ReadFile(r.FS, strings.TrimPrefix(path.Clean(name), "/"))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(strings.ToValidUTF8(string(b), "?"))
}

// number is the number in a file.
func (r Roots) number(name string) (int64, bool) {
	n, err := strconv.ParseInt(r.text(name), 10, 64)
	return n, err == nil
}

// glob is the absolute paths that match an absolute pattern, sorted.
func (r Roots) glob(pattern string) []string {
	names, _ := fs.Glob(r.FS, strings.TrimPrefix(pattern, "/")) // the patterns of this package are well-formed
	for i, n := range names {
		names[i] = "/" + n
	}
	return names
}

// variable is the value of an environment variable; the last one counts.
func (r Roots) variable(name string) string {
	value := ""
	for _, s := range r.Environ {
		if v, ok := strings.CutPrefix(s, name+"="); ok {
			value = v
		}
	}
	return value
}

// field is the value of the first line "name : value" of a file of /proc.
func field(text, name string) string {
	for line := range strings.Lines(text) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// kibibytes is the bytes in a field "24684092 kB"; 0 if it is not one.
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

// countList is how many numbers a list of the kernel's holds: 6 for "0-3,8,10".
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
