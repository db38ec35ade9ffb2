package conformance

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/symgrad/symgrad/dist"
)

// Launched is Processes for ranks that a launcher starts, such as mpirun. command returns the
// launcher's command line for the command lines of the ranks. Tests in which a rank dies are
// skipped, because launchers then end the job.
func Launched(open Opener, command func(ranks [][]string) []string) Launch {
	p := &processes{open: open, calls: map[string]int{}, command: command}
	return func(t *testing.T, n int, opt LaunchOptions, body func(w *dist.World) error) {
		t.Helper()
		if opt.Die != nil {
			t.Skip("the launcher ends all ranks when one dies")
		}
		p.launch(t, n, opt, body)
	}
}

// spawnLaunched runs the ranks of a launch by its launcher, and waits for them. Returns: the error
// of the job.
func (p *processes) spawnLaunched(t *testing.T, n, call int) error {
	t.Helper()
	limit := launchTime(t)
	ctx, cancel := context.WithTimeout(t.Context(), limit+testMargin)
	defer cancel()
	folder := t.TempDir()
	program, err := os.Executable()
	if err != nil {
		return err
	}
	ranks := make([][]string, n)
	for r := range ranks {
		own := role{r, call, filepath.Join(folder, fmt.Sprintf("done-%d", r))}
		ranks[r] = append([]string{program}, rankArgs(limit, t.Name(), own)...)
	}
	line := p.command(ranks)
	var output tail
	cmd := exec.CommandContext(ctx, line[0], line[1:]...)
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &output, &output, testMargin
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // the launcher ends its ranks
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%w:\n%s", err, output.String())
	}
	for r := range ranks {
		if _, err := os.Stat(filepath.Join(folder, fmt.Sprintf("done-%d", r))); err != nil {
			return fmt.Errorf("rank %d ended without reaching its launch:\n%s", r, output.String())
		}
	}
	return nil
}
