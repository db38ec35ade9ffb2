package launch

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// sweep kills, and waits for, processes of the ended ranks outside their process groups. Such
// processes are children of this one by now, because it is a subreaper. The job id in their initial
// environment identifies them.
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
			_ = unix.Kill(p.pid, unix.SIGKILL) // it is a child of this process: its id is its own until it is waited for
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
// the process table. A rank is left to its own waiter.
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
