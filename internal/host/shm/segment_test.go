package shm

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func TestSegmentIsSharedSealedAndPrivate(t *testing.T) {
	seg, err := memfdMaker{}.make("a test", 8192)
	if err != nil {
		t.Fatal(err)
	}
	defer seg.close()
	fd, err := unix.FcntlInt(uintptr(seg.fd()), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		t.Fatal(err)
	}
	other, err := mapReceived(fd, 8192)
	if err != nil {
		t.Fatal(err)
	}
	defer other.close()
	seg.bytes()[5000] = 42
	if other.bytes()[5000] != 42 {
		t.Error("a store through one mapping is not seen through the other")
	}
	if err := unix.Ftruncate(seg.fd(), 4096); !errors.Is(err, unix.EPERM) {
		t.Errorf("shrinking a sealed segment gave %v, want EPERM", err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(seg.fd(), &st); err != nil || st.Mode&0o777 != 0o600 {
		t.Errorf("mode %o, err %v; want 600", st.Mode&0o777, err)
	}
}

func TestMapReceivedRefusesAnotherSize(t *testing.T) {
	seg, err := memfdMaker{}.make("a test", 4096)
	if err != nil {
		t.Fatal(err)
	}
	defer seg.close()
	fd, err := unix.FcntlInt(uintptr(seg.fd()), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := mapReceived(fd, 8192); err == nil || !strings.Contains(err.Error(), "4096") {
		t.Errorf("error %v, want one that names 4096 B", err)
	}
}

func TestSegmentCloseIsIdempotent(t *testing.T) {
	seg, err := memfdMaker{}.make("a test", 4096)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := seg.close(); err != nil {
			t.Error(err)
		}
	}
}

func TestFileSegmentLeavesNoName(t *testing.T) {
	dir := t.TempDir()
	seg, err := fileMaker{dir}.make("a test", 4096)
	if err != nil {
		t.Fatal(err)
	}
	defer seg.close()
	if names, _ := os.ReadDir(dir); len(names) != 0 {
		t.Errorf("%d names are left in the directory", len(names))
	}
}

// smallTmpfs is a tmpfs of one MiB, mounted until the test ends.
func smallTmpfs(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("mounting a small tmpfs needs root: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func TestFullFileSystemIsAnError(t *testing.T) {
	dir := smallTmpfs(t)
	_, err := fileMaker{dir}.make("a symmetric heap", 4<<20)
	if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "4194304 B") || !strings.Contains(err.Error(), "a symmetric heap") {
		t.Errorf("error %v, want ENOSPC with the size and the purpose", err)
	}
	if names, _ := os.ReadDir(dir); len(names) != 0 {
		t.Errorf("%d names are left", len(names))
	}
}

func TestSegmentLargerThanMemoryIsAnError(t *testing.T) {
	for _, mk := range []maker{memfdMaker{}, fileMaker{t.TempDir()}} {
		_, err := mk.make("a symmetric heap", 1<<50)
		if err == nil || !strings.Contains(err.Error(), "a symmetric heap") || !strings.Contains(err.Error(), "1125899906842624 B wanted, but the m") {
			t.Errorf("%T: error %v, want one that names the purpose, the size and the memory left", mk, err)
		}
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestCgroupMemoryFindsTheTightestLimit(t *testing.T) {
	for _, tc := range []struct {
		name, self  string
		files       map[string]string
		limit, used int64
		where       string
		ok          bool
	}{
		{"v2 parent is tighter", "0::/job/rank\n", map[string]string{
			"job/memory.max": "1000", "job/memory.current": "900",
			"job/rank/memory.max": "500", "job/rank/memory.current": "100",
		}, 1000, 900, "/job", true},
		{"v2 no limit", "0::/job\n", map[string]string{"job/memory.max": "max\n", "job/memory.current": "7\n"}, 0, 0, "", false},
		{"v1", "5:cpu,memory:/a\n3:pids:/b\n", map[string]string{
			"memory/a/memory.limit_in_bytes": "4096", "memory/a/memory.usage_in_bytes": "96",
			"memory/memory.limit_in_bytes": "9223372036854771712", "memory/memory.usage_in_bytes": "5",
		}, 4096, 96, "/a", true},
		{"v2 cached files", "0::/job\n", map[string]string{
			"job/memory.max": "1000", "job/memory.current": "990",
			"job/memory.stat": "anon 90\nfile 900\nshmem 100\ninactive_file 700\nactive_file 100\nworkingset_restore_file 5\n",
		}, 1000, 190, "/job", true},
		{"v1 cached files", "3:memory:/a\n", map[string]string{
			"memory/a/memory.limit_in_bytes": "1000", "memory/a/memory.usage_in_bytes": "990",
			"memory/a/memory.stat": "inactive_file 1\nactive_file 2\ntotal_inactive_file 300\ntotal_active_file 400\n",
		}, 1000, 290, "/a", true},
		{"none", "garbage\n", nil, 0, 0, "", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			root := t.TempDir()
			write(t, filepath.Join(root, "self"), tc.self)
			for p, text := range tc.files {
				write(t, filepath.Join(root, "fs", p), text)
			}
			limit, used, where, ok := cgroupMemory(filepath.Join(root, "self"), filepath.Join(root, "fs"))
			if limit != tc.limit || used != tc.used || where != tc.where || ok != tc.ok {
				t.Errorf("got %d %d %q %v, want %d %d %q %v", limit, used, where, ok, tc.limit, tc.used, tc.where, tc.ok)
			}
		})
	}
}

func TestMeminfo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "meminfo")
	write(t, path, "MemTotal:       100 kB\nMemAvailable:   7 kB\nHugePages_Total: 0\n")
	if n, ok := meminfo(path, "MemAvailable:"); !ok || n != 7<<10 {
		t.Errorf("got %d %v, want 7168", n, ok)
	}
	if _, ok := meminfo(path, "HugePages_Total:"); ok {
		t.Error("a line without a unit was taken")
	}
}
