package cudatest

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// recorder is a test that notes how it is ended.
type recorder struct {
	testing.TB
	skipped, failed string
}

func (r *recorder) Helper()                           {}
func (r *recorder) Skipf(format string, args ...any)  { r.skipped = fmt.Sprintf(format, args...) }
func (r *recorder) Fatalf(format string, args ...any) { r.failed = fmt.Sprintf(format, args...) }

func TestMissingGPUsSkipUnlessTheyAreRequired(t *testing.T) {
	for value, required := range map[string]bool{
		"": false, "cuda": true, "nccl": false, "nccl,cuda": true, "cuda,nccl": true, "nocuda": false, "cudas": false,
	} {
		t.Setenv("SYMGRAD_REQUIRE", value)
		if got := Required(); got != required {
			t.Errorf("SYMGRAD_REQUIRE=%q: required %t, want %t", value, got, required)
		}
		var r recorder
		Missing(&r, "needs %d", 7)
		skipped, failed := "needs 7", ""
		if required {
			skipped, failed = failed, skipped
		}
		if r.failed != failed || !required && r.skipped != skipped {
			t.Errorf("SYMGRAD_REQUIRE=%q: skipped %q, failed %q", value, r.skipped, r.failed)
		}
	}
}

// A program that is tested loads its settings from the environment of the test.
func TestHiddenRequirementIsOneAndNoSetting(t *testing.T) {
	for value, required := range map[string]bool{"nccl,cuda": true, "nccl": false} {
		t.Setenv("SYMGRAD_REQUIRE", value)
		t.Setenv("SYMGRAD_TEST_REQUIRE", "")
		for range 2 { // a process that a test starts may hide it again
			Hide()
			if Required() != required {
				t.Errorf("%q, hidden: required %t", value, !required)
			}
		}
		if at := slices.IndexFunc(os.Environ(), func(s string) bool { return strings.HasPrefix(s, "SYMGRAD_REQUIRE=") }); at >= 0 {
			t.Errorf("programs find %q", os.Environ()[at])
		}
	}
}

func TestDevicesAreThoseOfOneDriver(t *testing.T) {
	vs := Devices(t, 1)
	if again := Devices(t, 1); again[0] != vs[0] || vs[0].Driver() != Driver(t) {
		t.Errorf("got %v and then %v", vs, again)
	}
}
