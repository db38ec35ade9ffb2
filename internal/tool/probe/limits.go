package probe

import (
	"strconv"
	"strings"
)

// Unlimited means no limit.
const Unlimited = -1

// Limits are the system's limits for a process.
type Limits struct {
	Memlock Limit `json:"memlock"` // bytes of memory that cannot be paged out, which RDMA registers
	NoFile  Limit `json:"nofile"`  // open files; Go raises its own soft limit to the hard one
	Stack   Limit `json:"stack"`   // bytes, of the first thread
	NProc   Limit `json:"nproc"`   // processes and threads of the user

	// PtraceScope is Yama's setting: 0 is classic rules, 1 only ancestors, 2 only administrators, 3
	// no process, -1 no Yama. From 1 on, libraries that copy between processes with
	// process_vm_readv (CMA of MPI and UCX) need permission; this module does not.
	PtraceScope int `json:"ptrace_scope"`
}

// Limit is a pair of limits of setrlimit(2).
type Limit struct {
	Soft int64 `json:"soft"`
	Hard int64 `json:"hard"`
}

// ReadLimits returns the limits of this process.
func ReadLimits(r Roots) Limits {
	text := r.text("/proc/self/limits")
	l := Limits{
		Memlock: limit(text, "Max locked memory"),
		NoFile:  limit(text, "Max open files"),
		Stack:   limit(text, "Max stack size"),
		NProc:   limit(text, "Max processes"),

		PtraceScope: -1,
	}
	if n, ok := r.number("/proc/sys/kernel/yama/ptrace_scope"); ok {
		l.PtraceScope = int(n)
	}
	return l
}

// limit parses one line of /proc/PID/limits: name, soft and hard limit, units.
func limit(text, name string) Limit {
	for line := range strings.Lines(text) {
		rest, ok := strings.CutPrefix(line, name+" ")
		words := strings.Fields(rest)
		if !ok || len(words) < 2 {
			continue
		}
		return Limit{Soft: limitNumber(words[0]), Hard: limitNumber(words[1])}
	}
	return Limit{Unlimited, Unlimited}
}

func limitNumber(word string) int64 {
	n, err := strconv.ParseInt(word, 10, 64)
	if err != nil { // "unlimited", or out of range
		return Unlimited
	}
	return n
}
