// Package long is the switch between short tests and long ones. `make test` runs each kind of
// test with few draws, rounds or kills, and `make test-long` repeats some of them with many.
package long

import "os"

// variable is the environment variable that turns long tests on: 1 means long, anything else short.
const variable = "SYMGRAD_TEST_LONG"

// Enabled reports whether this process runs long tests.
func Enabled() bool { return os.Getenv(variable) == "1" }

// Environ returns the variable as this process has it, for processes that do not inherit it.
func Environ() string { return variable + "=" + os.Getenv(variable) }

// Times returns full in long tests and short in others.
func Times(short, full int) int {
	if Enabled() {
		return full
	}
	return short
}

// Reason is the text of a test that is skipped because it takes long.
const Reason = "a long test: run it with make test-long"
