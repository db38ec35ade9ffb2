package launch

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/symgrad/symgrad/internal/cgroup"
)

// memoryWatch knows how often the kernel has killed for lack of memory. A rank that was killed by a
// signal that the launcher did not send has this explanation if the count has grown.
type memoryWatch struct {
	read    func(name string) string // the text of a file; "" where there is none
	dirs    []string                 // of the memory control group of this process, and those above
	version int
	group   int64 // kills in the group that have been explained, or came before
	machine int64 // likewise on the machine
}

func newMemoryWatch(read func(name string) string) *memoryWatch {
	m := &memoryWatch{read: read}
	m.dirs, m.version = cgroup.Dirs(read, "memory")
	m.group, m.machine = m.kills()
	return m
}

// textOf returns the text of a file of the kernel.
func textOf(name string) string {
	text, err := os.ReadFile(name)
	if err != nil {
		return ""
	}
	return string(text)
}

// kills is how many processes of the group, and of the machine, have been killed for lack of memory
// so far. cgroup-v1/memory.rst (memory.oom_control) and cgroup-v2.rst (memory.events) of the kernel
// have oom_kill, and so has /proc/vmstat.
func (m *memoryWatch) kills() (group, machine int64) {
	if len(m.dirs) > 0 {
		file := "/memory.events"
		if m.version == 1 {
			file = "/memory.oom_control"
		}
		group = field(m.read(m.dirs[0]+file), "oom_kill")
	}
	return group, field(m.read("/proc/vmstat"), "oom_kill")
}

// explain says that memory ran out, with limit and use, if that has killed a process since the last
// one that was explained.
//
// Returns: "" where it has not.
func (m *memoryWatch) explain() string {
	group, machine := m.kills()
	switch {
	case group > m.group:
		m.group++
		m.machine++ // which counts it too
		return m.explainGroup()
	case machine > m.machine:
		m.machine++
		info := m.read("/proc/meminfo")
		return fmt.Sprintf("; perhaps for memory: the kernel has killed for it on this machine, which has %s, of which %s are left",
			mebibytes(field(info, "MemTotal:")<<10), mebibytes(field(info, "MemAvailable:")<<10))
	}
	return ""
}

// explainGroup names the least limit of the groups, and their use.
func (m *memoryWatch) explainGroup() string {
	limitFile, peakFile, usedFile := "/memory.max", "/memory.peak", "/memory.current"
	if m.version == 1 {
		limitFile, peakFile, usedFile = "/memory.limit_in_bytes", "/memory.max_usage_in_bytes", "/memory.usage_in_bytes"
	}
	least, at := int64(0), ""
	for _, dir := range m.dirs {
		if n, ok := number(m.read(dir + limitFile)); ok && n < cgroup.Unlimited && (at == "" || n < least) { // "max" is no number
			least, at = n, dir
		}
	}
	if at == "" {
		return "; memory ran out in its control group"
	}
	text := fmt.Sprintf("; memory ran out: the control group %s has a limit of %s", at, mebibytes(least))
	if n, ok := number(m.read(at + peakFile)); ok {
		text += fmt.Sprintf(", and had %s in use", mebibytes(n))
	} else if n, ok := number(m.read(at + usedFile)); ok {
		text += fmt.Sprintf(", and has %s in use without the rank", mebibytes(n))
	}
	return text
}

// field returns the number after a word at the beginning of a line; 0 if there is none.
func field(text, word string) int64 {
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) >= 2 && f[0] == word {
			n, _ := number(f[1])
			return n
		}
	}
	return 0
}

func number(text string) (int64, bool) {
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	return n, err == nil
}

func mebibytes(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }
