package cuda

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/symgrad/symgrad/internal/dl"
)

// Config has the places of the libraries and of the cache of compiled kernels. The zero value
// searches for the libraries and caches kernels in the user's cache folder.
type Config struct {
	Driver   string   // path or soname of libcuda; "" means libcuda.so.1
	NVRTC    string   // path or soname of libnvrtc; "" means the newest CUDA that the driver can run
	CacheDir string   // absolute folder for compiled kernels, private to this user; "" means symgrad/kernels in os.UserCacheDir
	Dirs     []string // folders and patterns to search after the loader's; nil means dl.Places without an environment
}

// Validate reports values that Open would reject. Errors: ErrInvalid.
func (c Config) Validate() error {
	for _, f := range []struct{ name, value string }{{"Driver", c.Driver}, {"NVRTC", c.NVRTC}, {"CacheDir", c.CacheDir}} {
		if strings.ContainsRune(f.value, 0) {
			return fmt.Errorf("cuda: %w: NUL byte in %s %q", ErrInvalid, f.name, f.value)
		}
	}
	if c.CacheDir != "" && !filepath.IsAbs(c.CacheDir) {
		return fmt.Errorf("cuda: %w: CacheDir %q is not absolute", ErrInvalid, c.CacheDir)
	}
	if err := (dl.Search{Name: "cuda", Sonames: []string{"libcuda.so.1"}, Dirs: c.Dirs}).Validate(); err != nil {
		return fmt.Errorf("cuda: %w: %w", ErrInvalid, err)
	}
	return nil
}

// dirs returns Dirs or its default.
func (c Config) dirs() []string {
	if c.Dirs == nil {
		return dl.Places(os.DirFS("/"), nil)
	}
	return c.Dirs
}

// cacheDir returns CacheDir or its default; "" if the user has no cache folder.
func (c Config) cacheDir() string {
	if c.CacheDir != "" {
		return c.CacheDir
	}
	dir, err := os.UserCacheDir()
	if err != nil || !filepath.IsAbs(dir) {
		return ""
	}
	return filepath.Join(dir, "symgrad", "kernels")
}
