package main

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/launch"
)

func TestRunTakesOnlyFlagsBeforeTheProgram(t *testing.T) {
	for _, tt := range []struct {
		line    string
		program string
		n       int
		grace   time.Duration
	}{
		{"-n 2 prog -n 3 --grace 1s", "prog -n 3 --grace 1s", 2, 2 * time.Second},
		{"-n 2 -- prog -- x", "prog -- x", 2, 2 * time.Second},
		{"--grace 500ms --ranks=4 -- -prog", "-prog", 4, 500 * time.Millisecond},
	} {
		cmd := newRunCommand()
		var got []string
		cmd.RunE = func(_ *cobra.Command, args []string) error { got = args; return nil }
		cmd.SetArgs(strings.Fields(tt.line))
		if err := cmd.Execute(); err != nil {
			t.Errorf("%s: %v", tt.line, err)
			continue
		}
		n, nErr := cmd.Flags().GetInt("ranks")
		grace, graceErr := cmd.Flags().GetDuration("grace")
		if err := errors.Join(nErr, graceErr); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, strings.Fields(tt.program)) || n != tt.n || grace != tt.grace {
			t.Errorf("%s: got %q, %d ranks, grace %v", tt.line, got, n, grace)
		}
	}
}

func TestRunTellsUsageFromFailureAndFailureFromTheJobs(t *testing.T) {
	good := launch.SpawnConfig{Program: "true", N: 1, Stdout: io.Discard, Stderr: io.Discard}
	if err := run(t.Context(), good); err != nil {
		t.Errorf("a job that succeeds: %v", err)
	}

	unknown := good
	unknown.Program = "no-such-program"
	if err := run(t.Context(), unknown); !errors.As(err, new(usageError)) || !errors.Is(err, dist.ErrInvalid) {
		t.Errorf("an unknown program: got %v, want a usageError", err)
	}

	failing := good
	failing.Program = "false"
	var exit *exitError
	if err := run(t.Context(), failing); !errors.As(err, &exit) || exit.code != 1 || exit.err != nil {
		t.Errorf("a job that fails: got %v, want exit code 1 without a word", err)
	}

	folder := good
	folder.LogDir = "run_test.go"
	if err := run(t.Context(), folder); !errors.Is(err, syscall.ENOTDIR) || errors.As(err, new(usageError)) || errors.As(err, &exit) {
		t.Errorf("a log folder that is a file: got %v, want a plain error", err)
	}

	reason := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(reason)
	endless := good
	endless.Program, endless.Args, endless.Grace = "tail", []string{"-f", "/dev/null"}, 100*time.Millisecond
	if err := run(ctx, endless); !errors.As(err, &exit) || exit.code != 143 || !errors.Is(err, reason) {
		t.Errorf("a job that is ended: got %v, want exit code 143 and the reason", err)
	}
}

func TestRunCompletesFolders(t *testing.T) {
	var out strings.Builder
	if code := execute(newRootCommand(), []string{"__complete", "run", "--log-dir", ""}, &out, io.Discard); code != exitOK {
		t.Fatalf("exit code %d", code)
	}
	if want := ":16\n"; !strings.HasPrefix(out.String(), want) { // cobra.ShellCompDirectiveFilterDirs
		t.Errorf("got %q, want %q", out.String(), want)
	}
}
