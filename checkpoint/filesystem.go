package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/symgrad/symgrad/internal/foreign"
)

// fileSystem has the calls that a save needs. It is small so that a test can fail any call, or end
// the program after it.
type fileSystem interface {
	Mkdir(name string) error
	Create(name string) (file, error) // empty, for writing
	Rename(from, to string) error     // replaces a file, not a folder
	Remove(name string) error         // a file or an empty folder
	SyncDir(name string) error        // makes the names in a folder durable
	ReadDir(name string) ([]fs.DirEntry, error)
	ReadFile(name string) ([]byte, error) // a regular file of at most maxManifest bytes
	Size(name string) (int64, error)
	Lock(name string) (*os.File, error) // opened and locked exclusively
}

// file is a file for writing.
type file interface {
	Write(p []byte) (int, error)
	Sync() error
	Close() error
}

// disk is the operating system's file system.
type disk struct{}

func (disk) Mkdir(name string) error                    { return os.Mkdir(name, 0o777) }
func (disk) Rename(from, to string) error               { return os.Rename(from, to) }
func (disk) Remove(name string) error                   { return os.Remove(name) }
func (disk) ReadDir(name string) ([]fs.DirEntry, error) { return os.ReadDir(name) }
func (disk) ReadFile(name string) ([]byte, error)       { return foreign.ReadFile(name, maxManifest) }

func (disk) Create(name string) (file, error) {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o666)
	if err != nil {
		return nil, err // not a nil *os.File in an interface
	}
	return f, nil
}

func (disk) Size(name string) (int64, error) {
	info, err := os.Stat(name)
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

func (disk) SyncDir(name string) error {
	d, err := os.Open(name)
	if err != nil {
		return err
	}
	err = d.Sync()
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, errors.ErrUnsupported) {
		err = nil // some network file systems have no fsync of folders, and keep names without it
	}
	return errors.Join(err, d.Close())
}

// makeFolder makes dir and its missing parents, durably: a checkpoint is only as durable as the
// folder around it.
func makeFolder(sys fileSystem, dir string) error {
	if _, err := os.Stat(dir); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return os.MkdirAll(dir, 0o777) // returns an error if dir is no folder
	}
	above := filepath.Dir(dir)
	if above != dir {
		if err := makeFolder(sys, above); err != nil {
			return err
		}
	}
	if err := os.Mkdir(dir, 0o777); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return sys.SyncDir(above)
}

// temporaryName returns the name of a file until it is whole.
func temporaryName(name string) string { return "." + name + ".tmp" }

// writeWhole makes file name in folder dir from the output of fill, so that readers see the whole
// file or none. It writes under a temporary name, flushes, renames, and flushes the folder.
//
// Errors: those of fill and of the file system; the temporary file is removed then.
func writeWhole(sys fileSystem, dir, name string, fill func(w file) error) error {
	if err := putWhole(sys, dir, name, fill); err != nil {
		return err
	}
	return explain(sys.SyncDir(dir))
}

// putWhole is writeWhole without the folder's flush.
func putWhole(sys fileSystem, dir, name string, fill func(w file) error) error {
	temporary := filepath.Join(dir, temporaryName(name))
	f, err := sys.Create(temporary)
	if err != nil {
		return explain(err)
	}
	err = fill(f)
	if err == nil {
		err = f.Sync()
	}
	if closing := f.Close(); err == nil {
		err = closing
	}
	if err == nil {
		err = sys.Rename(temporary, filepath.Join(dir, name))
	}
	if err != nil {
		_ = sys.Remove(temporary) // the first error is the reason
		return explain(err)
	}
	return nil
}

// writeText is writeWhole for a text.
func writeText(sys fileSystem, dir, name string, text []byte) error {
	return writeWhole(sys, dir, name, filled(text))
}

// filled returns a function that writes text.
func filled(text []byte) func(w file) error {
	return func(w file) error {
		_, err := w.Write(text)
		return err
	}
}

// removeTree removes a folder and its files. It first renames a checkpoint to a name with
// removedSuffix, durably. After a kill no reader then takes the remains for a damaged checkpoint,
// and the next save removes them. In other folders it first removes the manifest, durably, with the
// same effect.
func removeTree(sys fileSystem, dir string) error {
	if f, ok := parseFolder(filepath.Base(dir)); ok && !f.tmp {
		removed := dir + removedSuffix
		if err := removeIfThere(sys, removed); err != nil { // left by a kill: Rename cannot replace a folder with files
			return err
		}
		if err := sys.Rename(dir, removed); err != nil {
			return err
		}
		if err := sys.SyncDir(filepath.Dir(dir)); err != nil {
			return err
		}
		dir = removed
	}
	if err := sys.Remove(filepath.Join(dir, manifestName)); err == nil {
		if err := sys.SyncDir(dir); err != nil {
			return err
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	entries, err := sys.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := sys.Remove(filepath.Join(dir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return sys.Remove(dir)
}

// explain adds a remedy to an error of the file system.
func explain(err error) error {
	switch {
	case errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT):
		return fmt.Errorf("%w: free some room, or keep fewer checkpoints", err)
	case errors.Is(err, syscall.EROFS) || errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w: choose a folder that can be written", err)
	}
	return err
}
