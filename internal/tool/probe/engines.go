package probe

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/symgrad/symgrad/dist/backend"
	"github.com/symgrad/symgrad/dist/launch"
)

// Engine is an engine between GPUs and whether it is available here.
type Engine struct {
	Name   string   `json:"name"` // one of package backend's: "nccl"
	Usable bool     `json:"usable"`
	Why    string   `json:"why"`   // the reason, in both cases
	Notes  []string `json:"notes"` // further facts
}

// Minimum versions of the engines: see leastDriver of internal/gpu/cuda, and leastVersion and
// windowVersion of internal/gpu/nccl and internal/gpu/nvshmem.
var (
	leastCUDA    = []int{12, 0}
	leastNCCL    = []int{2, 14, 3}
	leastWindow  = []int{2, 27, 3}
	leastNVSHMEM = []int{3, 0, 6}
)

// JudgeEngines returns all engines between GPUs for the job of env, judged by the report's GPUs and
// libraries. No engine is tried.
//
// Returns: one or more lines of reasons per engine.
func JudgeEngines(rep Report, env launch.Env) []Engine {
	base := noGPU(rep.GPUs, env)
	peers := firstOf(base, apart(rep.GPUs, env))
	nccl, ncclNotes := judgeLibrary(rep.GPULibraries, "nccl", leastNCCL)
	window, windowNotes := judgeLibrary(rep.GPULibraries, "nccl", leastWindow)
	nvshmem, nvshmemNotes := judgeLibrary(rep.GPULibraries, "nvshmem", leastNVSHMEM)
	nvrtc, _ := judgeLibrary(rep.GPULibraries, "nvrtc", leastCUDA)
	nvrtc = firstOf(tooNew(rep.GPULibraries, rep.GPUs), nvrtc)
	var engines []Engine
	for _, name := range backend.EngineNames(backend.CUDA) {
		e := Engine{Name: name, Notes: []string{}}
		library := ""
		switch name {
		case "nccl", "hier": // hier is for groups over several hosts
			e.Why, e.Notes, library = firstOf(base, nccl), append(e.Notes, ncclNotes...), "nccl"
		case "nccl-window":
			e.Why, e.Notes, library = firstOf(peers, window), append(e.Notes, windowNotes...), "nccl"
		case "nvshmem":
			e.Why, e.Notes, library = firstOf(peers, nvshmem), append(e.Notes, nvshmemNotes...), "nvshmem"
		default:
			e.Why, library = firstOf(peers, nvrtc), "nvrtc"
		}
		if e.Why == "" {
			e.Usable, e.Why = true, ready(rep.GPULibraries, library)
		}
		engines = append(engines, e)
	}
	return engines
}

// firstOf returns the first non-empty reason.
func firstOf(reasons ...string) string {
	for _, r := range reasons {
		if r != "" {
			return r
		}
	}
	return ""
}

// noGPU returns why the ranks of env cannot have a GPU each; "" if they can.
func noGPU(g GPUs, env launch.Env) string {
	switch {
	case !g.Driver.Usable && g.Driver.Path != "":
		return fmt.Sprintf("no GPU: %s: %s", g.Driver.Path, g.Driver.Problem)
	case !g.Driver.Usable:
		return "no GPU: " + g.Driver.Problem
	case len(g.Devices) == 0:
		return "no GPU: the driver reports none"
	case older(strings.TrimPrefix(g.Driver.Version, "CUDA "), leastCUDA):
		return fmt.Sprintf("too old: the driver supports %s, CUDA %s is needed: update NVIDIA's driver", g.Driver.Version, dotted(leastCUDA))
	}
	visible := launch.FindVisible([]string{})
	if g.Visible != "" {
		visible = launch.FindVisible([]string{"CUDA_VISIBLE_DEVICES=" + g.Visible})
	}
	if len(g.Devices) == 1 && len(visible.Names) == 1 {
		return "" // the launcher may show each rank a different one
	}
	of := map[int]int{}
	for local := range env.LocalSize {
		gpu := launch.Env{LocalRank: local}.GPU(len(g.Devices))
		if other, used := of[gpu]; used {
			return fmt.Sprintf("GPU used twice: local ranks %d and %d would both have GPU %d, %s: start no more ranks than GPUs, or make a different GPU visible to each rank",
				other, local, gpu, g.Devices[gpu].UUID)
		}
		of[gpu] = local
	}
	return ""
}

// apart returns the first pair of GPUs without peer access, among those of the ranks of env, or
// among all if the ranks use fewer than two.
func apart(g GPUs, env launch.Env) string {
	if len(g.Devices) == 0 {
		return ""
	}
	used := map[int]bool{}
	for local := range env.LocalSize {
		used[launch.Env{LocalRank: local}.GPU(len(g.Devices))] = true
	}
	for i, row := range g.Peers {
		for j, yes := range row {
			if !yes && i < len(g.Devices) && j < len(g.Devices) && (len(used) < 2 || used[i] && used[j]) {
				return fmt.Sprintf("peer access is missing: GPU %d (%s) cannot address the memory of GPU %d (%s)", i, g.Devices[i].UUID, j, g.Devices[j].UUID)
			}
		}
	}
	return ""
}

// judgeLibrary returns why a library cannot be used, or notes on a usable one.
func judgeLibrary(all []Library, name string, least []int) (why string, notes []string) {
	var found []Library
	for _, l := range all {
		if l.Name == name && l.Path != "" {
			found = append(found, l)
		}
	}
	chosen := slices.IndexFunc(found, func(l Library) bool { return l.Chosen })
	switch {
	case len(found) == 0:
		return fmt.Sprintf("missing: %s was not found: install it, or set gpu.%s to its path", display(name), name), nil
	case chosen < 0:
		return fmt.Sprintf("broken: %s: %s", found[0].Path, found[0].Problem), nil
	case older(found[chosen].Version, least):
		return fmt.Sprintf("too old: %s is %s %s, but %s or later is needed", found[chosen].Path, display(name), found[chosen].Version, dotted(least)), nil
	}
	for _, note := range found[chosen].Notes {
		if strings.HasPrefix(note, cannotStart) {
			return fmt.Sprintf("broken: %s: %s", found[chosen].Path, note), nil
		}
	}
	for i, l := range found {
		if i != chosen && l.Usable && l.Version != found[chosen].Version && name != "nvrtc" {
			notes = append(notes, fmt.Sprintf("two versions: %s, %s exists as well; a process must not load both: set gpu.%s if another library loads it",
				l.Version, l.Path, name))
		}
	}
	return "", notes
}

// tooNew returns why no found NVRTC is usable: the driver cannot run the output of a later CUDA
// version.
func tooNew(all []Library, g GPUs) string {
	newer := ""
	for _, l := range all {
		switch {
		case l.Name != "nvrtc" || !l.Usable:
		case runsOn(l, g):
			if l.Chosen {
				return ""
			}
		case newer == "" || l.Chosen:
			newer = fmt.Sprintf("too new: %s is NVRTC %s, but the driver supports %s: install an NVRTC of that version, or update NVIDIA's driver", l.Path, l.Version, g.Driver.Version)
		}
	}
	return newer
}

// runsOn reports whether the driver supports the CUDA version of l; true if either is unknown.
func runsOn(l Library, g GPUs) bool {
	cuda, of := majorOf(strings.TrimPrefix(g.Driver.Version, "CUDA ")), majorOf(l.Version)
	return cuda == 0 || of <= cuda
}

// majorOf returns the first number of a version; 0 if there is none.
func majorOf(version string) int {
	text, _, _ := strings.Cut(version, ".")
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0
	}
	return n
}

// chooseNVRTC marks the program's choice among the found files: the newest that the driver
// supports, unless one is configured.
func chooseNVRTC(all []Library, g GPUs) {
	chosen := slices.IndexFunc(all, func(l Library) bool { return l.Name == "nvrtc" && l.Chosen })
	if chosen < 0 || all[chosen].FoundBy == BySetting || runsOn(all[chosen], g) {
		return
	}
	all[chosen].Chosen = false
	for i := range all {
		if l := &all[i]; l.Name == "nvrtc" && l.Usable && runsOn(*l, g) {
			l.Chosen = true
			return
		}
	}
}

// ready describes the chosen file of a library.
func ready(all []Library, name string) string {
	for _, l := range all {
		if l.Name == name && l.Chosen {
			return fmt.Sprintf("%s %s, %s", display(name), l.Version, l.Path)
		}
	}
	return ""
}

// display returns the usual spelling of a product's name.
func display(name string) string { return strings.ToUpper(name) }

// older reports whether a version such as "2.28.3" is below least; false for a version that cannot
// be parsed.
func older(version string, least []int) bool {
	for i, text := range strings.Split(version, ".") {
		n, err := strconv.Atoi(text)
		if err != nil || i >= len(least) {
			return false
		}
		if n != least[i] {
			return n < least[i]
		}
	}
	return false
}

// dotted formats a version.
func dotted(v []int) string {
	parts := make([]string, len(v))
	for i, n := range v {
		parts[i] = strconv.Itoa(n)
	}
	return strings.Join(parts, ".")
}

// Table is the table by which backend cuda chooses engines.
type Table struct {
	File    string   `json:"file"`    // "" for the built-in one
	Problem string   `json:"problem"` // why it cannot be used
	Machine string   `json:"machine"` // the measured GPU; "" for any
	Fits    bool     `json:"fits"`    // the GPUs here are of that kind, so its rows apply
	Rows    int      `json:"rows"`
	Hash    string   `json:"hash"`
	Lines   []string `json:"lines"` // its content in words
}

// tableFor returns the table for the GPUs of this machine.
func tableFor(o Options, g GPUs) (t Table) {
	machine := ""
	if len(g.Devices) > 0 {
		machine = g.Devices[0].Name
	}
	if o.Table != nil {
		t = o.Table(machine)
	}
	t.judge(g)
	return t
}

// judge sets whether t fits the GPUs of this machine.
func (t *Table) judge(g GPUs) {
	t.Fits = t.Problem == ""
	for _, d := range g.Devices {
		t.Fits = t.Fits && (t.Machine == "" || t.Machine == d.Name)
	}
	if t.Lines == nil {
		t.Lines = []string{}
	}
}

// adviseTable returns advice about a table that does not fit, if there are GPUs.
func adviseTable(rep Report) []string {
	if len(rep.GPUs.Devices) == 0 {
		return nil
	}
	advice := when(rep.Table.Problem != "", "the table of engines cannot be used (%s): write another with symgrad tune, or leave comm.tune empty", rep.Table.Problem)
	return append(advice, when(rep.Table.Problem == "" && (!rep.Table.Fits || rep.Table.Rows == 0) && len(rep.GPUs.Devices) > 1,
		"nothing was measured on this kind of GPU (%s): symgrad tune -n %d --out tune.json, then comm.tune=tune.json", rep.GPUs.Devices[0].Name, len(rep.GPUs.Devices))...)
}
