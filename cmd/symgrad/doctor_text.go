package main

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/symgrad/symgrad/internal/tool/probe"
)

const (
	doctorWidth = 100 // columns of the report; only a longer word, such as a path, exceeds it
	labelWidth  = 10
)

// sheet is a report in progress: sections with labels on the left.
type sheet struct{ b bytes.Buffer }

// line writes a line of a section and continues it indented; only the first line of a section has a
// label.
func (s *sheet) line(label, format string, args ...any) {
	indent := strings.Repeat(" ", labelWidth)
	at := 0
	for word := range strings.FieldsSeq(fmt.Sprintf(format, args...)) {
		n := utf8.RuneCountInString(word)
		switch {
		case at == 0:
			fmt.Fprintf(&s.b, "%-*s", labelWidth, label)
			at = labelWidth
		case at+1+n > doctorWidth:
			s.b.WriteString("\n" + indent + "  ")
			at = labelWidth + 2
		default:
			s.b.WriteByte(' ')
			at++
		}
		s.b.WriteString(word)
		at += n
	}
	s.b.WriteByte('\n')
}

// doctorText returns the report as text.
func doctorText(r probe.Report) []byte {
	var s sheet
	s.line("marks", "* chosen, + usable, - not usable")
	s.line("system", "%s, kernel %s, %s/%s, %s%s", orUnknown(r.System.Distribution), orUnknown(r.System.Kernel), r.System.OS, r.System.Arch, r.System.Go,
		prefixed(", in ", r.System.Container))
	s.cpu(r.CPU)
	s.memory(r)
	s.blas(r.BLAS)
	s.libraries("mpi", r.MPI)
	s.libraries("ucx", r.UCX)
	s.libraries("openshmem", r.OpenSHMEM)
	s.gpus(r.GPUs)
	s.libraries("gpu libs", r.GPULibraries)
	s.engines("engines", r.Engines)
	s.engines("hosts", r.HostEngines)
	if len(r.GPUs.Devices) > 0 {
		s.table(r.Table)
	}
	s.launcher(r.Launcher)
	s.backends(r.Backends)
	label := "tried"
	for _, w := range r.Worlds {
		result := "works"
		if !w.OK {
			result = w.Problem
		}
		s.line(label, "%s a world of %d ranks on %s: %s", mark(w.OK, false), w.Ranks, w.Backend, result)
		label = ""
	}
	s.b.WriteByte('\n')
	s.line("verdict", "%s", r.Verdict)
	label = "advice"
	for _, a := range r.Advice {
		s.line(label, "- %s", a)
		label = ""
	}
	return s.b.Bytes()
}

// mark returns the mark of an item: "*" for chosen, "+" for usable, "-" for unusable.
func mark(usable, chosen bool) string {
	switch {
	case chosen:
		return "*"
	case usable:
		return "+"
	}
	return "-"
}

func (s *sheet) cpu(c probe.CPU) {
	s.line("cpu", "%s, %d of %d cores usable%s", orUnknown(c.Model), c.Usable, c.Online, restrictions(c))
	s.line("", "%s", orUnknown(strings.Join(c.ISA, " ")))
	var caches []string
	for _, cache := range c.Caches {
		if cache.Type == "Instruction" {
			continue
		}
		text := fmt.Sprintf("L%d %s", cache.Level, binary(cache.Bytes))
		if cache.SharedBy > 1 {
			text += fmt.Sprintf(" for %d", cache.SharedBy)
		}
		caches = append(caches, text)
	}
	nodes := count(len(c.NUMANodes), "NUMA node")
	if len(c.NUMANodes) > 1 {
		var parts []string
		for _, n := range c.NUMANodes {
			parts = append(parts, fmt.Sprintf("%d: cores %s, %s", n.ID, n.CPUs, binary(n.MemoryBytes)))
		}
		nodes += " (" + strings.Join(parts, "; ") + ")"
	}
	s.line("", "%s; caches %s", nodes, orUnknown(strings.Join(caches, ", ")))
}

// restrictions returns why not all cores are usable.
func restrictions(c probe.CPU) string {
	var why []string
	if c.Allowed < c.Online {
		why = append(why, "affinity mask "+c.Affinity)
	}
	if c.Quota > 0 {
		why = append(why, fmt.Sprintf("control group grants %.4g", c.Quota))
	}
	if len(why) == 0 {
		return ""
	}
	return " (" + strings.Join(why, ", ") + ")"
}

func (s *sheet) memory(r probe.Report) {
	limit := "no limit by a control group"
	if m := r.Memory; m.LimitBytes > 0 {
		limit = fmt.Sprintf("control group: %s, %s used", binary(m.LimitBytes), binary(m.LimitUsedBytes))
	}
	s.line("memory", "%s, %s available; %s", binary(r.Memory.TotalBytes), binary(r.Memory.AvailableBytes), limit)
	m := r.SharedMemory
	if m.Memfd.Usable {
		s.line("shared", "+ memfd: %s made, sealed and mapped", binary(m.Memfd.Bytes))
	} else {
		s.line("shared", "- memfd: %s", m.Memfd.Problem)
	}
	if m.DevShm.Problem == "" {
		s.line("", "+ %s: %s, %s free", m.DevShm.Path, binary(m.DevShm.TotalBytes), binary(m.DevShm.FreeBytes))
	} else {
		s.line("", "- %s", m.DevShm.Problem)
	}
	var pools []string
	for _, h := range m.HugePages {
		pools = append(pools, fmt.Sprintf("%d of %s (%d free)", h.Total, binary(h.PageBytes), h.Free))
	}
	s.line("", "huge pages: %s; transparent: %s, for shared memory %s", orNone(strings.Join(pools, ", ")), orUnknown(m.THP), orUnknown(m.THPShmem))
	l := r.Limits
	ptrace := "no Yama"
	if l.PtraceScope >= 0 {
		ptrace = fmt.Sprintf("%d", l.PtraceScope)
	}
	s.line("limits", "memlock %s, stack %s, open files %s, processes %s, ptrace scope: %s", limitText(l.Memlock.Soft, binary),
		limitText(l.Stack.Soft, binary), limitText(l.NoFile.Soft, decimal), limitText(l.NProc.Soft, decimal), ptrace)
}

func (s *sheet) blas(b probe.BLAS) {
	threads := ""
	if b.Threads > 0 {
		threads = ", " + count(b.Threads, "thread")
	}
	switch {
	case b.Off:
		s.line("blas", "* gonum, set by cpu.blas")
	case b.Problem != "":
		s.line("blas", "- %s", b.Problem)
	default:
		s.line("blas", "* %s %s%s%s", b.Name, b.Version, threads, prefixed(", ", b.Path))
	}
	missing := []string{}
	for _, l := range b.Libraries {
		switch {
		case l.Path == "":
			missing = append(missing, l.Name)
		case !l.Chosen:
			s.library("", l)
		}
	}
	if len(missing) > 0 {
		s.line("", "- not found: %s", strings.Join(missing, ", "))
	}
}

// library writes a library with its path, or the reason why it is unusable.
func (s *sheet) library(label string, l probe.Library) {
	text := mark(l.Usable, l.Chosen) + " " + l.Name
	if l.Version != "" {
		text += " " + l.Version
	}
	text += ", " + l.Path
	if l.Problem != "" {
		text += ": " + l.Problem
	}
	if len(l.Notes) > 0 {
		text += " (" + strings.Join(l.Notes, "; ") + ")"
	}
	s.line(label, "%s", text)
}

// libraries writes a section of libraries; its last line lists the missing ones.
func (s *sheet) libraries(label string, libs []probe.Library) {
	var missing []string
	for _, l := range libs {
		if l.Path == "" {
			missing = append(missing, l.Name)
			continue
		}
		s.library(label, l)
		label = ""
	}
	if len(missing) > 0 {
		s.line(label, "- not found: %s", strings.Join(missing, ", "))
	}
}

func (s *sheet) gpus(g probe.GPUs) {
	label := "gpus"
	for _, d := range g.Devices {
		s.line(label, "+ %d: %s, %s, compute capability %s, %d SMs, %s, %s%s", d.Index, d.Name, binary(d.MemoryBytes), d.ComputeCapability,
			d.Multiprocessors, d.PCI, d.UUID, problemMode(d.ComputeMode))
		label = ""
	}
	if len(g.Devices) > 1 {
		s.line(label, "%s", peerText(g))
	}
	if d := g.Driver; d.Usable {
		s.line(label, "+ driver: %s%s, %s", d.Version, prefixed(", module ", g.Module), d.Path)
	} else {
		s.line(label, "- no GPU: %s", d.Problem)
	}
}

func problemMode(mode string) string {
	if mode == "default" {
		return ""
	}
	return ", compute mode " + mode
}

// peerText returns the peer access between GPUs, with a row of the matrix per GPU unless all have
// it.
func peerText(g probe.GPUs) string {
	if g.AllPeers() {
		text := "every GPU can address the memory of every other"
		if !slices.ContainsFunc(g.Atomics, func(row []bool) bool { return slices.Contains(row, false) }) {
			text += ", with atomics (NVLink)"
		}
		return text
	}
	var rows []string
	for i, row := range g.Peers {
		var reached []string
		for j, yes := range row {
			if yes && i != j {
				reached = append(reached, fmt.Sprint(j))
			}
		}
		rows = append(rows, fmt.Sprintf("%d reaches %s", i, orNone(strings.Join(reached, " "))))
	}
	return "peer access: " + strings.Join(rows, "; ")
}

func (s *sheet) launcher(l probe.Launcher) {
	var others []string
	for _, v := range l.Variables {
		if v.Of != l.Name && !slices.Contains(others, v.Of) {
			others = append(others, v.Of)
		}
	}
	text := fmt.Sprintf("%s: rank %d of %d, %d of %d on this host", l.Name, l.Rank, l.Size, l.LocalRank, l.LocalSize)
	switch {
	case l.Problem != "":
		text = "- " + l.Problem
	case l.Name == "none":
		text = "none: one rank"
	}
	if len(others) > 0 && l.Problem == "" {
		text += "; variables of " + strings.Join(others, ", ") + " are set as well"
	}
	s.line("launcher", "%s", text)
}

// binary formats bytes with a fitting unit: "23.5 GiB".
func binary(n int64) string {
	const step = 1024
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB"}
	v, u := float64(n), 0
	for v >= step && u < len(units)-1 {
		v /= step
		u++
	}
	if v >= 100 || v == float64(int64(v)) {
		return fmt.Sprintf("%.0f %s", v, units[u])
	}
	return fmt.Sprintf("%.1f %s", v, units[u])
}

func decimal(n int64) string { return fmt.Sprint(n) }

// limitText formats a limit with write.
func limitText(n int64, write func(int64) string) string {
	if n == probe.Unlimited {
		return "unlimited"
	}
	return write(n)
}

// count returns "1 core" or "2 cores".
func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// prefixed returns text after a prefix, or "" for no text.
func prefixed(prefix, text string) string {
	if text == "" {
		return ""
	}
	return prefix + text
}

func orUnknown(text string) string { return cmp.Or(text, "unknown") }

func orNone(text string) string { return cmp.Or(text, "none") }
