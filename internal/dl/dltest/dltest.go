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

// Require is a variable: set to 1, it makes a test fail that would skip for want of a C compiler.
// CI sets it, so that it cannot be green by skipping.
const Require = "SYMGRAD_REQUIRE_CC"

// aloneVariable is set in the process of a test that has one of its own.
const aloneVariable = "SYMGRAD_TEST_DL_ALONE"

// Alone reports whether the test runs in a process of its own, where it may load what stays loaded.
// Where it does not, it is run in one, and what becomes of it there becomes of it here.
func Alone(t testing.TB) bool {
	t.Helper()
	if os.Getenv(aloneVariable) != "" {
		return true
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=1m")
	cmd.Env = append(os.Environ(), aloneVariable+"=1")
	out, err := cmd.CombinedOutput()
	switch text := string(out); {
	case err == nil && strings.Contains(text, "--- SKIP: "+t.Name()):
		t.Skipf("in a process of its own:\n%s", out)
	case err != nil || !strings.Contains(text, "--- PASS: "+t.Name()):
		t.Errorf("in a process of its own: %v\n%s", err, out)
	}
	return false
}

// Compile makes a library called soname of a file of C, with the compiler's flags, and returns its
// path. Every call makes one of its own: the loader takes equal files for one. It goes with the
// test, though what was loaded stays.
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
