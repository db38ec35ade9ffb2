package launch

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// credentialsFD is the child's descriptor of its credentials: the first after stdin, stdout and
// stderr. The handover of the job is the next.
const credentialsFD = 3

// child is one rank as a process.
type child struct {
	rank           int
	cmd            *exec.Cmd
	stdout, stderr *os.File // pipes that it writes to
	output         *rankOutput

	mu      sync.Mutex
	ended   bool               // it was waited for: another process may have its id
	stopped bool               // the launcher stopped it before it ended
	status  syscall.WaitStatus // valid when ended
	memory  string             // explains its end by lack of memory, or ""; the supervisor owns it
	order   int64              // number of ranks that had ended with it, itself included
}

// startChild starts one rank as the leader of a process group. The rank inherits the non-nil files,
// from credentialsFD on. Call it on a thread that outlives the child.
func startChild(cfg SpawnConfig, env []string, rank int, inherited ...*os.File) (*child, error) {
	c := &child{rank: rank, cmd: exec.Command(cfg.Program, cfg.Args...)}
	c.cmd.Env, c.cmd.Dir = env, cfg.Dir
	for _, f := range inherited {
		if f != nil {
			c.cmd.ExtraFiles = append(c.cmd.ExtraFiles, f)
		}
	}
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	var ends []*os.File // the child's ends of the pipes
	pipe := func(end *io.Writer) (*os.File, error) {
		r, w, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		ends, *end = append(ends, w), w
		return r, nil
	}
	var err error
	if c.stdout, err = pipe(&c.cmd.Stdout); err == nil {
		if c.stderr, err = pipe(&c.cmd.Stderr); err == nil {
			err = c.cmd.Start()
		}
	}
	for _, w := range ends {
		_ = w.Close() // nothing was written to it here
	}
	if err != nil {
		for _, r := range []*os.File{c.stdout, c.stderr} {
			if r != nil {
				_ = r.Close() // nothing was read from it
			}
		}
		return nil, err
	}
	return c, nil
}

// pid returns the process id of the rank, and of its process group.
func (c *child) pid() int { return c.cmd.Process.Pid }

// signal sends sig to the rank and the processes it started, unless the rank has ended. stop marks
// the rank as stopped by the launcher.
func (c *child) signal(sig syscall.Signal, stop bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return
	}
	c.stopped = c.stopped || stop
	_ = unix.Kill(-c.pid(), sig) // cannot fail: the leader is at least a zombie
	// A stopped process, as one that read from the terminal, only handles SIGKILL until it is
	// continued.
	_ = unix.Kill(-c.pid(), unix.SIGCONT)
}

// wait waits for the rank to end, ends its remaining processes, and sends c to exits. count is the
// number of ranks that have ended.
func (c *child) wait(count *atomic.Int64, exits chan<- *child) {
	// Without reaping: while the leader is a zombie, no other process or group can get its id.
	for errors.Is(unix.Waitid(unix.P_PID, c.pid(), nil, unix.WEXITED|unix.WNOWAIT, nil), unix.EINTR) {
	}
	c.order = count.Add(1) // before another process can see that this one is gone
	c.mu.Lock()
	_ = unix.Kill(-c.pid(), unix.SIGKILL) // the rest of its group
	_ = c.cmd.Wait()                      // the status says more than the error
	c.status, _ = c.cmd.ProcessState.Sys().(syscall.WaitStatus)
	c.ended = true
	c.mu.Unlock()
	reapGroup(c.pid())
	exits <- c
}

// reapGroup waits for processes of a group that are children of this process: orphans of the rank,
// whose parent became this process at the rank's end. Their own children become so before they end,
// so without children none is left.
func reapGroup(group int) {
	for {
		_, err := unix.Wait4(-group, nil, 0, nil)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// code returns the exit code of an ended rank, as in a shell.
func (c *child) code() int {
	if c.status.Signaled() {
		return 128 + int(c.status.Signal())
	}
	return c.status.ExitStatus()
}

// unasked reports whether a rank was killed by a SIGKILL that the launcher did not send.
func (c *child) unasked() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.stopped && c.status.Signaled() && c.status.Signal() == syscall.SIGKILL
}

// how describes the end of a rank.
func (c *child) how() string {
	switch {
	case c.status.Signaled() && c.status.CoreDump():
		return fmt.Sprintf("was killed by signal: %v (core dumped)", c.status.Signal())
	case c.status.Signaled():
		return fmt.Sprintf("was killed by signal: %v%s", c.status.Signal(), c.memory)
	default:
		return fmt.Sprintf("exited with code %d", c.status.ExitStatus())
	}
}

// wakeReaders makes readers of the rank's output check whether the job has ended.
func (c *child) wakeReaders() {
	for _, r := range []*os.File{c.stdout, c.stderr} {
		_ = r.SetReadDeadline(time.Now()) // the reader may have closed it
	}
}

// drain copies r to w until its end. When closing is closed, the job's output is in the pipe, and
// drain stops after it: a process that escaped may hold the other end and write without end.
func drain(r *os.File, w io.Writer, closing <-chan struct{}) {
	buf := make([]byte, 32<<10)
	for left := -1; left != 0; { // bytes to copy; unknown before the end
		if left < 0 {
			select {
			case <-closing:
				left = buffered(r)
				continue
			default:
			}
		}
		p := buf
		if left > 0 {
			p = buf[:min(left, len(buf))]
			_ = r.SetReadDeadline(time.Time{}) // pipes have deadlines; wakeReaders may set one at any moment
		}
		n, err := r.Read(p)
		_, _ = w.Write(p[:n]) // a stream takes everything
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
		if left > 0 {
			left -= n
		}
	}
}

// buffered returns the number of bytes in a pipe.
func buffered(r *os.File) int {
	conn, err := r.SyscallConn()
	if err != nil {
		return 0
	}
	n := 0
	_ = conn.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), unix.TIOCINQ) }) // 0 is right for anything but a pipe
	return n
}
