package probe

import (
	"runtime"
	"strconv"
	"strings"
)

// System describes the operating system and the program.
type System struct {
	OS           string `json:"os"`           // "linux"
	Distribution string `json:"distribution"` // "Debian GNU/Linux 12 (bookworm)"
	Kernel       string `json:"kernel"`       // "6.1.0-31-amd64"
	Arch         string `json:"arch"`         // "amd64"
	Go           string `json:"go"`           // "go1.26.8"
	Container    string `json:"container"`    // "docker", "podman", "kubernetes" or ""
}

// ReadSystem returns the operating system and the program.
func ReadSystem(r Roots) System {
	return System{
		OS: runtime.GOOS, Arch: runtime.GOARCH, Go: runtime.Version(),
		Distribution: shellValue(r.text("/etc/os-release"), "PRETTY_NAME"),
		Kernel:       r.text("/proc/sys/kernel/osrelease"),
		Container:    container(r),
	}
}

// container returns the container engine, by the marks that it leaves.
func container(r Roots) string {
	switch {
	case r.variable("KUBERNETES_SERVICE_HOST") != "":
		return "kubernetes"
	case len(r.glob("/.dockerenv")) > 0:
		return "docker"
	case len(r.glob("/run/.containerenv")) > 0:
		return "podman"
	}
	return r.variable("container") // systemd-nspawn, LXC
}

// shellValue returns the value of NAME="value" in a file like os-release(5).
func shellValue(text, name string) string {
	for line := range strings.Lines(text) {
		value, ok := strings.CutPrefix(strings.TrimSpace(line), name+"=")
		if !ok {
			continue
		}
		if s, err := strconv.Unquote(value); err == nil {
			return s
		}
		return strings.Trim(value, "'")
	}
	return ""
}
