package output

import (
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
)

// Replace writes data to path, or leaves the old file. It writes through devices, pipes and
// links, such as /dev/stdout.
func Replace(path string, data []byte) (err error) {
	if real, err := filepath.EvalSymlinks(path); err == nil { // else the file is new, or a pipe in /proc
		path = real
	}
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() && !info.IsDir() {
		return os.WriteFile(path, data, 0o666)
	}
	// Not os.CreateTemp: it makes the file private, but the umask should decide.
	f, err := os.OpenFile(filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+"-"+rand.Text()), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
