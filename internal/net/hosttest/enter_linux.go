package hosttest

import (
	"encoding/gob"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// forwarded are the signals that a command on a host gets from the process that started it.
var forwarded = []os.Signal{
	syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2,
}

// cannotStart is the exit code of enter when the program cannot start, as that of a shell.
const cannotStart = 127

// request is a program to start on a host. Its open files precede it on the connection.
type request struct {
	Path  string
	Args  []string // with the name of the program
	Env   []string
	Dir   string
	Files []int // numbers of the open files
}

// answer is the end of a program, or the reason why it did not start.
type answer struct {
	Status syscall.WaitStatus
	Err    string
}

// runEnter has process 1 with the number args[0] run the program args[1:], and ends like it. It
// passes signals on. The program gets the files of this process without FD_CLOEXEC.
func runEnter(args []string) (int, error) {
	signals := make(chan os.Signal, len(forwarded))
	signal.Notify(signals, forwarded...)
	r := request{Path: args[1], Args: args[1:], Env: append(os.Environ(), "TMPDIR=/tmp")}
	var err error
	if r.Dir, err = os.Getwd(); err != nil {
		return cannotStart, err
	}
	if !strings.Contains(r.Path, "/") {
		if r.Path, err = exec.LookPath(r.Path); err != nil {
			return cannotStart, err
		}
	}
	if r.Files, err = inherited(); err != nil {
		return cannotStart, err
	}
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: "/proc/" + args[0] + "/root" + startSocket, Net: "unix"})
	if err != nil {
		return cannotStart, fmt.Errorf("process 1 of the host: %w", err)
	}
	if _, _, err := c.WriteMsgUnix([]byte{0}, unix.UnixRights(r.Files...), nil); err != nil {
		return cannotStart, err
	}
	out := gob.NewEncoder(c)
	if err := out.Encode(r); err != nil {
		return cannotStart, err
	}
	go func() {
		for s := range signals {
			if n, ok := s.(syscall.Signal); ok {
				_ = out.Encode(n) // the program may have ended
			}
		}
	}()
	var a answer
	if err := gob.NewDecoder(c).Decode(&a); err != nil {
		return endBy(syscall.SIGKILL), nil // the host has ended
	}
	switch {
	case a.Err != "":
		return cannotStart, errors.New(a.Err)
	case a.Status.Signaled():
		return endBy(a.Status.Signal()), nil
	}
	return a.Status.ExitStatus(), nil
}

// inherited returns the open files without FD_CLOEXEC: package os sets it for all that it opens.
func inherited() (files []int, err error) {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil {
			return nil, err
		}
		// The list has a file that is closed now: the folder itself.
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			files = append(files, fd)
		}
	}
	return files, nil
}

// endBy ends this process by a signal that does so quietly in Go, or returns an exit code for it.
func endBy(s syscall.Signal) int {
	switch s {
	case syscall.SIGKILL, syscall.SIGINT, syscall.SIGHUP, syscall.SIGTERM:
		signal.Reset(s)
		_ = syscall.Kill(os.Getpid(), s)
		select {} // until the signal arrives
	}
	return 128 + int(s)
}
