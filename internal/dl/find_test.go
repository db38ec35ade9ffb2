package dl

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestFindListsEveryFileOnceInTheOrderOfOpen(t *testing.T) {
	root := tree(
		"usr/lib/libn.so.2 -> libn.so.2.1",
		"usr/lib/libn.so.2.1",
		"lib -> usr/lib",
		"opt/py/lib/python3.12/site-packages/nvidia/nccl/lib/libn.so.2",
		"opt/old/lib/libn.so.1",
		"opt/same/libn.so.1 -> ../../usr/lib/libn.so.2.1",
		"opt/broken/libn.so.2 -> nowhere",
		"opt/loop/libn.so.2 -> libn.so.2",
	)
	s := Search{Name: "n", Sonames: []string{"libn.so.2", "libn.so.1"}, Dirs: []string{
		"/opt/py/lib/python3*/site-packages/nvidia/*/lib", "/opt/*", "/opt/old/lib", "/absent/*",
	}}
	const wheel = "/opt/py/lib/python3.12/site-packages/nvidia/nccl/lib/libn.so.2"
	tests := []struct {
		name     string
		override string
		want     []File
	}{
		{"search", "", []File{
			{"/lib/libn.so.2", "/usr/lib/libn.so.2.1"},
			{wheel, wheel},
			{"/opt/old/lib/libn.so.1", "/opt/old/lib/libn.so.1"},
		}},
		{"override", "/opt/same/libn.so.1", []File{{"/opt/same/libn.so.1", "/usr/lib/libn.so.2.1"}}},
		{"override that is a soname", "libn.so.2", []File{{"/lib/libn.so.2", "/usr/lib/libn.so.2.1"}}},
		{"override that is absent", "/opt/libn.so.9", nil},
		{"override that is a broken link", "/opt/broken/libn.so.2", nil},
		{"override that links to itself", "/opt/loop/libn.so.2", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := s
			s.Override = tt.override
			got, err := s.Find(root, []string{"/lib", "/usr/lib"})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestFindRefusesWhatOpenRefuses(t *testing.T) {
	s := Search{Name: "x", Sonames: []string{"a"}, Dirs: []string{"/a[b"}}
	if _, err := s.Find(tree(), nil); err == nil || err.Error() != s.Validate().Error() {
		t.Errorf("got %v, want %v", err, s.Validate())
	}
}

// The file system of the machine answers as the made-up ones do, and as package filepath does.
func TestFindOnTheMachinesOwnFileSystem(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "a", "b"), 0o755); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "a", "libx.so.1.2")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for link, target := range map[string]string{"a/b/libx.so.1": "../libx.so.1.2", "c": filepath.Join(dir, "a", "b")} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	found := filepath.Join(dir, "c", "libx.so.1")
	got, err := Search{Name: "x", Sonames: []string{"libx.so.1"}, Dirs: []string{dir + "/c", dir + "/a/*"}}.Find(os.DirFS("/"), nil)
	if err != nil {
		t.Fatal(err)
	}
	real, err := filepath.EvalSymlinks(found)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]File{{found, real}}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
