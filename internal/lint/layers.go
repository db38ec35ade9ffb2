package lint

import (
	"path"
	"slices"
	"strings"
)

// layer is what the packages of one folder, and of those below it that have no line of their own,
// may import of this module.
type layer struct {
	folder string
	may    []string // folders; "*" is all
	why    string
}

// layers is the import directions, leaves first.
var layers = []layer{
	{"tensor", nil, "typed memory is what everything else passes around"},
	{"internal/dl", nil, "libraries and symbols know nothing of training"},
	{"internal/dl/dltest", []string{"internal/dl"}, "tests make libraries in one place"},
	{"internal/invariants", nil, "every package may check itself"},
	{"internal/asym", nil, "a store and a lock serve everyone"},
	{"internal/ticks", nil, "a clock serves everyone"},
	{"internal/long", nil, "tests of every package have one switch"},
	{"internal/build", nil, "every program may tell from which source it was built"},
	{"internal/cores", nil, "processors know nothing of ranks"},
	{"internal/cli", nil, "flags and wrapped text know nothing of training"},
	{"internal/cli/clitest", nil, "tests make terminals in one place"},
	{"internal/trace", nil, "a trace is times and names"},
	{"internal/foreign", nil, "files of others are opened in one way by everyone"},
	{"internal/lint", nil, "rules read source text, not packages"},
	{"internal/cgroup", nil, "the limits of a container concern who starts ranks and who looks at the machine"},
	{"internal/pins", nil, "it pins foreign modules"},
	{"config", []string{"internal/foreign"}, "settings are plain values; those who use them read them"},
	{"symmetric", []string{"tensor"}, "the heap's contract holds for every backend"},
	{"dist", []string{"symmetric", "tensor", "internal/asym", "internal/ticks"}, "the contract of communication; backends implement it and it knows none"},
	{"dist/launch", []string{"dist", "internal/cores", "internal/cgroup"}, "who am I and where are the others; backends come later"},
	{"internal/blas", []string{"internal/dl"}, "a BLAS serves programs that have no ranks as well"},
	{"internal/reduce", []string{"dist", "tensor"}, "arithmetic that all host backends share"},
	{"internal/hostheap", []string{"dist", "symmetric", "tensor"}, "one-sided access that all host backends share"},
	{"internal/shm", []string{"dist", "symmetric", "tensor", "internal/hostheap", "internal/reduce", "internal/asym", "internal/ticks"}, "backends never import each other"},
	{"internal/sim", []string{"dist", "symmetric", "tensor", "internal/hostheap", "internal/reduce"}, "backends never import each other"},
	{
		"internal/conformance",
		[]string{"dist", "symmetric", "tensor"},
		"the suite judges backends: it shares no code with them",
	},
	{"internal/cuda", []string{"tensor", "internal/dl", "internal/foreign"}, "a driver knows devices, not ranks"},
	{"internal/cuda/cudatest", []string{"internal/cuda", "internal/dl"}, "tests ask for GPUs in one place"},
	{"internal/gpu", []string{"dist", "symmetric", "tensor", "internal/asym", "internal/cuda", "internal/hostheap"}, "one transport for groups of GPUs, whatever moves the bytes"},
	{
		"internal/gpu/gputest",
		[]string{"dist", "dist/launch", "internal/cuda", "internal/dl", "internal/gpu", "internal/shm"},
		"ranks of tests are processes, which meet over a group of the host",
	},
	{"internal/nccl", []string{"dist", "symmetric", "tensor", "internal/cuda", "internal/dl", "internal/gpu"}, "engines never import each other"},
	{"internal/nvshmem", []string{"dist", "symmetric", "tensor", "internal/cuda", "internal/dl", "internal/gpu"}, "engines never import each other"},
	{"internal/direct", []string{"dist", "symmetric", "tensor", "internal/cuda", "internal/gpu"}, "engines never import each other"},
	{"kernel", []string{"dist", "symmetric", "tensor", "internal/cuda", "internal/gpu"}, "kernels of users see regions and streams"},
	{"culink", []string{"dist", "symmetric", "tensor", "internal/cuda", "internal/gpu"}, "it joins two worlds"},
	{"internal/perf", []string{"dist", "symmetric", "tensor", "internal/cores"}, "it measures a group, whatever runs underneath"},
	{
		"dist/backend",
		[]string{
			"dist", "dist/launch", "internal/shm", "internal/sim", "internal/dl", "internal/cuda", "internal/gpu", "internal/nccl",
			"internal/nvshmem", "internal/direct", "internal/foreign",
		},
		"the only place that names the backends, and it needs nothing else",
	},
	{
		"internal/probe",
		[]string{"dist", "dist/launch", "dist/backend", "tensor", "internal/blas", "internal/cgroup", "internal/dl", "internal/shm"},
		"it looks at the machine and tries what is there; nothing that trains needs it",
	},
	{"ops", []string{"dist", "tensor"}, "graph ops see a group, not what it runs on"},
	{"optim", []string{"dist", "tensor", "ops"}, "an update sees memory and at most a group; graphs are read in ops"},
	{"checkpoint", []string{"tensor", "internal/foreign"}, "files of tensors and runs of them; who has them and what for is the program's"},
	{
		"dist/ddp",
		[]string{"dist", "symmetric", "tensor", "ops", "optim", "internal/reduce"},
		"training sees groups; the program chooses the backend",
	},
	{"internal/program", []string{"dist", "tensor"}, "a compiled program is data; front and back halves meet there and nowhere else"},
	{"internal/program/oracle", []string{"dist", "tensor", "internal/program"}, "what a program means, in plain loops: back halves are compared with it"},
	{"internal/cudagen", []string{"tensor", "internal/program"}, "kernels are text made from steps; it knows no device"},
	{"internal/cublas", []string{"internal/cuda", "internal/dl"}, "a binding knows its library and devices"},
	{"internal/cudnn", []string{"internal/cuda", "internal/dl"}, "a binding knows its library and devices"},
	{"internal/hostexec", []string{"dist", "tensor", "internal/blas", "internal/program"}, "a back half runs programs; it sees no graph"},
	{
		"internal/cudaexec",
		[]string{
			"dist", "tensor", "internal/cublas", "internal/cuda", "internal/cudagen", "internal/cudnn", "internal/dl", "internal/gpu",
			"internal/program",
		},
		"a back half runs programs; it sees no graph",
	},
	{
		"machine",
		[]string{
			"dist", "dist/launch", "symmetric", "tensor", "ops", "optim", "dist/ddp", "internal/blas", "internal/cublas", "internal/cuda",
			"internal/cudaexec", "internal/cudnn", "internal/dl", "internal/hostexec", "internal/program",
		},
		"it turns graphs into programs and hands them to a back half",
	},
	{"internal/settings", []string{"config", "dist/ddp", "optim", "tensor"}, "settings and packages know nothing of each other; here they meet, for all programs"},
	{
		"internal/plan",
		[]string{"config", "dist", "dist/ddp", "internal/program", "machine", "optim", "tensor"},
		"what a run will take is told from its graph, before there are ranks",
	},
	{"machine/machinetest", nil, "models and the oracle share no code with what they judge"},
	{"bench", nil, "a comparison shares no code with what it judges"},
	{"cmd", []string{"*"}, "programs put the parts together"},
	{"examples", []string{"*"}, "programs put the parts together"},
}

// everywhere is what every package may import.
var everywhere = []string{"internal/invariants"}

// inTests is what tests may import besides, all of them for "": buffers, worlds in one process and
// the suite.
var inTests = map[string][]string{
	"": {
		"tensor", "internal/long", "internal/sim", "internal/conformance", "internal/cuda/cudatest",
		"internal/dl/dltest",
	},
	"dist/ddp":          {"internal/shm"}, // the same sums on both backends of the host
	"internal/hostexec": {"internal/program/oracle"},
	"machine":           {"internal/program/oracle", "internal/shm", "machine/machinetest", "dist/backend"},
	"internal/cudaexec": {"internal/program/oracle"},
	"internal/cudagen":  {"internal/program/oracle", "internal/cuda"}, // its kernels run there
	"dist/launch":       {"internal/cli/clitest"},
	"internal/shm":      {"dist/launch"},                             // its ranks are processes, which meet there
	"internal/direct":   {"internal/gpu/gputest", "internal/reduce"}, // the same, and sums are those of the host
	"internal/nvshmem":  {"internal/gpu/gputest"},
}

var layersRule = Rule{
	Name: "layers",
	Why:  "import directions are a DAG, leaves first: see the table in internal/lint/layers.go",
	Check: func(m *Module) []Finding {
		var found []Finding
		for _, f := range m.Files {
			found = append(found, checkLayers(m.Path, f)...)
		}
		return found
	},
}

func checkLayers(module string, f *File) []Finding {
	var found []Finding
	own, ok := layerOf(f.Folder())
	if !ok {
		return []Finding{f.at(f.AST.Name, "package in folder %s has no line in the table", f.Folder())}
	}
	for _, spec := range f.AST.Imports {
		target, ok := strings.CutPrefix(importPath(spec), module+"/")
		switch {
		case !ok || slices.Contains(own.may, "*") || slices.Contains(own.may, target) || slices.Contains(everywhere, target):
		case f.Test() && (target == f.Folder() || slices.Contains(inTests[""], target) || slices.Contains(inTests[f.Folder()], target)):
		default:
			found = append(found, f.at(spec, "imports %s; %s may import %s, because %s",
				target, own.folder, list(own.may), own.why))
		}
	}
	return found
}

// layerOf is the line for a folder: its own, or that of the nearest folder above.
func layerOf(folder string) (layer, bool) {
	for ; folder != "."; folder = path.Dir(folder) {
		for _, l := range layers {
			if l.folder == folder {
				return l, true
			}
		}
	}
	return layer{}, false
}

func list(names []string) string {
	if len(names) == 0 {
		return "nothing of this module"
	}
	return "only " + strings.Join(names, ", ")
}
