package launch

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// sweep kills and waits for processes of the job outside the process groups of the ranks, which
// have all ended. Such processes are now children of this one, a subreaper, and have the job id in
// their initial environment.
func (j *job) sweep() {
	for found := true; found; {
		found = false
		children, err := childrenOf(os.Getpid())
		if err != nil {
			return // without /proc nothing can be found
		}
		for _, p := range children {
			if p.state == 'Z' || !startedWith(p.pid, jobVar+"="+j.id+"\x00") {
				continue
			}
			_ = unix.Kill(p.pid, unix.SIGKILL) // a child of this process keeps its id until it is waited for
			for {
				if _, err = unix.Wait4(p.pid, nil, 0, nil); !errors.Is(err, unix.EINTR) {
					break
				}
			}
			found = true // its children are orphans now
		}
	}
}

// reapOrphans waits for orphans that ended while their rank still runs, so that they do not fill
// the process table. It leaves ranks to their own waiters.
func (j *job) reapOrphans() {
	children, err := childrenOf(os.Getpid())
	if err != nil {
		return // they are found when their rank ends
	}
	for _, p := range children {
		if p.state != 'Z' {
			continue
		}
		for _, c := range j.ranks {
			if p.group == c.pid() && p.pid != c.pid() {
				_, _ = unix.Wait4(p.pid, nil, unix.WNOHANG, nil) // the rank's waiter may have been faster
			}
		}
	}
}
