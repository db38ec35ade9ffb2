package ranktest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/symgrad/symgrad/config"
	"github.com/symgrad/symgrad/internal/foreign"
	"github.com/symgrad/symgrad/internal/gpu/cuda/cudatest"
)

// programVar makes the test binary run the program: ranks are processes of it.
const programVar = "SYMGRAD_TEST_PROGRAM"

// hang is far longer than any test; it ends a test that hangs.
const hang = 2 * time.Minute

// Main is the TestMain of a program's tests. It removes the test variables from the program's
// settings.
func Main(m *testing.M, program func()) {
	if os.Getenv(programVar) == "1" {
		program()
		os.Exit(0) // a main that returns was successful
	}
	cudatest.Hide()
	goleak.VerifyTestMain(m)
}

// Outcome is the result of a run of a program.
type Outcome struct {
	Code           int // exit code
	Stdout, Stderr string
}

// Want fails the test unless the run ended with code and printed every one of texts.
func (o Outcome) Want(t testing.TB, code int, texts ...string) {
	t.Helper()
	if o.Code != code {
		t.Errorf("exit code %d, want %d", o.Code, code)
	}
	for _, text := range texts {
		if !strings.Contains(o.Stdout+o.Stderr, text) {
			t.Errorf("%q is missing", text)
		}
	}
	if t.Failed() {
		t.Logf("stdout:\n%sstderr:\n%s", o.Stdout, o.Stderr)
	}
}

// Execute runs a program in this process. That suits --backend sim and invalid command lines.
func Execute(execute func(args []string, stdout, stderr io.Writer) int, args ...string) Outcome {
	var stdout, stderr bytes.Buffer
	code := execute(args, &stdout, &stderr)
	return Outcome{code, stdout.String(), stderr.String()}
}

// Process runs the program as a process that starts its ranks as processes.
func Process(t testing.TB, args ...string) Outcome {
	t.Helper()
	p := start(t, nil, args)
	return p.outcome(t)
}

// Launched runs the program as ranks, one process each, as a launcher would, and returns how they
// ended.
//
// Shapes/units: one command line per rank.
func Launched(t testing.TB, args ...[]string) []Outcome {
	t.Helper()
	ranks := make([]*process, len(args))
	for r := range ranks {
		ranks[r] = start(t, variables(t.Name(), r, len(args)), args[r])
	}
	outcomes := make([]Outcome, len(ranks))
	for r, p := range ranks {
		outcomes[r] = p.outcome(t)
	}
	return outcomes
}

// process is a running program.
type process struct {
	*exec.Cmd
	stdout, stderr bytes.Buffer
	seen           *marker // writer of the program's stdout
}

// start starts the program. The end of the test kills it.
func start(t testing.TB, env, args []string) *process {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{Cmd: exec.CommandContext(t.Context(), program, args...)}
	p.Env = append(append(os.Environ(), programVar+"=1"), env...)
	p.seen = &marker{to: &p.stdout, first: make(chan struct{})}
	p.Stdout, p.Stderr = p.seen, &p.stderr
	p.WaitDelay = 10 * time.Second
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	return p
}

// outcome waits for the end of the process.
func (p *process) outcome(t testing.TB) Outcome {
	t.Helper()
	stop := time.AfterFunc(hang, func() { _ = p.Process.Kill() })
	err := p.Wait()
	if !stop.Stop() {
		t.Errorf("still there after %v; stderr:\n%s", hang, p.stderr.String())
	}
	if exit := (&exec.ExitError{}); err != nil && !errors.As(err, &exit) {
		t.Error(err)
	}
	return Outcome{p.ProcessState.ExitCode(), p.stdout.String(), p.stderr.String()}
}

// marker is a writer that reports its first write.
type marker struct {
	to    io.Writer
	first chan struct{}
	told  bool
}

// Write writes b to the underlying writer. Only one goroutine, of os/exec, calls it.
func (m *marker) Write(b []byte) (int, error) {
	if !m.told {
		m.told = true
		close(m.first)
	}
	return m.to.Write(b)
}

// Summary reads the summary of a run from its folder. S is train.Summary.
func Summary[S any](t testing.TB, dir string) (s S) {
	t.Helper()
	text, err := foreign.ReadFile(filepath.Join(dir, config.SummaryName), 1<<26)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// Ranks returns the flag that starts so many ranks.
func Ranks(n int) string { return fmt.Sprintf("--set=launch.nproc_per_node=%d", n) }
