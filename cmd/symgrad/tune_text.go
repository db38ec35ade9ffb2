package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/symgrad/symgrad/dist/backend"
	"github.com/symgrad/symgrad/internal/gpu"
	"github.com/symgrad/symgrad/internal/tool/perf"
)

// tunePrinter prints the measurements of symgrad tune as they arrive.
type tunePrinter struct {
	w     io.Writer
	title string // title of the last printed rows
	err   error  // first write error
}

func (p *tunePrinter) printf(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format, args...)
	}
}

// begin prints GPUs and libraries.
func (p *tunePrinter) begin(g *backend.GPUs) {
	p.printf("%d ranks, each on one %s\n", g.Size(), g.Device().Name())
	for _, e := range g.Engines() {
		p.printf("%s %s: %s\n", mark(e.Usable, false), e.Name, e.Why)
	}
}

// row prints one operation at one size, with a mark at the fastest engine.
func (p *tunePrinter) row(r gpu.Row) {
	if title := rowTitle(&r); title != p.title {
		p.title = title
		p.printf("\n%s\n", title)
	}
	best := fastest(&r)
	p.printf("%9s", perf.FormatSize(r.Bytes))
	for _, m := range r.Timings {
		sign := " "
		if m.Engine == best {
			sign = "*"
		}
		p.printf("  %s%s %.1f us", sign, m.Engine, m.Microseconds)
	}
	p.printf("\n")
}

// end prints the summary of the table.
func (p *tunePrinter) end(t *gpu.Table, engines []backend.Choice) {
	for _, e := range engines {
		if !e.Usable {
			p.printf("\n- %s: %s\n", e.Name, e.Why)
		}
	}
	p.printf("\n%s\n", strings.Join(tableText(t, 0), "\n"))
}

// rowTitle returns "allreduce f32 sum, symmetric, 4 ranks on 2 hosts".
func rowTitle(r *gpu.Row) string {
	where := "private"
	if r.Symmetric {
		where = "symmetric"
	}
	return fmt.Sprintf("%s %s, %s, %s", r.Kind, dtypeText(r), where, ranksText(r.Ranks, r.Hosts))
}

// ranksText returns "2 ranks", or "4 ranks on 2 hosts".
func ranksText(ranks, hosts int) string {
	text := count(ranks, "rank")
	if hosts > 1 {
		text += " on " + count(hosts, "host")
	}
	return text
}

// fastest returns the engine that the dispatcher takes for a row; of equally fast ones the first by
// name.
func fastest(r *gpu.Row) string {
	if len(r.Timings) == 0 {
		return ""
	}
	return slices.MinFunc(r.Timings, func(a, b gpu.Timing) int {
		return cmp.Or(cmp.Compare(a.Microseconds, b.Microseconds), cmp.Compare(a.Engine, b.Engine))
	}).Engine
}

// tableText describes a table: a line per operation for so many ranks (0 means any number), its
// rules, and the choice for operations that overlap with computation.
func tableText(t *gpu.Table, ranks int) []string {
	var lines []string
	line, last := "", ""
	rows := slices.Clone(t.Rows)
	slices.SortStableFunc(rows, func(a, b gpu.Row) int {
		return cmp.Or(cmp.Compare(a.Ranks, b.Ranks), cmp.Compare(rowTitle(&a), rowTitle(&b)), cmp.Compare(a.Bytes, b.Bytes))
	})
	flush := func() {
		if line != "" {
			lines = append(lines, line+last)
		}
	}
	title, engine := "", ""
	for i := range rows {
		r := &rows[i]
		if ranks > 0 && r.Ranks != ranks {
			continue
		}
		switch best := fastest(r); {
		case rowTitle(r) != title:
			flush()
			title, engine = rowTitle(r), best
			line = title + ": " + best
		case best != engine:
			line += last + ", " + best
			engine = best
		}
		last = " to " + perf.FormatSize(r.Bytes)
	}
	flush()
	if slices.ContainsFunc(rows, func(r gpu.Row) bool { return r.Reduction == "sum" && (ranks == 0 || r.Ranks == ranks) }) {
		lines = append(lines, "other reductions: as sums; other types: as bf16 if they have two bytes, else as f32")
	}
	if lines = append(lines, rulesText(t, ranks)...); len(lines) > 0 {
		lines = append(lines, fmt.Sprintf("during computation, symmetric, from %s: copy, if it can", perf.FormatSize(gpu.LeastAside)))
	}
	return lines
}

// rulesText returns the rules of a table, a line each.
func rulesText(t *gpu.Table, ranks int) []string {
	var lines []string
	for _, r := range t.Rules {
		if ranks > 0 && r.Ranks != 0 && r.Ranks != ranks {
			continue
		}
		text := "others"
		if len(r.Kinds) > 0 {
			text = strings.Join(r.Kinds, " and ") + ", if not measured"
		}
		if r.Ranks > 0 {
			text += ", " + ranksText(r.Ranks, r.Hosts)
		}
		if r.Bytes > 0 {
			text += ", to " + perf.FormatSize(r.Bytes)
		}
		lines = append(lines, text+": "+strings.Join(r.Engines, ", "))
	}
	return lines
}
