package plan

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// String returns the plan as tables: memory and communication at all stages, the run's marked with
// a star, then dtypes, buckets and collectives of the run's stage.
func (p *Plan) String() string {
	var b strings.Builder
	where := "on the host"
	if p.Device == "cuda" {
		where = "on a GPU each"
	}
	fmt.Fprintf(&b, "plan   %s: %s\n", p.Name, p.Model)
	fmt.Fprintf(&b, "model  %d parameters in %s, %s\n", p.Parameters, plural(p.Tensors, "tensor"), bytesText(p.Bytes))
	fmt.Fprintf(&b, "run    %s %s, %s each%s, %s, shard.stage=%d (*)\n",
		plural(p.Ranks, "rank"), where, plural(p.Rows, "sample"), p.times(), p.Rule, p.Stage)
	if p.Warning != "" {
		fmt.Fprintf(&b, "warning: %s\n", p.Warning)
	}
	b.WriteByte('\n')
	p.memoryTable(&b)
	fmt.Fprintf(&b, "\n%s\n\n", p.Configured().Precision)
	p.volumeTable(&b)
	if l := p.Link; l != nil {
		fmt.Fprintln(&b, l)
	}
	for _, s := range p.Stages {
		if s.Refused != "" {
			fmt.Fprintf(&b, "a run would refuse stage %d: %s\n", s.Stage, s.Refused)
		}
	}
	s := p.Configured()
	b.WriteByte('\n')
	s.bucketTable(&b)
	b.WriteByte('\n')
	if s.Every > 1 {
		fmt.Fprintf(&b, "one step of %d has these, the others none\n", s.Every)
	}
	s.stepTable(&b, p.Link, p.Ranks)
	return b.String()
}

// String returns the assumption of the times.
func (l *Link) String() string {
	if n := l.Net; n != nil {
		return fmt.Sprintf("times assume %s with %s each; a message takes %s, a host's link moves %.3g GB/s in each direction",
			plural(n.Hosts, "host"), plural(n.Ranks, "rank"), secondsText(n.Latency), l.GBps)
	}
	return fmt.Sprintf("times assume that each rank sends %.3g GB/s: %s", l.GBps, l.Source)
}

func (p *Plan) times() string {
	if p.Runs > 1 {
		return fmt.Sprintf(" %d times in a step", p.Runs)
	}
	return " in a step"
}

// table returns a tabwriter with right-aligned columns.
func table(b *strings.Builder) *tabwriter.Writer {
	return tabwriter.NewWriter(b, 0, 0, 2, ' ', tabwriter.AlignRight)
}

// heads returns the column heads, one for each stage.
func (p *Plan) heads() string {
	var b strings.Builder
	for _, s := range p.Stages {
		mark := "  "
		if s.Stage == p.Stage {
			mark = " *"
		}
		fmt.Fprintf(&b, "stage %d%s\t", s.Stage, mark)
	}
	return b.String()
}

// row writes one line of a table with a column for each stage.
func (p *Plan) row(w *tabwriter.Writer, name string, text func(s *Stage) string) {
	fmt.Fprintf(w, "%s\t", name)
	for i := range p.Stages {
		if s := &p.Stages[i]; s.empty() {
			fmt.Fprint(w, "-  \t")
		} else {
			fmt.Fprintf(w, "%s  \t", text(s))
		}
	}
	fmt.Fprintln(w)
}

func (p *Plan) memoryTable(b *strings.Builder) {
	w := table(b)
	fmt.Fprintf(w, "memory of a rank\t%s\n", p.heads())
	for i, k := range (Memory{}).parts() {
		p.row(w, k.name, func(s *Stage) string { return bytesText(s.Most().parts()[i].bytes) })
	}
	p.row(w, "total", func(s *Stage) string { return bytesText(s.Most().Total()) })
	if slices.ContainsFunc(p.Stages, func(s Stage) bool { return s.least() != s.Most().Total() }) {
		p.row(w, "of the rank with the least", func(s *Stage) string { return bytesText(s.least()) })
	}
	_ = w.Flush() // to a strings.Builder, which never fails
}

func (p *Plan) volumeTable(b *strings.Builder) {
	w := table(b)
	fmt.Fprintf(w, "communication of a step\t%s\n", p.heads())
	p.row(w, "collectives", func(s *Stage) string { return fmt.Sprint(s.Volume.Collectives) })
	p.row(w, "bytes", func(s *Stage) string { return bytesText(s.Volume.Bytes) })
	p.row(w, "sent by a rank", func(s *Stage) string { return bytesText(s.Volume.Sent) })
	if p.Link != nil {
		p.row(w, "time", func(s *Stage) string { return secondsText(s.Time.Communication) })
		p.row(w, "waited for, at least", func(s *Stage) string { return secondsText(s.Time.Least) })
		if p.Configured().Time.Exposed != nil {
			p.row(w, "waited for, predicted", func(s *Stage) string { return secondsText(*s.Time.Exposed) })
		}
	}
	_ = w.Flush()
}

func (s *Stage) bucketTable(b *strings.Builder) {
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "bucket\tdtype\telements\tbytes\tfull after\tgradients of")
	for i, k := range s.Buckets {
		fmt.Fprintf(w, "%d\t%s\t%d\t%s\t%.0f%%\t%s\n", i, k.DType, k.Elements, bytesText(k.Bytes), 100*k.Ready, shorten(k.Params))
	}
	_ = w.Flush()
}

// stepTable writes the collectives of a step in order; between hosts also their times.
func (s *Stage) stepTable(b *strings.Builder, l *Link, ranks int) {
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	hosts := l != nil && l.Net != nil
	fmt.Fprint(w, "collective\tof\tdtype\telements\tbytes\tsent by a rank")
	if hosts {
		fmt.Fprint(w, "\ttime\talgorithm")
	}
	fmt.Fprintln(w)
	for _, c := range s.Step {
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\t%s", c.Kind, c.Name, c.DType, c.Count, bytesText(c.Bytes), bytesText(c.Sent))
		if hosts {
			fmt.Fprintf(w, "\t%s\t%s", secondsText(l.Seconds(c, ranks)), l.Algorithm(c))
		}
		fmt.Fprintln(w)
	}
	_ = w.Flush()
}

// empty reports whether a stage has no numbers.
func (s *Stage) empty() bool { return s.Refused != "" && s.Step == nil }

// least returns the bytes of the rank that needs the least.
func (s *Stage) least() int64 {
	least := s.Ranks[0].Total()
	for _, m := range s.Ranks[1:] {
		least = min(least, m.Total())
	}
	return least
}

// shorten returns at most four names.
func shorten(names []string) string {
	const most = 4
	if len(names) <= most {
		return strings.Join(names, " ")
	}
	return fmt.Sprintf("%s ... %s (%d)", strings.Join(names[:most-1], " "), names[len(names)-1], len(names))
}

// bytesText formats a number of bytes: "2.55 MiB".
func bytesText(n int64) string {
	const unit = 1024
	if n < unit && n > -unit {
		return fmt.Sprintf("%d B", n)
	}
	x, names := float64(n)/unit, []string{"KiB", "MiB", "GiB", "TiB"}
	k := 0
	for (x >= unit || x <= -unit) && k < len(names)-1 {
		x, k = x/unit, k+1
	}
	return fmt.Sprintf("%.2f %s", x, names[k])
}

// secondsText formats a time: "1.25ms".
func secondsText(s float64) string {
	if s >= math.MaxInt64/float64(time.Second) { // too large for a Duration
		return fmt.Sprintf("%.3gs", s)
	}
	d := time.Duration(s * float64(time.Second))
	switch {
	case d >= time.Second:
		return d.Round(10 * time.Millisecond).String()
	case d >= time.Millisecond:
		return d.Round(10 * time.Microsecond).String()
	}
	return d.Round(100 * time.Nanosecond).String()
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
