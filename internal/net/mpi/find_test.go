package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/symgrad/symgrad/internal/net/mpi"
)

// libraryVar has the library of a scene.
const libraryVar = "SYMGRAD_TEST_MPI_LIBRARY"

func TestOpenWithoutALauncherOrLibrarySaysSo(t *testing.T) {
	if _, err := mpi.Open(t.Context(), mpi.Config{}); !errors.Is(err, mpi.ErrNoLauncher) || !strings.Contains(err.Error(), "use mpirun") {
		t.Errorf("no launcher: %v", err)
	}
	for _, find := range []func(mpi.Config) error{
		func(c mpi.Config) error { _, err := mpi.Open(t.Context(), c); return err },
		func(c mpi.Config) error { _, err := mpi.Find(c); return err },
	} {
		if err := find(mpi.Config{Library: "/absent/libmpi.so"}); err == nil || !strings.Contains(err.Error(), "/absent/libmpi.so") {
			t.Errorf("absent library: %v", err)
		}
		if err := find(mpi.Config{Library: "libc.so.6"}); err == nil || !strings.Contains(err.Error(), "MPI_Init_thread") {
			t.Errorf("library without MPI: %v", err)
		}
	}
}

// Find loads a library, so each runs in a process of its own.
func TestFindNamesLibraryAndVersion(t *testing.T) {
	for _, tt := range []struct{ library, abi, version string }{
		{"libmpi.so.40", "openmpi", "Open MPI v"},
		{"libmpich.so.12", "mpich", "MPICH Version: "},
	} {
		t.Run(tt.abi, func(t *testing.T) {
			out, err := runAlone(t, "find", tt.library)
			if err != nil && strings.Contains(out, "library not found") {
				missing(t, out)
			}
			if fields := strings.SplitN(out, "|", 3); err != nil || len(fields) != 3 || fields[0] != tt.abi || !strings.HasPrefix(fields[1], "/") || !strings.HasPrefix(fields[2], tt.version) {
				t.Errorf("got %q, error %v", out, err)
			}
		})
	}
}

func findScene() error {
	l, err := mpi.Find(mpi.Config{Library: os.Getenv(libraryVar)})
	if err != nil {
		return err
	}
	if r := dereference(nil); r == nil {
		return errors.New("a nil dereference did not panic")
	}
	fmt.Printf("%s|%s|%s", l.ABI, l.Path, l.Version)
	return nil
}

// runAlone runs a scene without a launcher.
func runAlone(t *testing.T, scene, library string) (string, error) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), sceneVar+"="+scene, libraryVar+"="+library)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// MPICH 4 under Open MPI's launcher would make a world of each process. MPICH 5 refuses.
func TestLibraryOfAnotherLauncherIsRefused(t *testing.T) {
	out, err := suites[0].try(t, 2, "other")
	if strings.Contains(out, "library not found") {
		missing(t, out)
	}
	ours, its := "made a world of 1 processes, but mpirun of Open MPI started 2", "unsupported PMI version PMIx"
	if err == nil || !strings.Contains(out, ours) && !strings.Contains(out, its) {
		t.Errorf("error %v, output lacks %q and %q\n%s", err, ours, its, out)
	}
}

func otherScene() error {
	_, err := mpi.Open(context.Background(), mpi.Config{Environ: os.Environ(), Library: "libmpich.so.12"})
	return err
}
