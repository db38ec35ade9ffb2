package train

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/symgrad/symgrad/config"
	"github.com/symgrad/symgrad/dist/launch"
)

// startedWith is a rank to which a launcher has handed text over.
func startedWith(t *testing.T, text []byte) launch.Env {
	t.Helper()
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	if _, err := f.Write(text); err != nil {
		t.Fatal(err)
	}
	return launch.Env{Rank: 1, Size: 2, LocalRank: 1, LocalSize: 2, Launcher: launch.Symgrad, HandoverFD: int(f.Fd())}
}

// The file is edited after the start, and the variable of the environment and the flags are others:
// none of them counts.
func TestRanksHaveTheSettingsThatTheirStarterRead(t *testing.T) {
	file := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(file, []byte("run: {seed: 7}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	starter, err := program.parse([]string{"--config", file, "--set", "optim.lr=0.5"})
	if err != nil {
		t.Fatal(err)
	}
	text, err := starter.handed()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("run: {seed: 8}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	o := options{program: program, env: startedWith(t, text)}
	if err := o.load(config.Source{File: file, Env: []string{"SYMGRAD_OPTIM_LR=0.25"}}); err != nil {
		t.Fatal(err)
	}
	if o.cfg.Hash() != starter.cfg.Hash() || o.cfg.Run.Seed != 7 || o.cfg.Optim.LR != 0.5 {
		t.Errorf("the rank has seed %d and rate %v", o.cfg.Run.Seed, o.cfg.Optim.LR)
	}
	if got, want := o.origins.Origin("run.seed"), starter.origins.Origin("run.seed"); got != want || got.File != file {
		t.Errorf("the seed is from %v, at the starter from %v", got, want)
	}
}

func TestSettingsOfAnotherProgramAreRefused(t *testing.T) {
	text, err := json.Marshal(handover{Hash: "0123456789abcdef"})
	if err != nil {
		t.Fatal(err)
	}
	o := options{program: program, env: startedWith(t, text)}
	if err := o.load(config.Source{}); !errors.Is(err, ErrUsage) || !strings.Contains(err.Error(), "rebuilt") {
		t.Errorf("got %v", err)
	}
}

// Each rank of another launcher reads the file itself, which ranks can do with a regular file
// alone.
func TestOnlyARegularFileIsReadByRanksOfAnotherLauncher(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	env := launch.Env{Rank: 0, Size: 2, LocalSize: 2, Launcher: launch.OpenMPI}
	pipe := filepath.Join("/proc/self/fd", strconv.Itoa(int(r.Fd())))
	for _, file := range []string{pipe, "/dev/zero"} {
		o := options{program: program, env: env}
		if err := o.load(config.Source{File: file}); !errors.Is(err, ErrUsage) || !strings.Contains(err.Error(), "--config "+file+": not a regular file") {
			t.Errorf("%s: got %v", file, err)
		}
	}
	o := options{program: program, env: env}
	if err := o.load(config.Source{File: os.DevNull}); err != nil {
		t.Errorf("the empty file %s: %v", os.DevNull, err)
	}
}
