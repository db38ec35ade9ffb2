package dl

import (
	"io/fs"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

// tree is a file system of empty files, of texts ("name=text") and of links ("name -> target").
func tree(entries ...string) fstest.MapFS {
	fsys := fstest.MapFS{}
	for _, e := range entries {
		if name, target, ok := strings.Cut(e, " -> "); ok {
			fsys[name] = &fstest.MapFile{Data: []byte(target), Mode: fs.ModeSymlink}
			continue
		}
		name, text, _ := strings.Cut(e, "=")
		fsys[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return fsys
}

func TestPlacesPutDeliberateChoicesFirst(t *testing.T) {
	got := Places(tree(), []string{
		"CUDA_HOME=/opt/cuda-13", "CUDA_PATH=/opt/cuda-13/", "VIRTUAL_ENV=/venv", "CONDA_PREFIX=/conda",
		"HOME=/home/u", "PYTHONPATH=/x:relative::/y", "MKLROOT=not/absolute",
	})
	want := []string{
		"/opt/cuda-13/lib64", "/opt/cuda-13/lib", "/opt/cuda-13/targets/x86_64-linux/lib",
		"/x/nvidia/*/lib", "/y/nvidia/*/lib",
		"/venv/lib/python3*/site-packages/nvidia/*/lib", "/venv/lib",
		"/conda/lib/python3*/site-packages/nvidia/*/lib", "/conda/lib",
		"/home/u/.local/lib/python3*/site-packages/nvidia/*/lib",
	}
	if diff := cmp.Diff(want, got[:len(want)]); diff != "" {
		t.Errorf("the first places (-want +got):\n%s", diff)
	}
	for _, usual := range []string{"/usr/local/cuda/lib64", "/usr/local/lib/python3*/*-packages/nvidia/*/lib", "/usr/local/nvidia/lib64"} {
		if !slices.Contains(got[len(want):], usual) {
			t.Errorf("%s is not among the usual places", usual)
		}
	}
}

func TestLibraryAtHomeIsTheBestSonameThere(t *testing.T) {
	p := Product{"N_HOME", []string{"libn.so.2", "libn.so.1"}}
	root := tree("opt/n/lib/libn.so.1", "opt/n/lib/libn.so.2", "opt/n/lib64/libn.so.1", "opt/old/lib64/libn.so.1", "opt/t/targets/x86_64-linux/lib/libn.so.2")
	for home, want := range map[string]string{
		"/opt/n": "/opt/n/lib/libn.so.2", "/opt/n/": "/opt/n/lib/libn.so.2", "/opt/old": "/opt/old/lib64/libn.so.1",
		"/opt/t": "/opt/t/targets/x86_64-linux/lib/libn.so.2", "/opt": "", "opt/n": "", "": "",
	} {
		if got := p.AtHome(root, []string{"N_HOME=" + home, "OTHER_HOME=/opt/n"}); got != want {
			t.Errorf("N_HOME=%s: %q, want %q", home, got, want)
		}
	}
	if got := p.AtHome(root, nil); got != "" {
		t.Errorf("without the variable: %q", got)
	}
}

func TestPlacesFollowPythonThroughItsLinks(t *testing.T) {
	root := tree(
		"usr/local/bin/python3 -> /opt/link/bin/python3",
		"opt/link -> torch/.venv", // within a folder, too
		"opt/torch/.venv/bin/python3 -> python3.12",
		"opt/torch/.venv/bin/python3.12 -> /usr/bin/python3.12",
		"usr/bin/python3.12",
		"home/u/conda/bin/python3",
	)
	got := Places(root, []string{"PATH=/nowhere:/usr/local/bin:/home/u/conda/bin:relative/bin"})
	want := []string{
		"/opt/link/lib/python3*/site-packages/nvidia/*/lib", "/opt/link/lib",
		"/home/u/conda/lib/python3*/site-packages/nvidia/*/lib", "/home/u/conda/lib",
	}
	if diff := cmp.Diff(want, got[:len(want)]); diff != "" {
		t.Errorf("the first places (-want +got):\n%s", diff)
	}
	if slices.Contains(got, "/usr/lib") {
		t.Error("the system's own library folder is a place: the loader looks there anyway")
	}
}

func TestPlacesAreValidPatternsWithoutDuplicates(t *testing.T) {
	got := Places(tree("bin/python3 -> python3"), []string{"PATH=/bin:/bin", "CUDA_HOME=/usr/local/cuda", "HOME=/root", "CONDA_PREFIX=/a", "VIRTUAL_ENV=/a"})
	if err := (Search{Name: "x", Sonames: []string{"libx.so"}, Dirs: got}).Validate(); err != nil {
		t.Error(err)
	}
	seen := map[string]bool{}
	for _, p := range got {
		if seen[p] {
			t.Errorf("%s is there twice", p)
		}
		seen[p] = true
	}
}

func TestLoaderDirsAreThoseOfTheManual(t *testing.T) {
	root := tree(
		"etc/ld.so.conf=# the system's\ninclude ld.so.conf.d/*.conf\n/opt/one/lib # why\n\nhwcap 0 nosegneg\nrelative/lib\n",
		"etc/ld.so.conf.d/b.conf=/opt/b/lib\n",
		"etc/ld.so.conf.d/a.conf=/opt/a/lib/\n/usr/lib\ninclude /etc/ld.so.conf.d/a.conf\n",
	)
	got := LoaderDirs(root, []string{"LD_LIBRARY_PATH=/first:", "LD_LIBRARY_PATH=/mine/lib::/other:/mine/lib"})
	want := []string{
		"/mine/lib", "/other", "/opt/a/lib", "/usr/lib", "/opt/b/lib", "/opt/one/lib",
		"/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/lib",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
