package report

import (
	"fmt"

	"github.com/symgrad/symgrad/config"
	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/backend"
	"github.com/symgrad/symgrad/dist/launch"
	"github.com/symgrad/symgrad/internal/host/blas"
	"github.com/symgrad/symgrad/internal/settings"
	"github.com/symgrad/symgrad/optim"
)

// Run has the facts of a run that its reports show and that do not change.
type Run struct {
	Program    string
	Config     *config.Config
	Origins    *config.Origins // of the settings
	File       string          // of the settings; "" for none
	Env        launch.Env
	World      *dist.World
	Site       settings.Site
	Threads    int // of a rank
	BLAS       blas.Info
	Data       string // the samples in a few words
	Model      string // as "mlp 784-512-512-10"
	Parameters int    // elements
	Tensors    int    // parameters
	Steps      int    // of the whole training
	Rule       optim.Config
}

// settingsFrom names the sources of the settings, and their hash.
func (r *Run) settingsFrom() string {
	from := r.File
	if from == "" {
		from = "defaults"
	}
	others := 0
	for _, s := range r.Config.Settings(r.Origins) {
		if s.Origin.Level > config.LevelFile {
			others++
		}
	}
	if others > 0 {
		from += fmt.Sprintf(" and %s from the command line or environment", Plural(others, "setting"))
	}
	return fmt.Sprintf("%s, config hash %.12s", from, r.Config.Hash())
}

// launcher names the starter of the ranks.
func (r *Run) launcher() string {
	switch {
	case r.Config.Comm.Backend == backend.Sim:
		return "goroutines of one process"
	case r.Env.Launcher == launch.None:
		return "no launcher"
	}
	by := "started by " + r.Env.Launcher
	if n := r.Config.Launch.NprocPerNode; n > 0 && n != r.Env.LocalSize {
		by += fmt.Sprintf(" (overrides launch.nproc_per_node=%d)", n)
	}
	return by
}

// why returns the reason for the backend.
func (r *Run) why(name string) string {
	if r.Config.Comm.Backend == name {
		return "set by comm.backend"
	}
	for _, c := range backend.Choices(r.Env) {
		if c.Name == name {
			return c.Why
		}
	}
	return "chosen automatically"
}

// ceilDiv returns a/b, rounded up.
func ceilDiv(a, b int) int { return (a + b - 1) / b }

// Plural returns "1 rank" or "2 ranks".
func Plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
