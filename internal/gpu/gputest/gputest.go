// Package gputest runs tests of engines as ranks. Each rank is a process with its own GPU, as in
// programs.
//
// A test starts the test binary again, once for each rank, with the name of its role in the
// environment. There TestMain finds the role, joins the other ranks, runs the role instead of
// tests, and ends the process.
package gputest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/launch"
	"github.com/symgrad/symgrad/internal/dl"
	"github.com/symgrad/symgrad/internal/gpu"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
	"github.com/symgrad/symgrad/internal/host/shm"
)

// roleVar makes the test binary a rank; the value names its role.
const roleVar = "SYMGRAD_TEST_ROLE"

// Ranks has the settings and the code of a package's tests that run as ranks.
type Ranks struct {
	Job         string        // prefix of the launch job's name
	Time        time.Duration // limit of one run, which ends hangs
	StepTimeout time.Duration // of the control group; 0 means package shm's
	// Body runs a role as one rank. The test's log gets its output and its error.
	Body func(role string, r *Rank) error
}

// Rank is one process of a test.
type Rank struct {
	Member *gpu.Member
	Dirs   []string // where libraries may be found
}

// Main is the body of the package's TestMain. Returns: the exit status of the process.
func (c *Ranks) Main(m *testing.M) int {
	role := os.Getenv(roleVar)
	if role == "" {
		return m.Run()
	}
	if err := c.rank(role); err != nil {
		fmt.Println("error:", err)
		return 1
	}
	return 0
}

// rank joins the others in a control group of the host, and runs the role.
func (c *Ranks) rank(role string) error {
	env, err := launch.Current()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.Time)
	defer cancel()
	store, closer, err := launch.Rendezvous(ctx, env, launch.Config{Timeout: time.Minute})
	if err != nil {
		return err
	}
	defer closer.Close()
	t, err := shm.Open(ctx, env.Rank, env.Size, store, shm.Config{StepTimeout: c.StepTimeout})
	if err != nil {
		return err
	}
	w, err := dist.NewWorld(t, dist.LocalInfo{}, 0, nil)
	if err != nil {
		return err
	}
	r := &Rank{Dirs: dl.Places(os.DirFS("/"), os.Environ())}
	driver, err := cuda.Open(cuda.Config{Dirs: r.Dirs})
	if err != nil {
		return err
	}
	device, err := driver.Device(env.Rank)
	if err != nil {
		return err
	}
	r.Member = &gpu.Member{
		Device: device, Rank: env.Rank, Size: env.Size, World: w.Ranks(), Control: w.Blocking(), Memory: new(gpu.Memory),
	}
	return errors.Join(c.Body(role, r), w.Close())
}

// Run runs role on n ranks, with the test's environment and variables, and logs their output. A
// rank that fails fails the test. No rank outlives the test.
func (c *Ranks) Run(t *testing.T, n int, role string, variables ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), c.Time)
	defer cancel()
	outputs, failures := make([]bytes.Buffer, n), make([]error, n)
	var wg sync.WaitGroup
	for r := range n {
		wg.Go(func() {
			cmd := exec.CommandContext(ctx, os.Args[0])
			cmd.Env = append(os.Environ(), roleVar+"="+role, "GORACE=atexit_sleep_ms=0",
				fmt.Sprintf("SYMGRAD_RANK=%d", r), fmt.Sprintf("SYMGRAD_WORLD_SIZE=%d", n),
				fmt.Sprintf("SYMGRAD_LOCAL_RANK=%d", r), fmt.Sprintf("SYMGRAD_LOCAL_WORLD_SIZE=%d", n),
				fmt.Sprintf("SYMGRAD_JOB=%s-test-%d-%s", c.Job, os.Getpid(), strings.ReplaceAll(t.Name(), "/", "-")))
			cmd.Env = append(cmd.Env, variables...)
			cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
			cmd.Stdout, cmd.Stderr = &outputs[r], &outputs[r]
			failures[r] = cmd.Run()
		})
	}
	wg.Wait()
	for r := range n {
		if text := strings.TrimSpace(outputs[r].String()); text != "" {
			t.Logf("rank %d:\n%s", r, text)
		}
		if failures[r] != nil {
			t.Errorf("rank %d: %v", r, failures[r])
		}
	}
}
