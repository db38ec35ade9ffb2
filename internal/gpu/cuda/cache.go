package cuda

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/symgrad/symgrad/internal/foreign"
)

// cacheMagic starts a file of the cache; the SHA-256 of the image and the image follow.
const cacheMagic = "symgrad kernel 1\n"

// maxImage limits the bytes read from a file of the cache. The largest kernels here have about 100
// KiB.
const maxImage = 64 << 20

// cache is a folder of compiled kernels for one user and any number of processes. A file is written
// under a temporary name and then renamed, and is used only if its checksum is right. Whatever
// happens to it, at worst a kernel is compiled again.
//
// The checksum is public, and a kernel can access all memory of its process. A folder or file is
// therefore used only if this user or root owns it and no other user may write to it. Both are
// checked on open descriptors, so the owners of the folders above do not matter.
type cache struct {
	dir string // empty: nothing is cached

	mu     sync.Mutex // of the fields below
	last   error      // of store
	warned bool       // warn has logged
}

// open opens the folder, and creates it if make is set.
//
// Errors: ErrUntrusted for a folder that another user owns or may write to; those of the file
// system.
func (c *cache) open(make bool) (*os.Root, error) {
	if make {
		if err := os.MkdirAll(c.dir, 0o700); err != nil { // private: its content is run
			return nil, err
		}
	}
	root, err := os.OpenRoot(c.dir)
	if err != nil {
		return nil, err
	}
	info, err := root.Stat(".")
	if err == nil {
		err = trusted(c.dir, info)
	}
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return root, nil
}

// trusted rejects a folder or file that other users can change.
func trusted(path string, info fs.FileInfo) error {
	if err := foreign.Private(info); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrUntrusted, path, err)
	}
	return nil
}

// warn logs once that the cache is not used because it is not safe.
func (c *cache) warn(err error) {
	if !errors.Is(err, ErrUntrusted) {
		return
	}
	c.mu.Lock()
	first := !c.warned
	c.warned = true
	c.mu.Unlock()
	if first {
		slog.Warn("kernels are compiled in each process, because their cache is not safe", "reason", err)
	}
}

// cacheKey hashes parts: equal lists have equal keys, different ones do not.
func cacheKey(parts []string) string {
	h := sha256.New()
	for _, p := range parts {
		var n [8]byte
		binary.LittleEndian.PutUint64(n[:], uint64(len(p)))
		h.Write(n[:])
		h.Write([]byte(p))
	}
	return hex.EncodeToString(h.Sum(nil))
}

// fileName returns the name of the file of key.
func fileName(key string) string { return key + ".cubin" }

// path returns the path of the file of key.
func (c *cache) path(key string) string { return filepath.Join(c.dir, fileName(key)) }

// load returns the image of key, or nil.
func (c *cache) load(key string) []byte {
	if c.dir == "" {
		return nil
	}
	file, err := c.read(key)
	if err != nil {
		c.warn(err)
		return nil
	}
	rest, ok := bytes.CutPrefix(file, []byte(cacheMagic))
	if !ok || len(rest) <= sha256.Size {
		return nil
	}
	image := rest[sha256.Size:]
	if sha256.Sum256(image) != [sha256.Size]byte(rest) {
		return nil
	}
	return image
}

// read returns the file of key.
func (c *cache) read(key string) ([]byte, error) {
	root, err := c.open(false)
	if err != nil {
		return nil, err
	}
	defer root.Close() // opened for reading only
	f, err := root.OpenFile(fileName(key), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%w: it is %s", foreign.ErrIrregular, foreign.Kind(info.Mode()))
	}
	if err := trusted(c.path(key), info); err != nil {
		return nil, err
	}
	return foreign.ReadAll(f, maxImage)
}

// store caches image under key if possible.
func (c *cache) store(key string, image []byte) {
	if c.dir == "" {
		return
	}
	err := c.write(key, image)
	c.warn(err)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = err
}

// failure returns the error of the last store.
func (c *cache) failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last
}

func (c *cache) write(key string, image []byte) error {
	root, err := c.open(true)
	if err != nil {
		return fmt.Errorf("cuda: cache of kernels: %w", err)
	}
	defer root.Close() // the files in it are closed
	part := fileName(key) + "." + rand.Text() + ".part"
	f, err := root.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("cuda: cache of kernels: %w", err)
	}
	sum := sha256.Sum256(image)
	_, err = f.Write(bytes.Join([][]byte{[]byte(cacheMagic), sum[:], image}, nil))
	err = errors.Join(err, f.Close())
	if err == nil {
		err = root.Rename(part, fileName(key))
	}
	if err != nil {
		return fmt.Errorf("cuda: cache of kernels: %w", errors.Join(err, root.Remove(part)))
	}
	return nil
}
