package main

import (
	"strings"

	"github.com/symgrad/symgrad/internal/tool/probe"
)

// engines writes the engines between GPUs or hosts. Engines that are available, or unavailable, for
// the same reason share a line.
func (s *sheet) engines(label string, all []probe.Engine) {
	for i := 0; i < len(all); {
		e := all[i]
		var names []string
		for ; i < len(all) && all[i].Usable == e.Usable && all[i].Why == e.Why; i++ {
			names = append(names, all[i].Name)
		}
		s.line(label, "%s %s: %s", mark(e.Usable, false), strings.Join(names, ", "), e.Why)
		label = ""
		for _, note := range e.Notes {
			s.line(label, "  note: %s", note)
		}
	}
}

// backends writes the backends. Those that are unavailable for the same reason share a line.
func (s *sheet) backends(all []probe.Backend) {
	label := "backends"
	for i := 0; i < len(all); {
		b := all[i]
		var names []string
		for ; i < len(all) && (len(names) == 0 || !b.Usable && !all[i].Usable && all[i].Why == b.Why); i++ {
			names = append(names, all[i].Name)
		}
		s.line(label, "%s %s: %s", mark(b.Usable, b.Chosen), strings.Join(names, ", "), b.Why)
		label = ""
	}
}

// table writes the table by which backend cuda chooses engines.
func (s *sheet) table(t probe.Table) {
	from := "built-in"
	if t.File != "" {
		from = t.File
	}
	switch {
	case t.Problem != "":
		s.line("table", "- %s: %s", from, t.Problem)
		return
	case t.Rows == 0:
		s.line("table", "%s: nothing measured, %s, hash %.12s", from, machineText(t), t.Hash)
	case !t.Fits:
		s.line("table", "%s: %s, measured on %s and not on these GPUs, so that only its rules apply, hash %.12s", from, count(t.Rows, "row"), t.Machine, t.Hash)
	default:
		s.line("table", "%s: %s, %s, hash %.12s", from, count(t.Rows, "row"), machineText(t), t.Hash)
	}
	shown := t.Lines
	if len(shown) > mostTableLines {
		shown = shown[:mostTableLines]
	}
	for _, line := range shown {
		s.line("", "%s", line)
	}
	if more := len(t.Lines) - len(shown); more > 0 {
		s.line("", "and %d more: see symgrad doctor --json", more)
	}
}

// mostTableLines limits the printed lines of a long table.
const mostTableLines = 16

func machineText(t probe.Table) string {
	if t.Machine == "" {
		return "any GPU"
	}
	return t.Machine
}
