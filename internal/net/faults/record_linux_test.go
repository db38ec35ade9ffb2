package faults

import (
	"os"
	"os/exec"
	"runtime"
	"strings"

	"github.com/symgrad/symgrad/internal/net/hosttest"
	"github.com/symgrad/symgrad/internal/net/ucx"
)

// session is the first line of a record.
type session struct {
	Kernel    string            `json:"kernel"`
	Processor int               `json:"processors"`
	Libraries map[string]string `json:"libraries"`
}

// versions describes this machine and its libraries.
func versions() any {
	s := session{Processor: runtime.NumCPU(), Libraries: map[string]string{"go": runtime.Version()}}
	if text, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		s.Kernel = strings.TrimSpace(string(text))
	}
	if found, err := ucx.Find(); err == nil {
		s.Libraries["ucx"] = found.Version
	}
	for _, by := range []hosttest.MPI{hosttest.OpenMPI, hosttest.MPICH} {
		out, err := exec.Command(string(by), "--version").Output()
		for _, word := range strings.Fields(string(out)) {
			if err == nil && strings.Count(word, ".") >= 2 && word[0] >= '0' && word[0] <= '9' {
				s.Libraries[string(by)] = word
				break
			}
		}
	}
	return s
}
