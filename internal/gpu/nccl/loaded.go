package nccl

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"regexp"
	"strings"
)

// loadedFile is an NCCL file that the process has mapped.
type loadedFile struct {
	path  string
	inode string // device and inode, as in /proc/self/maps
}

// libraryFile matches file names of the library itself: libnccl.so, libnccl.so.2,
// libnccl.so.2.28.3; not of its plugins (libnccl-net.so).
var libraryFile = regexp.MustCompile(`^libnccl\.so(\.[0-9]+)*$`)

// loadedFiles returns the different NCCL files in the text of a /proc/self/maps, in the order of
// their first mapping. A file that was replaced on disk after loading has its path without the mark
// " (deleted)".
func loadedFiles(maps io.Reader) ([]loadedFile, error) {
	var found []loadedFile
	seen := map[string]bool{}
	lines := bufio.NewScanner(maps)
	for lines.Scan() {
		// address perms offset device inode path; the path may have blanks
		fields := strings.Fields(lines.Text())
		if len(fields) < 6 {
			continue
		}
		at := strings.Index(lines.Text(), fields[5])
		file := strings.TrimSuffix(lines.Text()[at:], " (deleted)")
		key := fields[3] + " " + fields[4]
		if !libraryFile.MatchString(path.Base(file)) || seen[key] {
			continue
		}
		seen[key] = true
		found = append(found, loadedFile{path: file, inode: key})
	}
	return found, lines.Err()
}

// processFiles returns the NCCL files that this process has mapped.
func processFiles() ([]loadedFile, error) {
	f, err := os.Open("/proc/self/maps")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // no procfs: nothing to compare with
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return loadedFiles(f)
}

// onlyOne returns an error if files has two different NCCLs. Two of them in a process share no
// state: each would start its own threads and proxies, and symbols of one may resolve to the other.
func onlyOne(files []loadedFile) error {
	if len(files) < 2 {
		return nil
	}
	return fmt.Errorf("%w: two different NCCL libraries are loaded in this process, %s and %s: set the path of one for all that use NCCL (NVSHMEM loads it too)",
		ErrLibrary, files[0].path, files[1].path)
}

// wanted returns the file to open, given the loaded files: the loaded one, unless file names
// another.
func wanted(file string, loaded []loadedFile) (string, error) {
	if err := onlyOne(loaded); err != nil {
		return "", err
	}
	if len(loaded) == 0 {
		return file, nil
	}
	have := loaded[0].path
	if file == "" || !strings.ContainsRune(file, '/') || sameFile(file, have) {
		return have, nil
	}
	return "", fmt.Errorf("%w: %s is requested, but %s is already loaded in this process: two different NCCL libraries cannot work in one process; set the path to the loaded one, or load none before",
		ErrLibrary, file, have)
}

func sameFile(a, b string) bool {
	x, errX := os.Stat(a)
	y, errY := os.Stat(b)
	return errX == nil && errY == nil && os.SameFile(x, y)
}
