package hosttest

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// forwarded are the signals that a command on a host gets from the process that started it.
var forwarded = []os.Signal{
	syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2,
}

// cannotStart is the exit code of enter when the program cannot start, as that of a shell.
const cannotStart = 127

// runEnter joins the namespaces of the process args[0], starts roleProgram there with the program
// args[1:], and ends like it. Files without FD_CLOEXEC stay open for the program.
//
// The calling thread is the main thread, because this runs in an init. Its end kills the program.
func runEnter(args []string) (int, error) {
	signals := make(chan os.Signal, len(forwarded))
	signal.Notify(signals, forwarded...)
	folder, err := os.Getwd()
	if err != nil {
		return cannotStart, err
	}
	var life [2]int
	if err := unix.Pipe2(life[:], unix.O_CLOEXEC); err != nil {
		return cannotStart, err
	}
	if _, err := unix.FcntlInt(uintptr(life[0]), unix.F_SETFD, 0); err != nil {
		return cannotStart, err
	}
	if err := join(args[0]); err != nil {
		return cannotStart, fmt.Errorf("join the host: %w", err)
	}
	p, err := os.StartProcess("/proc/self/exe", append([]string{roleProgram, strconv.Itoa(life[0]), folder}, args[1:]...), &os.ProcAttr{
		Dir:   "/",
		Files: []*os.File{os.Stdin, os.Stdout, os.Stderr},
		Sys:   &syscall.SysProcAttr{Setsid: true}, // Pdeathsig would kill it: see runProgram
	})
	if err != nil {
		return cannotStart, err
	}
	go func() {
		for s := range signals {
			_ = p.Signal(s) // the program may have ended
		}
	}()
	state, err := p.Wait()
	if err != nil {
		return cannotStart, err
	}
	return endLike(state), nil
}

// runProgram becomes the program args[2:] in the folder args[1], and dies with its parent. The file
// args[0] is a pipe whose other end the parent has.
//
// Package syscall cannot do this. It compares the parent's number before and after the fork, but a
// parent outside the PID namespace has the number 0.
func runProgram(args []string) (int, error) {
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return cannotStart, err
	}
	life, err := strconv.Atoi(args[0])
	if err != nil {
		return cannotStart, err
	}
	if n, err := unix.Poll([]unix.PollFd{{Fd: int32(life)}}, 0); n > 0 || err != nil {
		return cannotStart, fmt.Errorf("the parent has ended: %w", err)
	}
	unix.CloseOnExec(life)
	if err := os.Chdir(args[1]); err != nil {
		return cannotStart, fmt.Errorf("%w: a folder in /tmp must be in Options.Share", err)
	}
	name, err := exec.LookPath(args[2])
	if err != nil {
		return cannotStart, err
	}
	return cannotStart, syscall.Exec(name, args[2:], append(os.Environ(), "TMPDIR=/tmp"))
}

// join moves the calling thread into the namespaces of a process. New children are in its PID
// namespace.
func join(pid string) error {
	n, err := strconv.Atoi(pid)
	if err != nil {
		return err
	}
	fd, err := unix.PidfdOpen(n, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.Unshare(unix.CLONE_FS); err != nil { // else the thread cannot join a mount namespace
		return err
	}
	return unix.Setns(fd, namespaces)
}

// endLike returns the exit code of a process, or ends this process by the signal that ended it.
func endLike(state *os.ProcessState) int {
	status, ok := state.Sys().(syscall.WaitStatus)
	if !ok || !status.Signaled() {
		return state.ExitCode()
	}
	switch s := status.Signal(); s {
	case syscall.SIGKILL, syscall.SIGINT, syscall.SIGHUP, syscall.SIGTERM: // others print goroutines
		signal.Reset(s)
		_ = syscall.Kill(os.Getpid(), s)
		select {} // until the signal is delivered
	default:
		return 128 + int(s)
	}
}
