package nvshmem

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"unsafe"

	"github.com/symgrad/symgrad/internal/dl"
)

// libc holds functions of C's library: memory that NVSHMEM may keep, and C's environment, which
// NVSHMEM reads. os.Getenv does not see variables that are set here, and programs started by
// os/exec do not inherit them.
type libc struct {
	calloc func(n, bytes uintptr) unsafe.Pointer                `dl:"calloc"`
	free   func(p unsafe.Pointer)                               `dl:"free"`
	setenv func(name, value string, overwrite int32) (rc int32) `dl:"setenv"`
}

// openC returns C's library, which every process has.
var openC = sync.OnceValues(func() (*libc, error) {
	lib, err := dl.Open(dl.Search{Name: "libc", Sonames: []string{"libc.so.6"}})
	if err != nil {
		return nil, err
	}
	c := new(libc)
	if err := lib.Bind(c); err != nil {
		return nil, err
	}
	return c, nil
})

// set sets variables of C's environment.
func (c *libc) set(vars []variable) error { return c.put(vars, 1) }

// offer sets the variables that are unset.
func (c *libc) offer(vars []variable) error { return c.put(vars, 0) }

func (c *libc) put(vars []variable, overwrite int32) error {
	for _, v := range vars {
		if c.setenv(v.name, v.value, overwrite) != 0 {
			return fmt.Errorf("nvshmem: cannot set the environment variable %s", v.name)
		}
	}
	return nil
}

// mapped returns the files named soname, or soname and a version, in the text of a /proc/self/maps.
func mapped(maps io.Reader, soname string) ([]string, error) {
	var found []string
	for lines := bufio.NewScanner(maps); ; {
		if !lines.Scan() {
			return found, lines.Err()
		}
		// address perms offset device inode path; the path may have blanks
		fields := strings.Fields(lines.Text())
		if len(fields) < 6 {
			continue
		}
		file := strings.TrimSuffix(lines.Text()[strings.Index(lines.Text(), fields[5]):], " (deleted)")
		name := path.Base(file)
		if (name == soname || strings.HasPrefix(name, soname+".")) && !slices.Contains(found, file) {
			found = append(found, file)
		}
	}
}

// mappedHere returns the files of a library that are mapped into this process.
func mappedHere(soname string) ([]string, error) {
	f, err := os.Open("/proc/self/maps")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // no procfs: nothing to compare with
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return mapped(f, soname)
}

// sameFile reports whether two paths name the same file.
func sameFile(a, b string) bool {
	x, errX := os.Stat(a)
	y, errY := os.Stat(b)
	return errX == nil && errY == nil && os.SameFile(x, y)
}
