package perf

import (
	"bytes"
	"io/fs"
	"os"
	"runtime"
	"strconv"
	"strings"
)

// Machine describes the machine of a measurement.
type Machine struct {
	Host        string `json:"host"`
	OS          string `json:"os"`
	Kernel      string `json:"kernel"`
	Arch        string `json:"arch"`
	CPU         string `json:"cpu"`
	Cores       int    `json:"cores"` // available to this process
	NUMANodes   int    `json:"numa_nodes"`
	MemoryBytes int64  `json:"memory_bytes"`
}

// thisMachine returns the machine of this process. Fields that its kernel does not report are
// empty.
func thisMachine() Machine {
	host, err := os.Hostname()
	if err != nil {
		host = ""
	}
	m := Machine{Host: host, OS: runtime.GOOS, Arch: runtime.GOARCH, Cores: runtime.NumCPU()}
	m.readFrom(os.DirFS("/"))
	return m
}

// readFrom sets the fields that Linux has in the files of root.
func (m *Machine) readFrom(root fs.FS) {
	m.Kernel = strings.TrimSpace(readText(root, "proc/sys/kernel/osrelease"))
	m.CPU = field(readText(root, "proc/cpuinfo"), "model name")
	if kib, ok := strings.CutSuffix(field(readText(root, "proc/meminfo"), "MemTotal"), " kB"); ok {
		if n, err := strconv.ParseInt(kib, 10, 64); err == nil {
			m.MemoryBytes = n << 10
		}
	}
	nodes, err := fs.Glob(root, "sys/devices/system/node/node[0-9]*")
	if err == nil {
		m.NUMANodes = len(nodes)
	}
}

// readText returns a file's text, or "".
func readText(root fs.FS, name string) string {
	text, err := fs.ReadFile(root, name)
	if err != nil {
		return ""
	}
	return string(bytes.ToValidUTF8(text, nil))
}

// field returns the value of the first line "name : value".
func field(text, name string) string {
	for line := range strings.Lines(text) {
		key, value, ok := strings.Cut(line, ":")
		if ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
