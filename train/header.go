package train

import (
	"fmt"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/symgrad/symgrad/config"
	"github.com/symgrad/symgrad/dist/backend"
	"github.com/symgrad/symgrad/dist/launch"
	"github.com/symgrad/symgrad/internal/cli"
)

// say prints on rank 0. It returns write errors: a full disk must not look like success.
func (t *trainer) say(format string, args ...any) error {
	if _, err := fmt.Fprintf(t.job.out, format, args...); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}

// header prints the plan of the run: ranks, backend and its reason, BLAS, model, buckets, results.
func (t *trainer) header() error {
	j, cfg := t.job, t.job.cfg
	var b strings.Builder
	fmt.Fprintf(&b, "run        %s, %s\n", cfg.Run.Name, j.settingsFrom())
	fmt.Fprintf(&b, "ranks      %s, %s each, %s\n", plural(t.w.Size(), "rank"), plural(j.threads, "thread"), j.launcher())
	fmt.Fprintf(&b, "backend    %s: %s\n", t.w.Backend(), j.why(t.w.Backend()))
	fmt.Fprintf(&b, "machine    %s\n", t.machineLine())
	fmt.Fprintf(&b, "products   %s\n", t.job.products())
	data, model := j.problem.Describe()
	fmt.Fprintf(&b, "data       %s\n", data)
	fmt.Fprintf(&b, "model      %s: %d parameters in %d tensors\n", model, t.parameters(), len(t.model.Params))
	fmt.Fprintf(&b, "optimizer  %v%s\n", t.rule, t.scaleText())
	fmt.Fprintf(&b, "steps      %d of %d samples: %s\n", t.steps, cfg.Data.GlobalBatch, t.shares())
	b.WriteString(t.resumption())
	overlap := "during the backward pass"
	if !cfg.DDP.Overlap {
		overlap = "after the backward pass"
	}
	fmt.Fprintf(&b, "exchange   %s%s\n", overlap, exchangeText(cfg))
	for line := range strings.Lines(t.d.String()) {
		b.WriteString("           " + line)
	}
	if cfg.Shard.Stage > 0 {
		fmt.Fprintf(&b, "sharding   %s; rank 0 has %v\n", stageText[cfg.Shard.Stage], t.d.Memory())
	}
	if cfg.Shard.OverlapGather && !j.site.GPU {
		b.WriteString("warning    shard.overlap_gather has no effect on the host\n")
	}
	if t.keeper != nil {
		fmt.Fprintf(&b, "saves      %s\n", t.keeping())
		if err := t.keeper.Unlocked(); err != nil {
			fmt.Fprintf(&b, "warning    no other run may save there, and symgrad cannot detect it: locking the folder failed: %v\n", err)
		}
	}
	fmt.Fprintf(&b, "results    %s\n", cfg.OutputDir())
	b.WriteString(t.claims())
	return t.say("%s", cli.Wrap(b.String(), j.env.Columns, labelWidth))
}

// labelWidth is the width of the first column of the header.
const labelWidth = 11

// claims reports the earlier results in the output folder that were renamed.
func (t *trainer) claims() string {
	c := t.claim
	text := ""
	if len(c.Kept) > 0 {
		text += fmt.Sprintf("kept       an earlier run's results, as %s\n", strings.Join(c.Kept, ", "))
	}
	if c.Warning != "" {
		text += "warning    " + c.Warning + "\n"
	}
	return text
}

// stageText names the sharded tensors, by shard.stage.
var stageText = [...]string{"nothing", "the state of the optimizer", "state and gradients", "state, gradients and weights"}

// exchangeText returns how the exchange of gradients differs from an exact mean in f32.
func exchangeText(c *config.Config) string {
	var parts []string
	if c.Comm.WireDType != "f32" {
		part := "as " + c.Comm.WireDType
		if c.Comm.ErrorFeedback {
			part += " with error feedback"
		}
		parts = append(parts, part)
	}
	if c.DDP.Hook != "none" {
		parts = append(parts, fmt.Sprintf("%s of rank %d", c.DDP.Hook, c.DDP.PowerSGDRank))
	}
	if c.DDP.Average != "mean" {
		parts = append(parts, "average "+c.DDP.Average)
	}
	if c.DDP.VirtualRanks > 0 {
		parts = append(parts, fmt.Sprintf("summed in the order of %s", plural(c.DDP.VirtualRanks, "rank")))
	}
	if c.DDP.LocalSteps > 1 {
		parts = append(parts, fmt.Sprintf("weights only, every %d steps", c.DDP.LocalSteps))
	}
	if len(parts) == 0 {
		return ""
	}
	return ", " + strings.Join(parts, ", ")
}

// scaleText returns the loss scale; "" if there is none.
func (t *trainer) scaleText() string {
	if t.scaled == nil {
		return ""
	}
	how := ", dynamic"
	if t.scaled.static {
		how = ""
	}
	return fmt.Sprintf(" loss_scale=%g%s", t.scaled.scaler.Scale(), how)
}

// resumption reports the checkpoint to resume from, unusable checkpoints, and changed settings.
func (t *trainer) resumption() string {
	var b strings.Builder
	for _, text := range t.broken {
		fmt.Fprintf(&b, "skipped    %s\n", text)
	}
	if t.from == nil {
		return b.String()
	}
	m := t.from.Manifest
	fmt.Fprintf(&b, "resumed    %s: %s made by %s, shard.stage %d\n", t.from.Path(), plural(m.Step, "step"), plural(m.WorldSize, "rank"), m.Stage)
	for _, c := range t.from.Changes {
		fmt.Fprintf(&b, "changed    %v\n", c)
	}
	return b.String()
}

// keeping returns where and when checkpoints are saved.
func (t *trainer) keeping() string {
	c := t.job.cfg.Checkpoint
	text := "checkpoints in " + t.keeper.Dir()
	if c.Every > 0 {
		text += fmt.Sprintf(", every %s", plural(c.Every, "step"))
	}
	text += ", at the end and on Ctrl-C or SIGTERM"
	if c.Keep > 0 {
		text += fmt.Sprintf("; keeps the newest %d", c.Keep)
	}
	return text
}

// settingsFrom names the sources of the settings, and their hash.
func (j *job) settingsFrom() string {
	from := j.source.File
	if from == "" {
		from = "defaults"
	}
	others := 0
	for _, s := range j.cfg.Settings(j.origins) {
		if s.Origin.Level > config.LevelFile {
			others++
		}
	}
	if others > 0 {
		from += fmt.Sprintf(" and %s from the command line or environment", plural(others, "setting"))
	}
	return fmt.Sprintf("%s, config hash %.12s", from, j.cfg.Hash())
}

// launcher names the starter of the ranks.
func (j *job) launcher() string {
	switch {
	case j.cfg.Comm.Backend == backend.Sim:
		return "goroutines of one process"
	case j.env.Launcher == launch.None:
		return "no launcher"
	}
	by := "started by " + j.env.Launcher
	if n := j.cfg.Launch.NprocPerNode; n > 0 && n != j.env.LocalSize {
		by += fmt.Sprintf(" (overrides launch.nproc_per_node=%d)", n)
	}
	return by
}

// why returns the reason for the backend.
func (j *job) why(name string) string {
	if j.cfg.Comm.Backend == name {
		return "set by comm.backend"
	}
	for _, c := range backend.Choices(j.env) {
		if c.Name == name {
			return c.Why
		}
	}
	return "chosen automatically"
}

// Join returns widths as "784-512-10".
func Join(widths ...int) string {
	texts := make([]string, len(widths))
	for i, w := range widths {
		texts[i] = fmt.Sprint(w)
	}
	return strings.Join(texts, "-")
}

// parameters returns the number of elements of all parameters.
func (t *trainer) parameters() int {
	n := 0
	for _, p := range t.model.Params {
		n += p.Shape().TotalSize()
	}
	return n
}

// shares describes how a batch is split.
func (t *trainer) shares() string {
	size, batch := t.w.Size(), t.job.cfg.Data.GlobalBatch
	least, most := batch/size, ceilDiv(batch, size)
	s := fmt.Sprintf("%d a rank", most)
	if least != most {
		s = fmt.Sprintf("%d or %d a rank", least, most)
	}
	if parts := t.job.cfg.Data.AccumSteps; parts > 1 {
		s += fmt.Sprintf(", in parts of %d", t.rows)
	}
	return s
}

// footer prints the results of the run and where they are.
func (t *trainer) footer(s *Summary) error {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 11, 0, 1, ' ', 0)
	fmt.Fprintf(w, "trained\t%s in %v: %.0f samples/s", plural(s.Steps-s.ResumedStep, "step"),
		time.Duration(s.Seconds*float64(time.Second)).Round(100*time.Millisecond), s.SamplesPerSecond)
	if s.ExposedCommPercent != nil {
		fmt.Fprintf(w, ", %.1f%% of the time waiting for communication", *s.ExposedCommPercent)
	}
	fmt.Fprintln(w)
	fmt.Fprintf(w, "loss\t%.6f at the last step\n", s.FinalLoss)
	if s.SkippedSteps > 0 {
		fmt.Fprintf(w, "skipped\t%s with gradients that were not finite\n", plural(s.SkippedSteps, "step"))
	}
	if s.TestAccuracy != nil {
		fmt.Fprintf(w, "accuracy\t%.4f: %d of %d test answers\n", *s.TestAccuracy, s.TestCorrect, s.TestSamples)
	}
	fmt.Fprintf(w, "params\tsha256 %s, the same on %s\n", s.ParamsSHA256, plural(s.WorldSize, "rank"))
	if s.Trace != "" {
		fmt.Fprintf(w, "timeline\t%s, for https://ui.perfetto.dev\n", s.Trace)
	}
	if n := len(s.Checkpoints); n > 0 {
		fmt.Fprintf(w, "checkpoint\t%s\n", t.keeper.Path(s.Checkpoints[n-1]))
	}
	fmt.Fprintf(w, "summary\t%s\n", filepath.Join(t.job.cfg.OutputDir(), SummaryName))
	if err := w.Flush(); err != nil {
		return err
	}
	return t.say("%s", b.String())
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
