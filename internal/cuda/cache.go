package cuda

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
)

// cacheMagic begins a file of the cache; the SHA-256 of the image and the image follow.
const cacheMagic = "symgrad kernel 1\n"

// cache is a folder of compiled kernels, for one user and any number of processes. A file is written whole under another
// name and then renamed, and is only taken when its sum is right: whatever happens to it, the worst is that a kernel is
// compiled again.
type cache struct {
	dir string // empty: nothing is kept

	mu   sync.Mutex // of last
	last error      // of store
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

// path is the file of key.
func (c *cache) path(key string) string { return filepath.Join(c.dir, key+".cubin") }

// load is the image of key, or nil.
func (c *cache) load(key string) []byte {
	if c.dir == "" {
		return nil
	}
	file, err := os.ReadFile(c.path(key))
	if err != nil {
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

// store keeps image under key, if it can.
func (c *cache) store(key string, image []byte) {
	if c.dir == "" {
		return
	}
	err := c.write(key, image)
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
	// For the user alone: what lies here is run.
	if err := os.MkdirAll(c.dir, 0o700); err != nil {
		return fmt.Errorf("cuda: cache of kernels: %w", err)
	}
	f, err := os.CreateTemp(c.dir, key+".*.part")
	if err != nil {
		return fmt.Errorf("cuda: cache of kernels: %w", err)
	}
	sum := sha256.Sum256(image)
	_, err = f.Write(bytes.Join([][]byte{[]byte(cacheMagic), sum[:], image}, nil))
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), c.path(key))
	}
	if err != nil {
		return fmt.Errorf("cuda: cache of kernels: %w", errors.Join(err, os.Remove(f.Name())))
	}
	return nil
}
