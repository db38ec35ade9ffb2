//go:build linux

package launch

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// roleVar makes this test binary another program: a rank, or a launcher.
const roleVar = "SYMGRAD_TEST_ROLE"

func TestMain(m *testing.M) {
	role := os.Getenv(roleVar)
	if role == "" {
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
