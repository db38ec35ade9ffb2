package hosttest

import (
	"encoding/gob"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// startSocket is the socket of process 1 that enter connects with, in the host's own file system.
// Outside its path begins with the root of process 1, in /proc.
const startSocket = ownTmp + "/.hosttest-start"

// children are the processes that process 1 has started. Only children of a process inside the PID
// namespace end with it at once: the others stay until their parent outside waits for them.
type children struct {
	lock    sync.Mutex
	waiting map[int]chan syscall.WaitStatus // by number
}

// accept starts programs for enter.
func (cs *children) accept(l *net.UnixListener) error {
	for {
		c, err := l.AcceptUnix()
		if err != nil {
			return err
		}
		go cs.serve(c)
	}
}

// serve starts one program, passes signals on, and answers with its end. If enter is gone it kills
// the program.
func (cs *children) serve(c *net.UnixConn) {
	defer c.Close()
	files, err := receiveFiles(c)
	if err != nil {
		return
	}
	in, out := gob.NewDecoder(c), gob.NewEncoder(c)
	var r request
	if in.Decode(&r) != nil || len(r.Files) != len(files) {
		return
	}
	pid, ended, err := cs.start(r, files)
	for _, f := range files {
		_ = unix.Close(f)
	}
	if err != nil {
		_ = out.Encode(answer{Err: err.Error()})
		return
	}
	go func() {
		for {
			var s syscall.Signal
			if in.Decode(&s) != nil {
				cs.signal(pid, syscall.SIGKILL)
				return
			}
			cs.signal(pid, s)
		}
	}()
	_ = out.Encode(answer{Status: <-ended}) // enter may be gone
}

// maxFiles is the number of files that one message of a Unix socket can carry.
const maxFiles = 253

// receiveFiles returns the files that enter sends first.
func receiveFiles(c *net.UnixConn) ([]int, error) {
	oob := make([]byte, unix.CmsgSpace(maxFiles*4))
	_, n, _, _, err := c.ReadMsgUnix(make([]byte, 1), oob)
	if err != nil {
		return nil, err
	}
	messages, err := unix.ParseSocketControlMessage(oob[:n])
	if err != nil || len(messages) != 1 {
		return nil, fmt.Errorf("%d messages with files: %w", len(messages), err)
	}
	return unix.ParseUnixRights(&messages[0])
}

// start starts a program in a session of its own. ended receives its end.
func (cs *children) start(r request, files []int) (pid int, ended chan syscall.WaitStatus, err error) {
	attr := &syscall.ProcAttr{Dir: r.Dir, Env: r.Env, Sys: &syscall.SysProcAttr{Setsid: true}}
	for i, number := range r.Files {
		for len(attr.Files) <= number {
			attr.Files = append(attr.Files, ^uintptr(0)) // closed
		}
		attr.Files[number] = uintptr(files[i])
	}
	if _, err := os.Stat(r.Dir); err != nil {
		return 0, nil, fmt.Errorf("%w: a folder in /tmp must be in Options.Share", err)
	}
	cs.lock.Lock()
	defer cs.lock.Unlock()
	pid, err = syscall.ForkExec(r.Path, r.Args, attr)
	if err != nil {
		return 0, nil, fmt.Errorf("%s: %w", r.Path, err)
	}
	ended = make(chan syscall.WaitStatus, 1)
	cs.waiting[pid] = ended
	return pid, ended, nil
}

// signal sends a signal to a process unless it has ended.
func (cs *children) signal(pid int, s syscall.Signal) {
	cs.lock.Lock()
	defer cs.lock.Unlock()
	if cs.waiting[pid] != nil {
		_ = syscall.Kill(pid, s)
	}
}

// reap waits for children, and for orphans of the host, at each SIGCHLD.
func (cs *children) reap(ended <-chan os.Signal) {
	for range ended {
		for cs.reapOne() {
		}
	}
}

func (cs *children) reapOne() bool {
	cs.lock.Lock()
	defer cs.lock.Unlock()
	var status syscall.WaitStatus
	pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
	if c := cs.waiting[pid]; c != nil && pid > 0 {
		delete(cs.waiting, pid)
		c <- status
	}
	return pid > 0 || err == syscall.EINTR
}
