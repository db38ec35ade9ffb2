package perf

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Table prints rows as they are measured, like nccl-tests: one line per size, out of place and in
// place together if both are measured. It is a Reporter.
type Table struct {
	w       io.Writer
	version string
	cfg     Config
	open    *Row // first of a pair, until the second comes
	lastOp  string
	engines bool            // rows have engines
	told    map[string]bool // reasons of skipped rows printed so far
	err     error
}

// NewTable returns a table for the cases of cfg. version is a line that identifies the program.
func NewTable(w io.Writer, version string, cfg Config) *Table {
	return &Table{w: w, version: version, cfg: cfg.withDefaults(), told: map[string]bool{}}
}

func (t *Table) printf(format string, args ...any) {
	if t.err == nil {
		_, t.err = fmt.Fprintf(t.w, format, args...)
	}
}

// Begin prints the header.
func (t *Table) Begin(r Result) {
	names := make([]string, len(t.cfg.Ops))
	for i, op := range t.cfg.Ops {
		names[i] = op.String()
	}
	t.printf("# %s\n", t.version)
	t.printf("# Collective test starting: %s\n", strings.Join(names, " "))
	t.printf("# backend %s ranks %d minBytes %d maxBytes %d step: %s warmup iters: %s iters: %s validation: %d graph: %d\n",
		r.Settings.Backend, r.Settings.Ranks, t.cfg.MinBytes, t.cfg.MaxBytes, t.cfg.step(),
		count(t.cfg.Warmup, "iters/10"), count(t.cfg.Iters, "by size and time"), r.Settings.Checks, r.Settings.Graph)
	clock := fmt.Sprintf("clock %s, %.0f ns a reading, included", r.Clock.Name, r.Clock.ReadNS)
	if r.Settings.Timing != "" {
		clock = "device time by " + r.Settings.Timing
	}
	t.printf("# buffers: %s; operations: %s; %s\n", where(r.Settings), how(r.Settings), clock)
	if t.engines = len(r.Settings.Engines) > 0; t.engines {
		bound := ""
		if n := r.Settings.MaxCTAs; n > 0 {
			bound = fmt.Sprintf("; most blocks: %d", n)
		}
		t.printf("# engines: %s, in turn; rounds: %d%s\n", strings.Join(r.Settings.Engines, " "), r.Settings.Rounds, bound)
	}
	m := r.Machine
	t.printf("# machine: %s, %d cores, %.0f GiB; %s %s\n", cmp.Or(m.CPU, m.Arch), m.Cores, float64(m.MemoryBytes)/(1<<30), m.OS, m.Kernel)
	t.printf("#\n# Using hosts\n")
	for _, k := range r.Ranks {
		core := "any core"
		if k.Core >= 0 {
			core = fmt.Sprintf("core %d", k.Core)
		}
		if k.Device != "" {
			core += ", " + k.Device
		}
		if k.LaunchUS > 0 {
			core += fmt.Sprintf(", a launch takes %.2f us", k.LaunchUS)
		}
		t.printf("#  Rank %2d Pid %6d on %10s %s\n", k.Rank, k.PID, k.Host, core)
	}
	t.printf("#\n")
	t.columns()
}

func (c Config) step() string {
	if c.StepBytes > 0 {
		return fmt.Sprintf("%d(bytes)", c.StepBytes)
	}
	return fmt.Sprintf("%d(factor)", c.Factor)
}

// count prints a number of iterations; zero is the text for 0.
func count(n int, zero string) string {
	if n == 0 {
		return zero
	}
	return strconv.Itoa(max(n, 0))
}

func where(s Settings) string {
	switch {
	case s.Private:
		return "private"
	case s.Symmetric && s.Timing != "":
		return "symmetric heap, promised equal offsets"
	}
	return "symmetric heap"
}

func how(s Settings) string {
	text := "on the calling thread"
	if s.Queued {
		text = "queued on a stream"
	}
	switch {
	case s.Graph > 0:
		return fmt.Sprintf("a captured graph, launched %d times", s.Graph)
	case s.Style == BackToBack:
		return text + ", back to back"
	case s.Fresh:
		return text + ", fresh data and a barrier, untimed, before each"
	}
	return text + ", a barrier, untimed, before each"
}

// columns prints the names of the columns and their units.
func (t *Table) columns() {
	type names [10]string
	line := func(n names) {
		text := fmt.Sprintf("# %10s  %12s  %8s  %6s  %6s", n[0], n[1], n[2], n[3], n[4])
		for range t.modes() {
			text += fmt.Sprintf("  %7s  %6s  %6s  %6s", n[5], n[6], n[7], n[8])
		}
		if t.engines {
			text += "  " + n[9]
		}
		t.printf("%s\n", strings.TrimRight(text, " "))
	}
	t.printf("# %10s  %12s  %8s  %6s  %6s", "", "", "", "", "")
	for i, mode := range t.modes() {
		t.printf("%*s%*s", min(1, i)*12, "", 21, mode)
	}
	t.printf("\n")
	line(names{"size", "count", "type", "redop", "root", "time", "algbw", "busbw", "#wrong", "engine"})
	line(names{"(B)", "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)", "", ""})
}

// modes is the names of the groups of columns.
func (t *Table) modes() []string {
	out, in := t.cfg.Both, t.cfg.Both
	for _, op := range t.cfg.Ops {
		for _, inPlace := range t.cfg.modesOf(op) {
			out, in = out || !inPlace, in || inPlace
		}
	}
	switch {
	case out && in:
		return []string{"out-of-place", "in-place"}
	case in:
		return []string{"in-place"}
	}
	return []string{"out-of-place"}
}

// Row prints a row, or keeps it until the second of its pair comes.
func (t *Table) Row(row Row) {
	switch {
	case len(t.modes()) == 1:
		t.begin(row)
		t.printf("%s%s\n", numbers(row), t.engine(row))
		t.rate(row)
	case row.InPlace && t.open != nil && t.open.pairs(row):
		first := *t.open
		t.open = nil
		t.begin(first)
		t.printf("%s%s%s\n", numbers(first), numbers(row), t.engine(row))
	case row.InPlace: // its operation is measured in place only
		t.flush()
		t.begin(row)
		t.printf("%s%s%s\n", noNumbers, numbers(row), t.engine(row))
	default:
		t.flush()
		t.open = &row
	}
}

// pairs reports whether r and other differ only in InPlace.
func (r Row) pairs(other Row) bool {
	r.InPlace = other.InPlace
	return r.key() == other.key()
}

// noNumbers fills the columns of a missing row.
var noNumbers = fmt.Sprintf("  %7s  %6s  %6s  %6s", "N/A", "N/A", "N/A", "N/A")

// flush prints a row without its pair.
func (t *Table) flush() {
	if t.open == nil {
		return
	}
	first := *t.open
	t.open = nil
	t.begin(first)
	t.printf("%s%s%s\n", numbers(first), noNumbers, t.engine(first))
	t.rate(first)
}

// rate prints the operations per second of a row without bandwidth.
func (t *Table) rate(row Row) {
	if row.Rate > 0 {
		t.printf("# %s: %s million a second, of all ranks together\n", row.Op, number(row.Rate, 8))
	}
}

// begin prints the columns that both of a pair share, with the operation's name if the table has
// several.
func (t *Table) begin(row Row) {
	if len(t.cfg.Ops) > 1 && row.Op != t.lastOp {
		t.printf("# %s\n", row.Op)
	}
	t.lastOp = row.Op
	if why := row.Engine + " " + row.Op + " " + row.DType + ": " + row.Skipped; row.Skipped != "" && !t.told[why] {
		t.told[why] = true
		t.printf("# %s\n", strings.ReplaceAll(why, "\n", "; "))
	}
	t.printf("%12d  %12d  %8s  %6s  %6d", row.Bytes, row.Count, row.DType, row.RedOp, row.Root)
}

// engine returns the last column.
func (t *Table) engine(row Row) string {
	if !t.engines {
		return ""
	}
	return "  " + row.Engine
}

// numbers returns the time, bandwidths and check of a row.
func numbers(row Row) string {
	alg, bus, wrong := "N/A", "N/A", "N/A"
	if row.AlgBW > 0 {
		alg, bus = number(row.AlgBW, 6), number(row.BusBW, 6)
	}
	if row.Wrong != nil {
		wrong = strconv.FormatInt(*row.Wrong, 10)
	}
	took := number(row.TimeUS, 7)
	if row.Skipped != "" {
		took = "N/A"
	}
	return fmt.Sprintf("  %7s  %6s  %6s  %6s", took, alg, bus, wrong)
}

// number formats x in at most width characters: with two decimals or fewer, like nccl-tests, and
// with more below 1.
func number(x float64, width int) string {
	decimals := 2
	switch {
	case x < 0.01:
		decimals = 4
	case x < 1:
		decimals = 3
	}
	for ; decimals >= 0; decimals-- {
		if s := strconv.FormatFloat(x, 'f', decimals, 64); len(s) <= width {
			return s
		}
	}
	return strconv.FormatFloat(x, 'e', max(width-6, 0), 64)
}

// End prints the footer.
//
// Errors: the first of writing.
func (t *Table) End(r Result) error {
	t.flush()
	verdict := "OK"
	if r.Wrong() > 0 {
		verdict = "FAILED"
	}
	if r.Settings.Checks == 0 {
		t.printf("# %-20s : not checked\n", "Out of bounds values")
	} else {
		t.printf("# %-20s : %d %s\n", "Out of bounds values", r.Wrong(), verdict)
	}
	t.printf("# %-20s : %g\n#\n", "Avg bus bandwidth", round(r.AverageBusBW()))
	return t.err
}
