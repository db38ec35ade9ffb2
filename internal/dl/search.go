package dl

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Search has the names and possible places of a library.
type Search struct {
	// Name is the name in messages: "openblas".
	Name string

	// Override, if not empty, is the only file to load: a path, or a bare soname for the loader. It
	// is the user's choice (a config value), so there is no fallback.
	Override string

	// Sonames are the file names to search for, the best first: "libnccl.so.2".
	Sonames []string

	// Dirs are further folders, or patterns of filepath.Glob for them
	// ("/opt/venv/lib/*/site-packages/nvidia/*/lib"). They are searched if the loader's own places
	// (LD_LIBRARY_PATH, the loader's cache, /lib, /usr/lib) have none of the Sonames.
	Dirs []string

	// Global makes the symbols visible to libraries loaded later (RTLD_GLOBAL). False means
	// RTLD_LOCAL.
	Global bool
}

// Validate reports errors that Open would return before it calls the loader. Errors: a missing
// Name, no file name, a NUL byte, a malformed pattern.
func (s Search) Validate() error {
	if s.Name == "" {
		return errors.New("dl: search without a name")
	}
	if s.Override == "" && len(s.Sonames) == 0 {
		return fmt.Errorf("dl: %s: the search has neither a path nor a soname", s.Name)
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

// Open loads the first file that loads: s.Override alone; or each of s.Sonames by the loader's own
// search, then each of s.Sonames in each of s.Dirs.
//
// Returns: the library, which stays loaded until the process ends (see the package comment).
// Errors: ErrNotFound with everything that was tried; ErrUnsupported on a platform without dlopen;
// those of Validate.
func Open(s Search) (*Library, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	return s.openFirst(s.candidates())
}

// OpenBeside loads a part of l, or a plugin for it, that installers keep in l's folder. It loads
// the first of names that loads from there, or else the first that the loader finds. name is the
// name in messages; global is as in Search.
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

// openFirst loads the first of files that can be loaded.
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

// candidates returns the names that Open passes to the loader, in order. It includes all sonames,
// because only the loader can find them. It includes only existing files of Dirs, which keeps the
// message of a failed search readable.
func (s Search) candidates() []string {
	if s.Override != "" {
		return []string{s.Override}
	}
	files := append([]string(nil), s.Sonames...)
	for _, soname := range s.Sonames {
		for _, pattern := range s.Dirs {
			dirs, _ := filepath.Glob(pattern) // sorted; Validate has excluded its only error, a malformed pattern
			for _, dir := range dirs {
				file, err := filepath.Abs(filepath.Join(dir, soname))
				if err != nil {
					continue // no working directory for a relative pattern
				}
				if _, err := os.Stat(file); err == nil {
					files = append(files, file)
				}
			}
		}
	}
	return files
}

// attempt formats an entry of the list of tried files. The loader's text mostly starts with the
// file's name already.
func attempt(file string, err error) string {
	text := err.Error()
	if strings.HasPrefix(text, file) {
		return text
	}
	return file + ": " + text
}
