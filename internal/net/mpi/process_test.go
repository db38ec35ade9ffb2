package mpi_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/symgrad/symgrad/internal/net/mpi"
)

// sceneVar has the scene of a process that a launcher started for a test.
const sceneVar = "SYMGRAD_TEST_MPI"

// requireVars are lists. If one contains mpi, tests fail that would skip because a library is
// missing.
var requireVars = []string{"DIST_REQUIRE", "SYMGRAD_REQUIRE"}

// patience is the longest run of a job.
const patience = 2 * time.Minute

// TestMain runs a scene in processes that a launcher of MPI has started, and the tests elsewhere.
func TestMain(m *testing.M) {
	name := os.Getenv(sceneVar)
	if name == "" {
		os.Exit(m.Run())
	}
	if err := scenes[name](); err != nil {
		fmt.Fprintf(os.Stderr, "scene %s: %v\n", name, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// open opens the wire of a scene.
func open() (*mpi.Wire, error) {
	return mpi.Open(context.Background(), mpi.Config{Environ: os.Environ(), Library: os.Getenv(libraryVar)})
}

// suite is a launcher with its library.
type suite struct {
	name    string
	command []string
}

var suites = []suite{
	{"openmpi", []string{"mpirun.openmpi", "--bind-to", "none", "--oversubscribe", "-np"}},
	{"mpich", []string{"mpiexec.mpich", "-n"}},
}

// each runs test for each suite.
func each(t *testing.T, test func(t *testing.T, s suite)) {
	for _, s := range suites {
		t.Run(s.name, func(t *testing.T) {
			s.need(t)
			test(t, s)
		})
	}
}

// need skips the test if the launcher is missing.
func (s suite) need(t testing.TB) {
	t.Helper()
	if _, err := exec.LookPath(s.command[0]); err != nil {
		missing(t, err.Error())
	}
}

// missing skips the test, or fails it if a list of requireVars contains mpi.
func missing(t testing.TB, reason string) {
	t.Helper()
	for _, name := range requireVars {
		if slices.Contains(strings.Split(os.Getenv(name), ","), "mpi") {
			t.Fatalf("%s, and %s names mpi", reason, name)
		}
	}
	t.Skipf("no MPI: %s", reason)
}

// try is run if the launcher exists.
func (s suite) try(t testing.TB, n int, scene string) (string, error) {
	t.Helper()
	s.need(t)
	return s.run(t, n, scene)
}

// run runs a scene in n processes, and returns their output and the launcher's error.
func (s suite) run(t testing.TB, n int, scene string, env ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	args := append(slices.Clone(s.command[1:]), strconv.Itoa(n), self)
	cmd := exec.CommandContext(ctx, s.command[0], args...)
	cmd.Env = append(os.Environ(), sceneVar+"="+scene, "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
	cmd.Env = append(cmd.Env, env...)
	cmd.WaitDelay = 5 * time.Second
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // the launcher ends its processes
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err = cmd.Run()
	if ctx.Err() != nil {
		t.Fatalf("%s did not end within %v:\n%s", scene, patience, &out)
	}
	return out.String(), err
}

// must is run for a scene without failures.
func (s suite) must(t testing.TB, n int, scene string, env ...string) string {
	t.Helper()
	out, err := s.run(t, n, scene, env...)
	if err != nil {
		t.Fatalf("%s with %d processes: %v\n%s", scene, n, err, out)
	}
	return out
}
