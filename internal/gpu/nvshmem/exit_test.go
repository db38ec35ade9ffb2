//go:build !race

package nvshmem

import (
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/symgrad/symgrad/internal/dl"
)

// exitVar makes this test a process that ends with a handler of C's registered: "go" by os.Exit,
// "c" by C's exit.
const exitVar = "SYMGRAD_TEST_EXIT"

// NVSHMEM registers a handler for C's exit that meets the other ranks, and would hang in a broken
// world. os.Exit, and the return of main, end the process without it; with the race detector they
// go through C's exit.
func TestExitRunsNoHandlersOfC(t *testing.T) {
	const status = 3 // not 0, which the testing package turns into a panic
	if how := os.Getenv(exitVar); how != "" {
		fmt.Println(exitWithHandler(how, status))
		return
	}
	for how, code := range map[string]int{"go": status, "c": handlerStatus} {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), exitVar+"="+how)
		out, err := cmd.CombinedOutput()
		if got := cmd.ProcessState.ExitCode(); got != code {
			t.Errorf("%s: %v, want status %d\n%s", how, err, code, out)
		}
	}
}

// handlerStatus is that of a process whose handler was run.
const handlerStatus = 4

// exitWithHandler ends the process, with C's _exit(handlerStatus) as a handler of its exit. It
// returns only with an error.
func exitWithHandler(how string, status int) error {
	lib, err := dl.Open(dl.Search{Name: "libc", Sonames: []string{"libc.so.6"}})
	if err != nil {
		return err
	}
	var c struct {
		register dl.Proc `dl:"__cxa_atexit"` // int (function, argument, library)
		end      dl.Proc `dl:"_exit"`        // void (int)
		exit     dl.Proc `dl:"exit"`         // void (int)
	}
	if err := lib.Bind(&c); err != nil {
		return err
	}
	if code, err := c.register.Call(c.end.Addr(), handlerStatus, 0); err != nil || int32(code) != 0 {
		return fmt.Errorf("register: %d, %w", int32(code), err)
	}
	if how == "go" {
		os.Exit(status)
	}
	_, err = c.exit.Call(uintptr(status))
	return err
}
