package cuda

import (
	"bytes"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// ownFolder is a folder that only this user may write to, whatever the umask.
func ownFolder(tb testing.TB) string {
	tb.Helper()
	dir := tb.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		tb.Fatal(err)
	}
	return dir
}

// kept is a cache with one image, and its file.
func kept(t *testing.T) (c *cache, key, path string) {
	t.Helper()
	c, key = &cache{dir: filepath.Join(ownFolder(t), "kernels")}, cacheKey([]string{"source"})
	c.store(key, []byte("image"))
	if err := c.failure(); err != nil || string(c.load(key)) != "image" {
		t.Fatal(err)
	}
	return c, key, c.path(key)
}

// warnings collects the log output of a test.
func warnings(t *testing.T) *bytes.Buffer {
	t.Helper()
	var text bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&text, nil)))
	t.Cleanup(func() { slog.SetDefault(before) })
	return &text
}

// refused wants the cache neither to read nor to write, and to say so once.
func refused(t *testing.T, what string, c *cache, key, why string, writes bool) {
	t.Helper()
	text := warnings(t)
	for range 3 {
		if got := c.load(key); got != nil {
			t.Errorf("%s: taken: %q", what, got)
		}
		if writes {
			continue
		}
		if c.store(key, []byte("another")); !errors.Is(c.failure(), ErrUntrusted) {
			t.Errorf("%s: written: %v", what, c.failure())
		}
	}
	if strings.Count(text.String(), "their cache is not safe") != 1 || !strings.Contains(text.String(), why) {
		t.Errorf("%s: logged %q, want once %q", what, text, why)
	}
}

// A kernel is not loaded if other users may write to its file or to the folder.
func TestCacheThatOthersMayWriteIsNotUsed(t *testing.T) {
	for _, mode := range []fs.FileMode{0o770, 0o702, 0o777} {
		c, key, _ := kept(t)
		if err := os.Chmod(c.dir, mode); err != nil {
			t.Fatal(err)
		}
		refused(t, "folder "+mode.String(), c, key, "chmod go-w", false)
	}
	for _, mode := range []fs.FileMode{0o660, 0o602} {
		c, key, path := kept(t)
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		refused(t, "file "+mode.String(), c, key, "chmod go-w", true)
		if c.store(key, []byte("again")); string(c.load(key)) != "again" || c.failure() != nil {
			t.Errorf("the file is not replaced: %v", c.failure())
		}
	}
}

// A folder or a file of another user is not used, even where only that user may write to it.
func TestCacheOfAnotherUserIsNotUsed(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can give files to another user")
	}
	c, key, _ := kept(t)
	if err := os.Chown(c.dir, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	refused(t, "folder", c, key, "user 65534 owns it", false)
	c, key, path := kept(t)
	if err := os.Chown(path, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	refused(t, "file", c, key, "user 65534 owns it", true)
	// A link to an own folder works, one to another user's folder does not.
	c, key, _ = kept(t)
	link := &cache{dir: filepath.Join(ownFolder(t), "link")}
	if err := os.Symlink(c.dir, link.dir); err != nil {
		t.Fatal(err)
	}
	if got := link.load(key); string(got) != "image" {
		t.Errorf("by a link: %q", got)
	}
	if err := os.Chown(c.dir, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	refused(t, "linked folder", link, key, "user 65534 owns it", false)
}

// A name of the cache that is a pipe, a link out of the folder, or too long a file is not read.
func TestCacheReadsRegularFilesOfItsOwn(t *testing.T) {
	for what, place := range map[string]func(path string) error{
		"a pipe": func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"a link": func(path string) error {
			text, err := os.ReadFile(path + ".away")
			elsewhere := filepath.Join(filepath.Dir(filepath.Dir(path)), "elsewhere")
			return errors.Join(err, os.WriteFile(elsewhere, text, 0o600), os.Symlink(elsewhere, path))
		},
		"a long file": func(path string) error {
			return errors.Join(os.Rename(path+".away", path), os.Truncate(path, maxImage+1))
		},
	} {
		c, key, path := kept(t)
		if err := errors.Join(os.Rename(path, path+".away"), place(path)); err != nil {
			t.Fatal(err)
		}
		if got := c.load(key); got != nil {
			t.Errorf("%s: taken", what)
		}
		if c.store(key, []byte("again")); string(c.load(key)) != "again" || c.failure() != nil {
			t.Errorf("%s is not replaced: %v", what, c.failure())
		}
	}
}
