package lint

import (
	"path"
	"slices"
	"strings"
)

// layer lists the allowed imports, within this module, of the packages in one folder and the
// folders below it without a line of their own.
type layer struct {
	folder string
	may    []string // folders; "*" is all
	why    string
}

// layers lists the import directions, leaves first.
var layers = []layer{
	{"tensor", nil, "all packages use typed memory"},
	{"internal/dl", nil, "loading libraries is independent of training"},
	{"internal/dl/dltest", []string{"internal/dl"}, "tests make libraries in one place"},
	{"internal/invariants", nil, "every package may check itself"},
	{"internal/host/asym", nil, "every package may use a store and a lock"},
	{"internal/host/ticks", nil, "every package may use a clock"},
	{"internal/along", nil, "package dist sets its function, and the executor of GPU programs calls it"},
	{"internal/long", nil, "tests of every package have one switch"},
	{"internal/build", nil, "every program may print the source it was built from"},
	{"internal/host/cores", nil, "processors are independent of ranks"},
	{"internal/tool/cli", nil, "flags and wrapped text are independent of training"},
	{"internal/tool/cli/clitest", nil, "tests make terminals in one place"},
	{"internal/net/hosttest", nil, "hosts of tests have no ranks: it starts any program"},
	{"internal/net/faults", []string{"*"}, "its tests run whole jobs"},
	{"internal/trace", nil, "a trace has only times and names"},
	{"internal/foreign", nil, "one package opens files of other programs"},
	{"internal/tool/lint", nil, "rules read source text, not packages"},
	{"internal/host/cgroup", nil, "limits of a container are read by launchers and probes"},
	{"internal/tool/pins", nil, "it pins foreign modules"},
	{"config", []string{"internal/foreign"}, "settings are plain values; the packages that use them read them"},
	{"symmetric", []string{"tensor"}, "the heap's contract holds for every backend"},
	{"dist", []string{"symmetric", "tensor", "internal/along", "internal/host/asym", "internal/host/ticks"}, "the contract of communication; backends implement it, and it imports none"},
	{"dist/launch", []string{"dist", "internal/host/cores", "internal/host/cgroup"}, "it finds rank and peers, before a backend is chosen"},
	{"internal/host/blas", []string{"internal/dl"}, "programs without ranks use a BLAS too"},
	{"internal/host/reduce", []string{"dist", "tensor"}, "all host backends share this arithmetic"},
	{"internal/host/hostheap", []string{"dist", "symmetric", "tensor"}, "all host backends share this one-sided access"},
	{"internal/host/shm", []string{"dist", "symmetric", "tensor", "internal/host/hostheap", "internal/host/reduce", "internal/host/asym", "internal/host/ticks"}, "backends never import each other"},
	{"internal/net/wire", []string{"internal/invariants"}, "bytes between processes have no ranks of a group and no types"},
	{"internal/net/wire/wiretest", []string{"internal/net/wire"}, "the suite tests wires, so it shares no code with them"},
	{"internal/net/wire/fake", []string{"internal/net/wire", "internal/net/wire/wiretest"}, "wires never import each other"},
	{
		"internal/net/farheap",
		[]string{"dist", "symmetric", "tensor", "internal/host/hostheap", "internal/net/wire"},
		"it needs a wire and a heap of each host, of any kind",
	},
	{"internal/net/hostcost", nil, "formulas; hosts choose by them"},
	{"internal/net/hostsim", []string{"internal/net/hostcost"}, "it simulates the algorithms of internal/net/hosts and shares no code with them"},
	{"internal/net/ucx", []string{"internal/net/wire", "internal/net/wire/wiretest", "internal/dl"}, "wires never import each other"},
	{"internal/net/mpi", []string{"internal/net/wire", "internal/dl", "internal/net/wire/wiretest"}, "wires never import each other"},
	{"internal/sim", []string{"dist", "symmetric", "tensor", "internal/host/hostheap", "internal/host/reduce"}, "backends never import each other"},
	{
		"internal/net/hosts",
		[]string{"dist", "symmetric", "tensor", "internal/net/farheap", "internal/host/hostheap", "internal/host/reduce", "internal/sim", "internal/net/wire", "internal/net/wire/fake"},
		"it joins a transport of each host by a wire; only its tests know one of each",
	},
	{
		"internal/conformance",
		[]string{"dist", "symmetric", "tensor"},
		"the suite tests backends, so it shares no code with them",
	},
	{"internal/gpu/cuda", []string{"tensor", "internal/dl", "internal/foreign"}, "a driver has devices, not ranks"},
	{"internal/gpu/cuda/cudatest", []string{"internal/gpu/cuda", "internal/dl"}, "one package finds GPUs for tests"},
	{"internal/gpu", []string{"dist", "symmetric", "tensor", "internal/host/asym", "internal/gpu/cuda", "internal/host/hostheap"}, "one transport for groups of GPUs, for all engines"},
	{
		"internal/gpu/gputest",
		[]string{"dist", "dist/launch", "internal/gpu/cuda", "internal/dl", "internal/gpu", "internal/host/shm"},
		"ranks of tests are processes, which meet over a host group",
	},
	{"internal/gpu/nccl", []string{"dist", "symmetric", "tensor", "internal/gpu/cuda", "internal/dl", "internal/gpu"}, "engines never import each other"},
	{"internal/gpu/nvshmem", []string{"dist", "symmetric", "tensor", "internal/gpu/cuda", "internal/dl", "internal/gpu"}, "engines never import each other"},
	{"internal/gpu/direct", []string{"dist", "symmetric", "tensor", "internal/gpu/cuda", "internal/gpu"}, "engines never import each other"},
	{"kernel", []string{"dist", "symmetric", "tensor", "internal/gpu/cuda", "internal/gpu"}, "users' kernels use regions and streams"},
	{"culink", []string{"dist", "symmetric", "tensor", "internal/gpu/cuda", "internal/gpu"}, "it connects other CUDA code with groups"},
	{"internal/tool/drawing", nil, "styles of plots, whatever they show"},
	{"internal/tool/perf", []string{"dist", "symmetric", "tensor", "internal/host/cores", "internal/tool/drawing"}, "it measures a group of any backend"},
	{
		"dist/backend",
		[]string{
			"dist", "dist/launch", "internal/host/shm", "internal/net/hosts", "internal/net/mpi", "internal/net/ucx", "internal/net/wire", "internal/sim", "internal/dl", "internal/gpu/cuda", "internal/gpu", "internal/gpu/nccl",
			"internal/gpu/nvshmem", "internal/gpu/direct", "internal/foreign",
		},
		"the only package that imports the backends, and it needs nothing else",
	},
	{
		"internal/tool/probe",
		[]string{"dist", "dist/launch", "dist/backend", "tensor", "internal/host/blas", "internal/host/cgroup", "internal/dl", "internal/host/shm"},
		"it probes the machine; training does not need it",
	},
	{"ops", []string{"dist", "tensor"}, "graph ops use a group, not a backend"},
	{"internal/nnop", []string{"dist"}, "ops of layers run alone; compile/lower knows them, and package nn makes them"},
	{"nn", []string{"dist", "internal/nnop"}, "layers are nodes of any graph, for any machine"},
	{"optim", []string{"dist", "tensor", "ops"}, "an update uses memory and at most a group; ops reads graphs"},
	{"checkpoint", []string{"tensor", "internal/foreign"}, "it stores tensors and runs; the program decides their owners and purpose"},
	{"metrics", []string{"dist", "internal/foreign"}, "records are numbers of any program; dist has the errors"},
	{"internal/tool/curves", []string{"metrics", "internal/tool/drawing"}, "it draws records of any program"},
	{"data", []string{"dist", "internal/foreign"}, "samples and their order are independent of graphs; dist has the errors"},
	{"data/bpe", []string{"dist"}, "programs that train on tokens need no vocabulary of text"},
	{"nn/transformer", []string{"checkpoint", "dist", "internal/foreign", "nn", "tensor"}, "a model is a graph with weights in files; programs choose data and machine"},
	{"internal/drive", []string{"dist", "tensor"}, "dist/ddp implements it for machines, which it does not import"},
	{"dist/ddp/compress", []string{"dist", "tensor", "internal/host/reduce"}, "a codec gets buckets as values; ddp sums its messages"},
	{
		"dist/ddp",
		[]string{"dist", "dist/ddp/compress", "symmetric", "tensor", "ops", "optim", "internal/drive", "internal/host/reduce"},
		"training uses groups; the program chooses the backend",
	},
	{"internal/compile/program", []string{"dist", "tensor"}, "a compiled program is data; it is the only link between front and back halves"},
	{"internal/compile/program/oracle", []string{"dist", "tensor", "internal/compile/program"}, "it runs programs in plain loops, for comparison with back halves"},
	{"internal/compile/program/draft", []string{"tensor", "internal/compile/program"}, "it builds programs, from any source"},
	{"internal/compile/update", []string{"tensor", "optim", "internal/compile/program", "internal/compile/program/draft"}, "an update is steps on weights and gradients, from any source"},
	{"internal/compile/cudagen", []string{"tensor", "internal/compile/program"}, "it makes kernel text from steps, without a device"},
	{"internal/gpu/cublas", []string{"internal/gpu/cuda", "internal/dl"}, "a binding uses its library and devices"},
	{"internal/gpu/cudnn", []string{"internal/gpu/cuda", "internal/dl"}, "a binding uses its library and devices"},
	{"internal/compile/hostexec", []string{"dist", "tensor", "internal/host/blas", "internal/compile/program"}, "a back half runs programs, not graphs"},
	{
		"internal/compile/cudaexec",
		[]string{
			"dist", "tensor", "internal/along", "internal/gpu/cublas", "internal/gpu/cuda", "internal/compile/cudagen", "internal/gpu/cudnn", "internal/dl",
			"internal/gpu", "internal/compile/program",
		},
		"a back half runs programs, not graphs",
	},
	{"internal/compile/values", []string{"tensor"}, "elements of Gorgonia's values are memory, without a graph"},
	{
		"internal/compile/lower",
		[]string{
			"dist", "dist/ddp", "ops", "optim", "tensor", "internal/drive", "internal/nnop", "internal/compile/program", "internal/compile/program/draft", "internal/compile/update", "internal/compile/values",
		},
		"it turns graphs into programs, without a device and without a back half",
	},
	{
		"machine",
		[]string{
			"dist", "dist/launch", "symmetric", "tensor", "ops", "optim", "dist/ddp", "internal/host/blas", "internal/gpu/cublas", "internal/gpu/cuda",
			"internal/compile/cudaexec", "internal/gpu/cudnn", "internal/dl", "internal/drive", "internal/compile/hostexec", "internal/compile/lower", "internal/compile/program",
			"internal/compile/values",
		},
		"it compiles graphs to programs and passes them to a back half",
	},
	{
		"internal/settings",
		[]string{
			"config", "dist/backend", "dist/ddp", "dist/ddp/compress", "dist/launch", "internal/host/blas", "internal/tool/cli", "machine", "optim", "tensor",
		},
		"it connects settings with packages, for all programs",
	},
	{
		"internal/tool/plan",
		[]string{"config", "dist", "dist/ddp", "dist/ddp/compress", "internal/net/hostcost", "internal/compile/program", "machine", "optim", "tensor"},
		"it predicts the cost of a run from its graph, before ranks exist",
	},
	{"train/internal/exchange", []string{"dist", "symmetric", "tensor", "internal/tool/cli"}, "ranks exchange values of any part of a training"},
	{"train/internal/output", []string{"config", "internal/tool/cli", "train/internal/exchange"}, "it writes files of any content"},
	{"train/internal/measure", []string{"dist", "tensor", "train/internal/exchange"}, "it sums numbers over ranks"},
	{
		"train/internal/save",
		[]string{
			"checkpoint", "config", "data", "dist", "dist/ddp", "dist/ddp/compress", "internal/tool/cli", "ops", "optim", "tensor",
			"train/internal/exchange", "train/internal/measure",
		},
		"it stores a training of any program",
	},
	{
		"train/internal/report",
		[]string{
			"config", "dist", "dist/backend", "dist/ddp", "dist/launch", "internal/host/blas", "internal/build", "internal/tool/cli", "internal/gpu/cublas",
			"internal/gpu/cuda", "internal/gpu/cudnn", "internal/dl", "internal/gpu/nccl", "internal/tool/plan", "internal/settings", "machine", "optim",
			"train/internal/measure", "train/internal/output", "train/internal/save",
		},
		"it prints facts of any part of a run",
	},
	{
		"train/internal/timeline",
		[]string{"dist", "dist/ddp", "internal/trace", "train/internal/exchange", "train/internal/output"},
		"it records times; the run chooses the steps",
	},
	{
		"train",
		[]string{
			"config", "data", "dist", "dist/launch", "dist/backend", "tensor", "ops", "optim", "checkpoint", "dist/ddp", "machine", "internal/host/blas",
			"internal/tool/cli", "internal/tool/plan", "internal/settings", "metrics", "train/internal/exchange", "train/internal/measure",
			"train/internal/output", "train/internal/report", "train/internal/save", "train/internal/timeline",
		},
		"it runs the training of a program, of any problem",
	},
	{"machine/machinetest", nil, "models and the oracle share no code with the code they test"},
	{"bench", nil, "a comparison shares no code with its subjects"},
	{"cmd", []string{"*"}, "programs use all packages"},
	{"examples", []string{"*"}, "programs use all packages"},
}

// everywhere lists the packages that every package may import.
var everywhere = []string{"internal/invariants"}

// inTests lists additional packages that tests may import; the tests of all packages for "".
var inTests = map[string][]string{
	"": {
		"tensor", "internal/long", "internal/sim", "internal/conformance", "internal/gpu/cuda/cudatest",
		"internal/dl/dltest", "internal/net/hosttest",
	},
	"dist/ddp":                  {"internal/host/shm", "data"},                                                                      // sums on both host backends; an example samples
	"bench/hosts":               {"dist", "internal/net/hostcost", "internal/host/reduce", "internal/net/ucx", "internal/net/wire"}, // predictions are judged too
	"internal/net/farheap":      {"internal/net/wire/fake"},                                                                         // hosts in one process
	"internal/net/hosts":        {"internal/net/hostcost", "internal/host/shm"},                                                     // it predicts their times; one is the transport of a host
	"internal/compile/hostexec": {"internal/compile/program/oracle"},
	"machine":                   {"internal/compile/program/oracle", "internal/host/shm", "machine/machinetest", "dist/backend", "dist/ddp/compress"},
	"internal/compile/lower":    {"internal/compile/program/oracle", "internal/compile/cudaexec", "internal/compile/cudagen", "machine/machinetest", "nn"}, // its programs run, and have kernels
	"internal/compile/cudaexec": {"internal/compile/program/oracle"},
	"internal/compile/update":   {"internal/compile/program/oracle", "internal/compile/values"},
	"internal/compile/cudagen":  {"internal/compile/program/oracle", "internal/gpu/cuda"}, // runs its kernels
	"nn":                        {"machine", "ops", "dist/ddp"},                           // layers are compared on both machines, and over ranks
	"nn/transformer":            {"machine"},                                              // its graphs run on both machines
	"data":                      {"data/bpe"},                                             // an example encodes a text
	"dist/launch":               {"internal/tool/cli/clitest"},
	"internal/host/shm":         {"dist/launch"},                                  // its ranks are processes, started there
	"internal/gpu/direct":       {"internal/gpu/gputest", "internal/host/reduce"}, // the same, and sums are compared with the host's
	"internal/gpu/nvshmem":      {"internal/gpu/gputest"},
	"internal/gpu":              {"internal/net/hosts", "internal/net/wire/fake"}, // ledgers of several hosts

	"train":                   {"dist/ddp/compress", "examples/ddp/model"}, // a script compresses; a small model
	"train/internal/exchange": {"dist/backend"},                            // ranks of tests
	"train/internal/measure":  {"dist/backend"},
	"train/internal/timeline": {"dist/backend"},
}

var layersRule = Rule{
	Name: "layers",
	Why:  "import directions are a DAG, leaves first: see the table in internal/tool/lint/layers.go",
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

// layerOf returns the line for a folder: its own, or that of the nearest parent folder.
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
