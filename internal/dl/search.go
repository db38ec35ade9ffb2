package dl

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Search says what a library is called and where it may lie.
type Search struct {
	// Name is what messages call the library: "openblas".
	Name string

	// Override, if not empty, is the one thing to load: a path, or a bare soname for the loader. It
	// comes from the user (a config value), so nothing else is tried when it does not load.
	Override string

	// Sonames are the file names to look for, the best first: "libnccl.so.2".
	Sonames []string

	// Dirs are further directories, or patterns of filepath.Glob for them
	// ("/opt/venv/lib/*/site-packages/nvidia/*/lib"), looked into after the loader's own places
	// (LD_LIBRARY_PATH, the loader's cache, /lib, /usr/lib) had none of the Sonames.
	Dirs []string

	// Global makes the library's symbols visible to libraries loaded later (RTLD_GLOBAL). False
	// means RTLD_LOCAL.
	Global bool
}

// Validate reports what Open would refuse before it touches the loader.
// Errors: a missing Name, nothing to look for, a NUL byte, a malformed pattern.
func (s Search) Validate() error {
	if s.Name == "" {
		return errors.New("dl: search without a name")
	}
	if s.Override == "" && len(s.Sonames) == 0 {
		return fmt.Errorf("dl: %s: search names neither a path nor a soname", s.Name)
	}
	for _, text := range append([]string{s.Name, s.Override}, s.Sonames...) {
		if strings.ContainsRune(text, 0) {
			return fmt.Errorf("dl: %s: NUL byte in %q", s.Name, text)
		}
	}
	for _, soname := range s.Sonames {
		if soname == "" {
			return fmt.Errorf("dl: %s: empty soname", s.Name)
		}
	}
	for _, dir := range s.Dirs {
		if strings.ContainsRune(dir, 0) {
			return fmt.Errorf("dl: %s: NUL byte in %q", s.Name, dir)
		}
		if _, err := filepath.Match(dir, ""); err != nil {
			return fmt.Errorf("dl: %s: directory pattern %q: %w", s.Name, dir, err)
		}
	}
	return nil
}

// Open loads the first of these that loads: s.Override and nothing else; or each of s.Sonames by
// the loader's own search; or each of s.Sonames in each of s.Dirs.
//
// Returns: the library, which stays loaded until the process ends (see the package comment).
// Errors: ErrNotFound with everything that was tried; ErrUnsupported on a platform without dlopen;
// what Validate finds.
func Open(s Search) (*Library, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	return s.openFirst(s.candidates())
}

// OpenBeside loads a part of l, or a plugin for it, which installers keep in l's folder: the first
// of names that loads from there, else the first that the loader finds. name is what messages call
// it; global as in Search.
//
// Errors: those of Open.
func (l *Library) OpenBeside(name string, global bool, names ...string) (*Library, error) {
	s := Search{Name: name, Sonames: names, Global: global}
	if err := s.Validate(); err != nil {
		return nil, err
	}
	var files []string
	for _, n := range names {
		files = append(files, filepath.Join(filepath.Dir(l.Path()), n))
	}
	return s.openFirst(append(files, names...))
}

// openFirst loads the first of files that loads.
func (s Search) openFirst(files []string) (*Library, error) {
	var tried []string
	for _, file := range files {
		handle, err := sysOpen(file, s.Global)
		if err == nil {
			return newLibrary(s.Name, file, handle), nil
		}
		if errors.Is(err, ErrUnsupported) {
			return nil, fmt.Errorf("dl: %s: %w", s.Name, err)
		}
		tried = append(tried, attempt(file, err))
	}
	if s.Override != "" {
		return nil, fmt.Errorf("dl: %s: %w at the path that was set: %s", s.Name, ErrNotFound, tried[0])
	}
	return nil, fmt.Errorf("dl: %s: %w, tried %s", s.Name, ErrNotFound, strings.Join(tried, "; "))
}

// candidates lists what Open hands to the loader, in order. A soname is one whether or not it
// exists (only the loader can tell); a file in Dirs is one only if it is there, so that the message
// of a failed search stays readable.
func (s Search) candidates() []string {
	if s.Override != "" {
		return []string{s.Override}
	}
	files := append([]string(nil), s.Sonames...)
	for _, soname := range s.Sonames {
		for _, pattern := range s.Dirs {
			dirs, _ := filepath.Glob(pattern) // sorted; its only error, a malformed pattern, was Validate's
			for _, dir := range dirs {
				file, err := filepath.Abs(filepath.Join(dir, soname))
				if err != nil {
					continue // no working directory to complete a relative pattern with
				}
				if _, err := os.Stat(file); err == nil {
					files = append(files, file)
				}
			}
		}
	}
	return files
}

// attempt is one entry of the list of what was tried. The loader's text mostly starts with the
// file's name already.
func attempt(file string, err error) string {
	text := err.Error()
	if strings.HasPrefix(text, file) {
		return text
	}
	return file + ": " + text
}
