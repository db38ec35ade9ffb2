package hosttest

import (
	"fmt"
	"testing"
)

// recorder records a skip or a failure.
type recorder struct {
	testing.TB
	skipped, failed string
}

func (r *recorder) Helper()                   {}
func (r *recorder) Skipf(f string, a ...any)  { r.skipped = fmt.Sprintf(f, a...) }
func (r *recorder) Fatalf(f string, a ...any) { r.failed = fmt.Sprintf(f, a...) }

func TestHostsAreLeftToTheirTarget(t *testing.T) {
	for _, name := range requireVars {
		t.Setenv(name, "")
	}
	t.Setenv(hostsVar, "0")
	t.Run("skipped", func(t *testing.T) {
		New(t, 1, Options{})
		t.Error("not skipped")
	})
}

func TestMissingHostsFailOnlyIfRequired(t *testing.T) {
	for _, c := range []struct {
		variable, value string
		required        bool
	}{
		{"DIST_REQUIRE", "", false},
		{"DIST_REQUIRE", "nccl,mpi", false},
		{"DIST_REQUIRE", "hosts", true},
		{"DIST_REQUIRE", "nccl,hosts", true},
		{"SYMGRAD_REQUIRE", "cuda,hosts", true},
		{"SYMGRAD_TEST_REQUIRE", "hosts", true},
	} {
		for _, name := range requireVars {
			t.Setenv(name, "")
		}
		t.Setenv(c.variable, c.value)
		r := &recorder{}
		needProgram(r, "no-such-program", "no-such-package")
		const reason = "needs the program no-such-program: install the package no-such-package"
		want := recorder{skipped: reason}
		if c.required {
			want = recorder{failed: reason}
		}
		if r.skipped != want.skipped || r.failed != want.failed {
			t.Errorf("%s=%s: skipped %q, failed %q", c.variable, c.value, r.skipped, r.failed)
		}
	}
}
