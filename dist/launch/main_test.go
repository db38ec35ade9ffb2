//go:build linux

package launch

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"go.uber.org/goleak"
)

// roleVar makes this test binary another program: a rank, or a launcher.
const roleVar = "SYMGRAD_TEST_ROLE"

func TestMain(m *testing.M) {
	role := os.Getenv(roleVar)
	if role == "" {
		if signal.Ignored(syscall.SIGHUP) { // by nohup: launchers would leave it alone, and tests wait for ranks that never end
			signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
		}
		goleak.VerifyTestMain(m)
		return
	}
	run, ok := roles[role]
	if !ok {
		fmt.Fprintf(os.Stderr, "no role %q\n", role)
		os.Exit(2)
	}
	os.Exit(run(os.Args[1:]))
}
