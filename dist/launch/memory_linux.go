package launch

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/symgrad/symgrad/internal/host/cgroup"
)

// memoryWatch counts the kernel's kills for lack of memory. If the count grows, it explains the end
// of a rank that was killed by a signal not sent by the launcher.
type memoryWatch struct {
	read    func(name string) string // returns the text of a file, or ""
	dirs    []string                 // of the memory control group of this process, and those above
	version int
	group   int64 // kills in the group that are explained, or came before
	machine int64 // the same for the machine
}

func newMemoryWatch(read func(name string) string) *memoryWatch {
	m := &memoryWatch{read: read}
	m.dirs, m.version = cgroup.Dirs(read, "memory")
	m.group, m.machine = m.kills()
	return m
}

// textOf returns the text of a file, or "".
func textOf(name string) string {
	text, err := os.ReadFile(name)
	if err != nil {
		return ""
	}
	return string(text)
}

// kills returns how many processes of the group, and of the machine, have been killed for lack of
// memory so far. The kernel counts them as oom_kill in memory.oom_control (cgroup-v1/memory.rst),
// memory.events (cgroup-v2.rst) and /proc/vmstat.
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

// explain explains by lack of memory, with limit and use, a kill that has not been explained yet.
//
// Returns: "" without such a kill.
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
		return fmt.Sprintf("; perhaps out of memory: the kernel has killed a process for that on this machine, which has %s, of which %s are left",
			mebibytes(field(info, "MemTotal:")<<10), mebibytes(field(info, "MemAvailable:")<<10))
	}
	return ""
}

// explainGroup names the smallest limit of the groups, and its use.
func (m *memoryWatch) explainGroup() string {
	limitFile, peakFile, usedFile := "/memory.max", "/memory.peak", "/memory.current"
	if m.version == 1 {
		limitFile, peakFile, usedFile = "/memory.limit_in_bytes", "/memory.max_usage_in_bytes", "/memory.usage_in_bytes"
	}
	least, at := int64(0), ""
	for _, dir := range m.dirs {
		if n, ok := number(m.read(dir + limitFile)); ok && n < cgroup.Unlimited && (at == "" || n < least) { // "max" is not a number
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

// field returns the number after a word at the beginning of a line, or 0.
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
