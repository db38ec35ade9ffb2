package hosttest

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// requireVars are the lists of things that tests must have. Package cudatest explains the last two.
var requireVars = []string{"DIST_REQUIRE", "SYMGRAD_REQUIRE", "SYMGRAD_TEST_REQUIRE"}

// hostsVar is 0 where make runs the tests on hosts in a target of their own.
const hostsVar = "SYMGRAD_TEST_HOSTS"

// Required reports whether tests that need hosts must not be skipped: DIST_REQUIRE or
// SYMGRAD_REQUIRE is a list that contains hosts.
func Required() bool {
	return slices.ContainsFunc(requireVars, func(name string) bool {
		return slices.Contains(strings.Split(os.Getenv(name), ","), "hosts")
	})
}

// Missing skips the test with a reason, or fails it if Required.
func Missing(t testing.TB, format string, args ...any) {
	t.Helper()
	if Required() {
		t.Fatalf(format, args...)
		return // for a fake t
	}
	t.Skipf(format, args...)
}
