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

// cacheMagic begins a file of the cache; the SHA-256 of the image and the image follow.
const cacheMagic = "symgrad kernel 1\n"

// maxImage is the bytes of a file of the cache that are read at most. The largest kernels here have
// some 100 KiB.
const maxImage = 64 << 20

// cache is a folder of compiled kernels, for one user and any number of processes. A file is
// written whole under another name and then renamed, and is only taken when its sum is right:
// whatever happens to it, the worst is that a kernel is compiled again.
//
// The sum is no secret, and a kernel does what it likes with the memory of its process. So a folder
// or a file is used only if this user or root owns it and no other user may write to it. Both are
// checked on open descriptors: a folder that is one's own holds no files of others, whoever owns
// the folders above it.
type cache struct {
	dir string // empty: nothing is kept

	mu     sync.Mutex // of the fields below
	last   error      // of store
	warned bool       // that the cache is not used
}

// open opens the folder, which it makes if make is set.
//
// Errors: ErrUntrusted for a folder that another user owns or may write to; those of the file
// system.
func (c *cache) open(make bool) (*os.Root, error) {
	if make {
		if err := os.MkdirAll(c.dir, 0o700); err != nil { // for the user alone: what lies here is run
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

// trusted refuses a folder or file that other users can change.
func trusted(path string, info fs.FileInfo) error {
	if err := foreign.Private(info); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrUntrusted, path, err)
	}
	return nil
}

// warn says, once, that the cache is not used for safety's sake.
func (c *cache) warn(err error) {
	if !errors.Is(err, ErrUntrusted) {
		return
	}
	c.mu.Lock()
	first := !c.warned
	c.warned = true
	c.mu.Unlock()
	if first {
		slog.Warn("kernels are compiled in each process: their cache is not used", "reason", err)
	}
}

// cacheKey is the name of what is made of parts: equal lists have equal names, others do not.
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

// fileName is the name of the file of key.
func fileName(key string) string { return key + ".cubin" }

// path is the file of key.
func (c *cache) path(key string) string { return filepath.Join(c.dir, fileName(key)) }

// load is the image of key, or nil.
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
	defer root.Close() // it was only read
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

// store keeps image under key, if it can.
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

// failure is the error of the last store.
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
