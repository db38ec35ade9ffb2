package dl

import (
	"fmt"
	"io/fs"
	"path"
	"strings"
)

// maxLinks is the largest number of symbolic links in a path, as in Linux (path_resolution(7)).
const maxLinks = 40

// File is a library file that is not loaded.
type File struct {
	Path string // as it was found
	Real string // with links resolved: two files are the same if these are equal
}

// Find lists the existing files that s could mean, without loading any: Override alone; or every
// soname in each of loaderDirs, then every soname in each of s.Dirs. A file that is found several
// times is listed once, at its first place.
//
// Shapes/units: root is the file system from "/" on. An Override that is a bare soname is searched
// for in loaderDirs. Errors: those of Validate.
func (s Search) Find(root fs.FS, loaderDirs []string) ([]File, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	var files []File
	seen := map[string]bool{}
	add := func(p string) {
		real, err := realPath(root, p)
		if err == nil && !seen[real] {
			seen[real] = true
			files = append(files, File{path.Clean(p), real})
		}
	}
	if strings.Contains(s.Override, "/") {
		add(s.Override)
		return files, nil
	}
	sonames, patterns := s.Sonames, s.Dirs
	if s.Override != "" {
		sonames, patterns = []string{s.Override}, nil
	}
	for _, soname := range sonames {
		for _, dir := range loaderDirs {
			add(path.Join(dir, soname))
		}
	}
	for _, soname := range sonames {
		for _, pattern := range patterns {
			dirs, _ := fs.Glob(root, inRoot(pattern)) // sorted; Validate has excluded its only error, a malformed pattern
			for _, dir := range dirs {
				add(path.Join("/", dir, soname))
			}
		}
	}
	return files, nil
}

// realPath resolves the symbolic links of an absolute path; root is "/".
func realPath(root fs.FS, name string) (string, error) {
	rest := strings.Split(inRoot(name), "/")
	at := "/"
	for links := 0; len(rest) > 0; {
		next := path.Join(at, rest[0])
		rest = rest[1:]
		info, err := fs.Lstat(root, inRoot(next))
		if err != nil {
			return "", fmt.Errorf("dl: resolve %s: %w", name, err)
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			at = next
			continue
		}
		if links++; links > maxLinks {
			return "", fmt.Errorf("dl: resolve %s: more than %d links", name, maxLinks)
		}
		target, err := fs.ReadLink(root, inRoot(next))
		if err != nil {
			return "", fmt.Errorf("dl: resolve %s: %w", name, err)
		}
		if path.IsAbs(target) {
			at = "/"
		}
		// Not cleaned: ".." means the parent of a link's target.
		rest = append(strings.FieldsFunc(target, func(r rune) bool { return r == '/' }), rest...)
	}
	return at, nil
}
