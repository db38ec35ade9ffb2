package report

import (
	"fmt"
	"strings"

	"github.com/symgrad/symgrad/config"
	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/internal/tool/cli"
	"github.com/symgrad/symgrad/optim"
	"github.com/symgrad/symgrad/train/internal/output"
	"github.com/symgrad/symgrad/train/internal/save"
)

// Header is the plan of a run, as it is printed before the first step.
type Header struct {
	*Run
	DDP     *ddp.DDP
	Rows    int               // samples of a run of the graph
	Scaler  *optim.LossScaler // nil without loss scaling
	Static  bool              // the loss scale never changes
	Origin  *save.Origin      // nil for a new training
	Skipped []string          // checkpoints that are not usable, with the reasons
	Folder  *save.Folder      // of checkpoints; nil without
	Claim   *output.Claim
}

// String returns the lines: ranks, backend and its reason, BLAS, model, buckets, results.
func (h *Header) String() string {
	cfg := h.Config
	var b strings.Builder
	fmt.Fprintf(&b, "run        %s, %s\n", cfg.Run.Name, h.settingsFrom())
	fmt.Fprintf(&b, "ranks      %s, %s each, %s\n", Plural(h.World.Size(), "rank"), Plural(h.Threads, "thread"), h.launcher())
	fmt.Fprintf(&b, "backend    %s: %s\n", h.World.Backend(), h.why(h.World.Backend()))
	fmt.Fprintf(&b, "machine    %s\n", h.machine())
	fmt.Fprintf(&b, "products   %s\n", h.products())
	fmt.Fprintf(&b, "data       %s\n", h.Data)
	fmt.Fprintf(&b, "model      %s: %d parameters in %d tensors\n", h.Model, h.Parameters, h.Tensors)
	fmt.Fprintf(&b, "optimizer  %v%s\n", h.Rule, h.scale())
	fmt.Fprintf(&b, "steps      %d of %d samples: %s\n", h.Steps, cfg.Data.GlobalBatch, h.shares())
	b.WriteString(h.resumption())
	overlap := "during the backward pass"
	if !cfg.DDP.Overlap {
		overlap = "after the backward pass"
	}
	fmt.Fprintf(&b, "exchange   %s%s\n", overlap, exchangeText(cfg))
	for line := range strings.Lines(h.DDP.String()) {
		b.WriteString("           " + line)
	}
	if cfg.Shard.Stage > 0 {
		fmt.Fprintf(&b, "sharding   %s; rank 0 has %v\n", stageText[cfg.Shard.Stage], h.DDP.Memory())
	}
	if cfg.Shard.OverlapGather && !h.Site.GPU {
		b.WriteString("warning    shard.overlap_gather has no effect on the host\n")
	}
	if h.Folder != nil {
		fmt.Fprintf(&b, "saves      %s\n", h.keeping())
		if err := h.Folder.Unlocked(); err != nil {
			fmt.Fprintf(&b, "warning    no other run may save there, and symgrad cannot detect it: locking the folder failed: %v\n", err)
		}
	}
	fmt.Fprintf(&b, "results    %s\n", cfg.OutputDir())
	if kept := h.Claim.Kept; len(kept) > 0 {
		fmt.Fprintf(&b, "kept       an earlier run's results, as %s\n", strings.Join(kept, ", "))
	}
	if h.Claim.Warning != "" {
		fmt.Fprintf(&b, "warning    %s\n", h.Claim.Warning)
	}
	return cli.Wrap(b.String(), h.Env.Columns, labelWidth)
}

// labelWidth is the width of the first column of the header.
const labelWidth = 11

// scale returns the loss scale; "" if there is none.
func (h *Header) scale() string {
	if h.Scaler == nil {
		return ""
	}
	how := ", dynamic"
	if h.Static {
		how = ""
	}
	return fmt.Sprintf(" loss_scale=%g%s", h.Scaler.Scale(), how)
}

// shares describes how a batch is split.
func (h *Header) shares() string {
	size, batch := h.World.Size(), h.Config.Data.GlobalBatch
	least, most := batch/size, ceilDiv(batch, size)
	s := fmt.Sprintf("%d a rank", most)
	if least != most {
		s = fmt.Sprintf("%d or %d a rank", least, most)
	}
	if parts := h.Config.Data.AccumSteps; parts > 1 {
		s += fmt.Sprintf(", in parts of %d", h.Rows)
	}
	return s
}

// resumption reports the checkpoint to resume from, unusable checkpoints, and changed settings.
func (h *Header) resumption() string {
	var b strings.Builder
	for _, text := range h.Skipped {
		fmt.Fprintf(&b, "skipped    %s\n", text)
	}
	if h.Origin == nil {
		return b.String()
	}
	m := h.Origin.Manifest
	fmt.Fprintf(&b, "resumed    %s: %s made by %s, shard.stage %d\n", h.Origin.Path(), Plural(m.Step, "step"), Plural(m.WorldSize, "rank"), m.Stage)
	for _, c := range h.Origin.Changes {
		fmt.Fprintf(&b, "changed    %v\n", c)
	}
	return b.String()
}

// keeping returns where and when checkpoints are saved.
func (h *Header) keeping() string {
	c := h.Config.Checkpoint
	text := "checkpoints in " + h.Folder.Dir()
	if c.Every > 0 {
		text += fmt.Sprintf(", every %s", Plural(c.Every, "step"))
	}
	text += ", at the end and on Ctrl-C or SIGTERM"
	if c.Keep > 0 {
		text += fmt.Sprintf("; keeps the newest %d", c.Keep)
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
		parts = append(parts, fmt.Sprintf("summed in the order of %s", Plural(c.DDP.VirtualRanks, "rank")))
	}
	if c.DDP.LocalSteps > 1 {
		parts = append(parts, fmt.Sprintf("weights only, every %d steps", c.DDP.LocalSteps))
	}
	if len(parts) == 0 {
		return ""
	}
	return ", " + strings.Join(parts, ", ")
}
