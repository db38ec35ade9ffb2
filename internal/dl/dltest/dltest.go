// Package dltest makes libraries for tests of how libraries are found, asked and refused.
package dltest

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/symgrad/symgrad/internal/dl"
)

// Require is a variable: set to 1, it makes a test fail that would skip for want of a C compiler. CI sets it, so that it cannot be green by skipping.
const Require = "SYMGRAD_REQUIRE_CC"

// Compile makes a library called soname of a file of C, with the compiler's flags, and returns its path. Every call makes one of
// its own: the loader takes equal files for one. It goes with the test, though what was loaded stays.
//
// Without a compiler, or on a platform without dlopen, the test is skipped.
func Compile(t testing.TB, soname, source string, flags ...string) string {
	t.Helper()
	compiler, err := exec.LookPath("cc")
	if err != nil {
		if os.Getenv(Require) == "1" {
			t.Fatalf("%s=1 and there is no C compiler to make %s with: %v", Require, soname, err)
		}
		t.Skipf("no C compiler to make %s with: %v", soname, err)
	}
	file := filepath.Join(t.TempDir(), soname)
	args := append([]string{"-O1", "-shared", "-fPIC", "-Wno-unused-result", "-o", file, source}, flags...)
	if out, err := exec.Command(compiler, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s", compiler, strings.Join(args, " "), err, out)
	}
	// Asked of a file that is not there, since what is loaded stays loaded.
	if _, err := dl.Open(dl.Search{Name: "absent", Override: file + ".absent"}); errors.Is(err, dl.ErrUnsupported) {
		t.Skipf("no dlopen on this platform: %v", err)
	}
	return file
}
