package launch

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// process is the part of /proc/PID/stat, see proc(5), that this package uses.
type process struct {
	pid, parent, group int
	state              byte   // 'Z': ended and not waited for
	start              uint64 // time it started, in clock ticks since boot: with pid, unique
}

func readProcess(pid int) (process, error) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return process{}, err
	}
	return parseStat(string(data))
}

// parseStat reads "pid (name) state ppid pgrp ...". The name may hold blanks and parentheses.
func parseStat(stat string) (process, error) {
	open, end := strings.IndexByte(stat, '('), strings.LastIndexByte(stat, ')')
	if open < 1 || end < open {
		return process{}, fmt.Errorf("process status %q: no name in parentheses", stat)
	}
	const startField = 22 - 3 // field 22 of the line, counting from the state, which is field 3
	fields := strings.Fields(stat[end+1:])
	if len(fields) <= startField || len(fields[0]) != 1 {
		return process{}, fmt.Errorf("process status %q: %d fields after the name", stat, len(fields))
	}
	p := process{state: fields[0][0]}
	var errs [4]error
	p.pid, errs[0] = strconv.Atoi(strings.TrimSpace(stat[:open]))
	p.parent, errs[1] = strconv.Atoi(fields[1])
	p.group, errs[2] = strconv.Atoi(fields[2])
	p.start, errs[3] = strconv.ParseUint(fields[startField], 10, 64)
	for _, err := range errs {
		if err != nil {
			return process{}, fmt.Errorf("process status %q: %w", stat, err)
		}
	}
	return p, nil
}

// childrenOf returns the children of process parent. It may miss those that start or end meanwhile.
func childrenOf(parent int) ([]process, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var children []process
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue // not a process
		}
		if p, err := readProcess(pid); err == nil && p.parent == parent {
			children = append(children, p)
		}
	}
	return children, nil
}

// startedWith reports whether process pid was started with a variable that begins with entry,
// "NAME=" or "NAME=value\x00". It returns false for a process of another user, and for one that has
// ended.
func startedWith(pid int, entry string) bool {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return false
	}
	data = append(data, 0)
	return bytes.HasPrefix(data, []byte(entry)) || bytes.Contains(data, []byte("\x00"+entry))
}

// startedBy names the process that started the ranks of this job on this host: the nearest ancestor
// that was started without the rank's variable. It thus skips wrapper scripts between the launcher
// and the rank.
func startedBy(variable string) (string, error) {
	for pid := os.Getppid(); ; {
		p, err := readProcess(pid)
		if err != nil {
			return "", fmt.Errorf("process %d, an ancestor of this rank: %w", pid, err)
		}
		if p.parent == 0 || !startedWith(pid, variable+"=") {
			return fmt.Sprintf("pid %d started %d", p.pid, p.start), nil
		}
		pid = p.parent
	}
}
