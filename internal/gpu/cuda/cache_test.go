package cuda

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/symgrad/symgrad/internal/dl"
)

func TestCacheGivesBackWhatItWasGiven(t *testing.T) {
	c := &cache{dir: filepath.Join(t.TempDir(), "a", "b")}
	key := cacheKey([]string{"x"})
	if got := c.load(key); got != nil {
		t.Fatalf("an empty cache has %q", got)
	}
	for _, image := range []string{"first", "second, longer", "\x00"} {
		c.store(key, []byte(image))
		if err := c.failure(); err != nil {
			t.Fatal(err)
		}
		if got := c.load(key); string(got) != image {
			t.Errorf("got %q, want %q", got, image)
		}
	}
	other := &cache{dir: c.dir} // of another process
	if got := other.load(key); string(got) != "\x00" {
		t.Errorf("got %q", got)
	}
	files, err := os.ReadDir(c.dir)
	if err != nil || len(files) != 1 || files[0].Name() != key+".cubin" {
		t.Errorf("%v, %v in the folder, want one file", files, err)
	}
	if info, err := os.Stat(c.dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the folder's mode is %v, %v, want 0700", info.Mode(), err)
	}
}

func TestCacheNeverGivesADamagedImage(t *testing.T) {
	c := &cache{dir: ownFolder(t)}
	key := cacheKey(nil)
	c.store(key, []byte("an image of some bytes"))
	file, err := os.ReadFile(c.path(key))
	if err != nil {
		t.Fatal(err)
	}
	damage := func(what string, b []byte) {
		if err := os.WriteFile(c.path(key), b, 0o600); err != nil {
			t.Fatal(err)
		}
		if got := c.load(key); got != nil {
			t.Errorf("%s: got %q", what, got)
		}
	}
	for i := range file {
		flipped := bytes.Clone(file)
		flipped[i] ^= 1
		damage("a bit flipped", flipped)
		damage("cut short", file[:i])
	}
	damage("longer", append(bytes.Clone(file), 0))
}

func TestCacheThatCannotBeWrittenIsNoneAndSaysWhy(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{file, filepath.Join(file, "below")} {
		c := &cache{dir: dir}
		c.store("key", []byte("image"))
		if err := c.failure(); err == nil || !strings.Contains(err.Error(), "cuda: cache of kernels: ") || !strings.Contains(err.Error(), file) {
			t.Errorf("%s: %v", dir, err)
		}
		if got := c.load("key"); got != nil {
			t.Errorf("%s: got %q", dir, got)
		}
	}
	none := &cache{}
	none.store("key", []byte("image"))
	if got := none.load("key"); got != nil || none.failure() != nil {
		t.Errorf("without a folder: %q, %v", got, none.failure())
	}
}

// Ranks are processes that compile the same kernels at the same time.
func TestCacheIsWrittenByManyAtOnce(t *testing.T) {
	dir := ownFolder(t)
	image := bytes.Repeat([]byte("image"), 10000)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			c := &cache{dir: dir}
			for range 20 {
				c.store("key", image)
				if got := c.load("key"); !bytes.Equal(got, image) {
					t.Errorf("got %d B, want %d", len(got), len(image))
				}
			}
			if err := c.failure(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if files, err := os.ReadDir(dir); err != nil || len(files) != 1 {
		t.Errorf("%d files, %v, want 1", len(files), err)
	}
}

func TestCacheKeysDifferWhereListsDo(t *testing.T) {
	lists := [][]string{nil, {""}, {"", ""}, {"a"}, {"a", "b"}, {"b", "a"}, {"ab"}, {"a", "", "b"}, {"a\x00b"}, {"a", "b", ""}}
	seen := map[string]int{}
	for i, l := range lists {
		key := cacheKey(l)
		if len(key) != 64 || strings.Trim(key, "0123456789abcdef") != "" {
			t.Errorf("%q has key %q", l, key)
		}
		if j, ok := seen[key]; ok {
			t.Errorf("%q and %q have one key", lists[j], l)
		}
		seen[key] = i
	}
	for i, l := range lists {
		if seen[cacheKey(l)] != i {
			t.Errorf("%q has two keys", l)
		}
	}
}

// Cached finds the images that Compile stores, for one architecture.
func TestCachedIsWhatCompileHasKept(t *testing.T) {
	c := &Compiler{lib: new(dl.Library), major: 13, cache: cache{dir: ownFolder(t)}}
	v, older := &Device{major: 9}, &Device{major: 8}
	src := Source{Text: "text", Options: []string{"-DX=1"}}
	if got := c.Cached(v, src); got != nil {
		t.Errorf("an empty cache has %q", got)
	}
	c.cache.store(c.key(src, []string{"--gpu-architecture=sm_90", "-DX=1"}), []byte("image"))
	if got := c.Cached(v, src); string(got) != "image" {
		t.Errorf("got %q", got)
	}
	other := src
	other.Options = nil
	if a, b := c.Cached(older, src), c.Cached(v, other); a != nil || b != nil {
		t.Errorf("got %q for another device, %q for other options", a, b)
	}
}

// A source that includes files is not cached: the files may have changed.
func TestWhatIncludesFilesIsNotKept(t *testing.T) {
	c := &Compiler{lib: new(dl.Library), major: 13, cache: cache{dir: ownFolder(t)}}
	v := &Device{major: 9}
	for _, tt := range []struct {
		src  Source
		kept bool
	}{
		{Source{Text: "int x; // nothing is included"}, true},
		{Source{Text: "int x;", Options: []string{"-I/somewhere", "-DINCLUDE"}}, true},
		{Source{Text: "#include \"mine.h\"\nint x;"}, false},
		{Source{Text: "int x;\n\t# include <mine.h>\n", Options: []string{"--include-path=/somewhere"}}, false},
		{Source{Text: "#if __has_include(<mine.h>)\n#endif\n"}, false},
		{Source{Text: "int x;", Options: []string{"--pre-include=mine.h"}}, false},
		{Source{Text: "int x;", Options: []string{"-include", "mine.h"}}, false},
	} {
		c.cache.store(c.key(tt.src, tt.src.optionsFor(90)), []byte("image"))
		if got := c.Cached(v, tt.src); tt.kept != (string(got) == "image") {
			t.Errorf("%q with %q: %q", tt.src.Text, tt.src.Options, got)
		}
	}
}

func FuzzCacheLoad(f *testing.F) {
	f.Add([]byte(cacheMagic))
	f.Add([]byte{})
	c := &cache{dir: ownFolder(f)}
	c.store("good", []byte("x"))
	good, err := os.ReadFile(c.path("good"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Fuzz(func(t *testing.T, file []byte) {
		c := &cache{dir: ownFolder(t)}
		if err := os.WriteFile(c.path("key"), file, 0o600); err != nil {
			t.Fatal(err)
		}
		image := c.load("key")
		if image == nil {
			return
		}
		c.store("again", image)
		again, err := os.ReadFile(c.path("again"))
		if err != nil || !bytes.Equal(again, file) {
			t.Errorf("%q was taken and is written as %q, %v", file, again, err)
		}
	})
}
