package shm

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// checkRoom rejects a segment that does not fit into memory. Reserving more than a cgroup or the
// machine has returns no error but wakes the out-of-memory killer, so the limits are checked first.
//
// Errors: ENOMEM.
func checkRoom(size int64) error {
	if limit, used, where, ok := cgroupMemory("/proc/self/cgroup", "/sys/fs/cgroup"); ok && size > limit-used {
		return fmt.Errorf("%d B wanted, but the memory cgroup %s has %d B left of %d: %w", size, where, max(limit-used, 0), limit, unix.ENOMEM)
	}
	if avail, ok := meminfo("/proc/meminfo", "MemAvailable:"); ok && size > avail {
		return fmt.Errorf("%d B wanted, but the machine has %d B available: %w", size, avail, unix.ENOMEM)
	}
	return nil
}

// meminfo returns the value of one line of /proc/meminfo in bytes.
func meminfo(path, key string) (int64, bool) {
	f, err := os.Open(path)
	if err != nil {
		return 0, false
	}
	defer f.Close()
	for sc := bufio.NewScanner(f); sc.Scan(); {
		fields := strings.Fields(sc.Text())
		if len(fields) == 3 && fields[0] == key {
			kb, err := strconv.ParseInt(fields[1], 10, 64)
			return kb << 10, err == nil
		}
	}
	return 0, false
}

// cgroupMemory returns the tightest memory limit on this process and the memory used of it, for
// cgroup v2 and v1. Cached files do not count as used: the kernel includes them, but drops them
// when memory is needed.
func cgroupMemory(self, root string) (limit, used int64, where string, ok bool) {
	raw, err := os.ReadFile(self)
	if err != nil {
		return 0, 0, "", false
	}
	for line := range strings.Lines(string(raw)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		base, limitFile, usedFile, total := root, "memory.max", "memory.current", ""
		switch {
		case parts[0] == "0" && parts[1] == "":
		case strings.Contains(","+parts[1]+",", ",memory,"):
			base, limitFile, usedFile = filepath.Join(root, "memory"), "memory.limit_in_bytes", "memory.usage_in_bytes"
			total = "total_" // includes child groups, as in v2
		default:
			continue
		}
		for dir := filepath.Clean("/" + parts[2]); ; dir = filepath.Dir(dir) {
			l, okL := readInt(filepath.Join(base, dir, limitFile))
			u, okU := readInt(filepath.Join(base, dir, usedFile))
			u = max(0, u-sumOf(filepath.Join(base, dir, "memory.stat"), total+"inactive_file", total+"active_file"))
			if okL && okU && (!ok || l-u < limit-used) {
				limit, used, where, ok = l, u, dir, true
			}
			if dir == "/" {
				break
			}
		}
	}
	return limit, used, where, ok
}

// sumOf adds the lines of a memory.stat that have one of the keys. Neither kind of file pages
// includes shared memory.
func sumOf(path string, keys ...string) (sum int64) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(raw)) {
		key, text, _ := strings.Cut(strings.TrimSpace(line), " ")
		if n, err := strconv.ParseInt(text, 10, 64); err == nil && slices.Contains(keys, key) {
			sum += n
		}
	}
	return sum
}

// readInt returns the number in a file; "max", a missing file and v1's "unlimited" (near 2^63) are
// not ok.
func readInt(path string) (int64, bool) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(raw)), 10, 64)
	return n, err == nil && n < 1<<60
}
