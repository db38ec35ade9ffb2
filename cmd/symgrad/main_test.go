package main

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/cobra"

	"github.com/symgrad/symgrad/internal/gpu/cuda/cudatest"
	"github.com/symgrad/symgrad/internal/invariants"
)

// TestMain lets the scripts run symgrad: this test binary under that name.
func TestMain(m *testing.M) {
	cudatest.Hide()
	testscript.Main(m, map[string]func(){"symgrad": main})
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(e *testscript.Env) error {
			deploy, err := filepath.Abs("../../deploy")
			e.Setenv("DEPLOY", deploy)
			return err
		},
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Condition: func(name string) (bool, error) {
			if name == "invariants" {
				return invariants.Enabled, nil
			}
			return false, fmt.Errorf("unknown condition %q", name)
		},
	})
}

func TestExecuteTurnsErrorsIntoExitCodes(t *testing.T) {
	for _, tt := range []struct {
		name   string
		err    error
		code   int
		stderr string
	}{
		{"success", nil, 0, ""},
		{"failure", errors.New("no ranks"), 1, "symgrad: no ranks\n"},
		{"usage", usageError{errors.New("no such flag")}, 2, "symgrad: no such flag\n"},
		{"wrapped usage", fmt.Errorf("run: %w", usageError{errors.New("no such flag")}), 2, "symgrad: run: no such flag\n"},
		{"another program's code", &exitError{code: 7, err: errors.New("rank 1 failed")}, 7, "symgrad: rank 1 failed\n"},
		{"wrapped", fmt.Errorf("run: %w", &exitError{code: 7, err: errors.New("rank 1 failed")}), 7, "symgrad: run: rank 1 failed\n"},
		{"printed before", &exitError{code: 137}, 137, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root := newGroup("symgrad", "test", &cobra.Command{Use: "do", RunE: func(*cobra.Command, []string) error { return tt.err }})
			var stdout, stderr bytes.Buffer
			code := execute(root, []string{"do"}, &stdout, &stderr)
			if code != tt.code || stderr.String() != tt.stderr || stdout.Len() > 0 {
				t.Errorf("code %d, stderr %q, stdout %q; want %d, %q", code, &stderr, &stdout, tt.code, tt.stderr)
			}
		})
	}
}

func TestExitErrorKeepsItsCause(t *testing.T) {
	cause := errors.New("cause")
	if err := error(&exitError{code: 3, err: cause}); !errors.Is(err, cause) || err.Error() != "cause" {
		t.Errorf("%v does not wrap its cause", err)
	}
	if err := (&exitError{code: 3}); err.Error() != "exit code 3" {
		t.Errorf("without a cause: %v", err)
	}
}

// Every command has a help text, and every group rejects unknown commands.
func TestCommandsAreDocumentedAndStrict(t *testing.T) {
	var visit func(c *cobra.Command)
	visit = func(c *cobra.Command) {
		if c.Short == "" || strings.HasSuffix(c.Short, ".") {
			t.Errorf("%s: short help %q: want a sentence without a full stop", c.CommandPath(), c.Short)
		}
		if c.HasSubCommands() && c.RunE == nil {
			t.Errorf("%s: make it with newGroup, which refuses unknown commands", c.CommandPath())
		}
		for _, sub := range c.Commands() {
			visit(sub)
		}
	}
	visit(newRootCommand())
}

func TestOutputThatCannotBeWrittenIsAFailure(t *testing.T) {
	for _, args := range [][]string{
		{"config", "show"},
		{"config", "show", "--format=json"},
		{"config", "show", "--format=table"},
		{"config", "keys"},
		{"config", "keys", "--format=markdown"},
		{"config", "hash"},
		{"config", "hash", "--canonical"},
		{"config", "validate", "../../configs/mnist-mlp.yaml"},
	} {
		var stderr bytes.Buffer
		code := execute(newRootCommand(), args, fullDisk{}, &stderr)
		if code != exitFailure || stderr.String() != "symgrad: write the output: no space left\n" {
			t.Errorf("%v: code %d, stderr %q", args, code, &stderr)
		}
	}
}

type fullDisk struct{}

// Write fails.
func (fullDisk) Write([]byte) (int, error) { return 0, errors.New("no space left") }
