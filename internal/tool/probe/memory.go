package probe

import (
	"path"
	"slices"
	"strconv"
	"strings"
)

// Memory is the memory of the machine and the part available to this process.
type Memory struct {
	TotalBytes     int64 `json:"total_bytes"`
	AvailableBytes int64 `json:"available_bytes"` // without swapping, by the kernel's estimate
	LimitBytes     int64 `json:"limit_bytes"`     // of the control group nearest to its limit; 0 means no limit
	LimitUsedBytes int64 `json:"limit_used_bytes"`
	UsableBytes    int64 `json:"usable_bytes"` // minimum of the available memory and the remainder of the limit
}

// ReadMemory returns the memory of this machine.
func ReadMemory(r Roots) Memory {
	info := r.text("/proc/meminfo")
	m := Memory{TotalBytes: kibibytes(info, "MemTotal"), AvailableBytes: kibibytes(info, "MemAvailable")}
	m.LimitBytes, m.LimitUsedBytes = memoryLimit(r)
	m.UsableBytes = m.AvailableBytes
	if m.LimitBytes > 0 {
		m.UsableBytes = max(0, min(m.UsableBytes, m.LimitBytes-m.LimitUsedBytes))
	}
	return m
}

// SharedMemory is the memory that ranks of one host can share.
type SharedMemory struct {
	Memfd     Trial      `json:"memfd"`   // anonymous shared memory, which backend shm uses
	DevShm    FileSystem `json:"dev_shm"` // used by other libraries (NCCL, MPI, PyTorch)
	HugePages []HugePage `json:"huge_pages"`

	// The settings of transparent huge pages ("always", "madvise", "never"), for private and for
	// shared memory.
	THP      string `json:"thp"`
	THPShmem string `json:"thp_shmem"`
}

// Trial is the result of a trial.
type Trial struct {
	Usable  bool   `json:"usable"`
	Problem string `json:"problem"`
	Bytes   int64  `json:"bytes"` // size of the trial
}

// FileSystem is the size of a file system.
type FileSystem struct {
	Path       string `json:"path"`
	TotalBytes int64  `json:"total_bytes"`
	FreeBytes  int64  `json:"free_bytes"`
	Problem    string `json:"problem"`
}

// HugePage is the pool of one size of huge pages.
type HugePage struct {
	PageBytes int64 `json:"page_bytes"`
	Total     int64 `json:"total"` // pages
	Free      int64 `json:"free"`
}

// trialBytes is the size of shared memory in a trial: two huge pages.
const trialBytes = 4 << 20

// ReadSharedMemory tries to create shared memory and reads its settings.
func ReadSharedMemory(r Roots) SharedMemory {
	s := SharedMemory{
		Memfd: Trial{Bytes: trialBytes}, DevShm: FileSystem{Path: "/dev/shm"}, HugePages: []HugePage{},
		THP:      selected(r.text("/sys/kernel/mm/transparent_hugepage/enabled")),
		THPShmem: selected(r.text("/sys/kernel/mm/transparent_hugepage/shmem_enabled")),
	}
	if err := r.TryMemfd(trialBytes); err != nil {
		s.Memfd.Problem = err.Error()
	} else {
		s.Memfd.Usable = true
	}
	var err error
	if s.DevShm.TotalBytes, s.DevShm.FreeBytes, err = r.Statfs(s.DevShm.Path); err != nil {
		s.DevShm.Problem = err.Error()
	}
	for _, dir := range r.glob("/sys/kernel/mm/hugepages/hugepages-*kB") {
		digits := strings.TrimSuffix(strings.TrimPrefix(path.Base(dir), "hugepages-"), "kB")
		kib, err := strconv.ParseInt(digits, 10, 64)
		if err != nil {
			continue
		}
		h := HugePage{PageBytes: kib << 10}
		h.Total, _ = r.number(dir + "/nr_hugepages")
		h.Free, _ = r.number(dir + "/free_hugepages")
		s.HugePages = append(s.HugePages, h)
	}
	slices.SortFunc(s.HugePages, func(a, b HugePage) int { return int((a.PageBytes - b.PageBytes) >> 10) })
	return s
}

// selected returns the word in brackets of a kernel setting: "madvise" for "always [madvise]
// never".
func selected(setting string) string {
	_, after, ok := strings.Cut(setting, "[")
	word, _, closed := strings.Cut(after, "]")
	if !ok || !closed {
		return ""
	}
	return word
}
