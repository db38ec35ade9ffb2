//go:build linux

package launch

import (
	"net"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// stranger is another user of the machine.
const stranger = 65534

// asStranger runs f on a thread that is the other user's, and ends with it. Needs root.
func asStranger(t *testing.T, f func()) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root, to become another user")
	}
	done := make(chan syscall.Errno)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		_, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, stranger, stranger, stranger)
		if errno == 0 {
			f()
		}
		done <- errno
	}()
	if errno := <-done; errno != 0 {
		t.Fatal(errno)
	}
}

// A name that another user has taken is reported so, on all ranks; with a private folder the ranks
// meet nevertheless.
func TestANameTakenByAnotherUserIsToldOrAvoided(t *testing.T) {
	for name, private := range map[string]bool{"no private folder": false, "private folder": true} {
		t.Run(name, func(t *testing.T) {
			env, folder := onSocket(2), ""
			if private {
				var err error
				if folder, err = os.MkdirTemp("", "sg"); err != nil { // 0700, and short enough for a socket
					t.Fatal(err)
				}
				t.Cleanup(func() { os.RemoveAll(folder) })
			}
			with := func(rank int) Env {
				e := env(rank)
				e.runtime = folder
				return e
			}
			p, err := with(0).place()
			if err != nil {
				t.Fatal(err)
			}
			if !private && len(p.files) > 0 {
				t.Skip("this user has a private folder without the variable")
			}
			asStranger(t, func() {
				l, err := net.Listen("unix", p.address)
				if err != nil {
					t.Error(err)
					return
				}
				t.Cleanup(func() { l.Close() })
			})
			for rank, m := range meetAll(t.Context(), with, 20*time.Second, 0, 1) {
				if private {
					if m.err != nil {
						t.Fatalf("rank %d: %v", rank, m.err)
					}
					defer m.close.Close()
				} else if m.err == nil || !strings.Contains(m.err.Error(), "belongs to user 65534") {
					t.Errorf("rank %d got %v, want the other user", rank, m.err)
				}
			}
			if private {
				asStranger(t, func() {
					if c, err := net.Dial("unix", p.files[0]); err == nil {
						t.Error("another user reached the store")
						c.Close()
					}
				})
			}
		})
	}
}
