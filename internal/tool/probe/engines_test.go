package probe

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/symgrad/symgrad/dist/backend"
	"github.com/symgrad/symgrad/dist/launch"
)

// fourGPUs is a machine on which every way works.
func fourGPUs() Report {
	r := content()
	r.GPUs.Devices, r.GPUs.Peers = nil, nil
	for i := range 4 {
		r.GPUs.Devices = append(r.GPUs.Devices, GPU{Index: i, Name: "NVIDIA H200", UUID: "GPU-" + string(rune('a'+i)), ComputeMode: "default"})
		r.GPUs.Peers = append(r.GPUs.Peers, []bool{true, true, true, true})
	}
	return r
}

// Each reason for which a way is not there is a clear line, and takes no other way with it.
func TestEnginesSayWhyTheyAreNotThere(t *testing.T) {
	setLib := func(name string, change func(l *Library)) func(*Report) {
		return func(r *Report) {
			for i := range r.GPULibraries {
				if r.GPULibraries[i].Name == name {
					change(&r.GPULibraries[i])
				}
			}
		}
	}
	job := func(n int) launch.Env { return launch.Env{Size: n, LocalSize: n} }
	all := backend.EngineNames(backend.CUDA)
	own := all[:len(all)-4]
	for _, tt := range []struct {
		name   string
		env    launch.Env
		change func(r *Report)
		gone   []string // engines that are not usable
		why    string
	}{
		{"all there", job(4), func(*Report) {}, nil, ""},
		{"no driver", job(2), func(r *Report) { r.GPUs = GPUs{Driver: Library{Problem: "not found: no libcuda.so.1"}} }, all, "no GPU: not found: no libcuda.so.1"},
		{"broken driver", job(2), func(r *Report) { r.GPUs = GPUs{Driver: Library{Path: "/lib/libcuda.so.1", Problem: "cuInit: 999"}} }, all, "no GPU: /lib/libcuda.so.1: cuInit: 999"},
		{"no device", job(2), func(r *Report) { r.GPUs.Devices = nil }, all, "no GPU: the driver reports none"},
		{"old driver", job(2), func(r *Report) { r.GPUs.Driver.Version = "CUDA 11.8" }, all, "too old: the driver supports CUDA 11.8, CUDA 12.0 is needed"},
		{"more ranks than GPUs", job(5), func(*Report) {}, all, "GPU used twice: local ranks 0 and 4 would both have GPU 0, GPU-a"},
		{"one GPU for two ranks", job(2), func(r *Report) { r.GPUs.Devices = r.GPUs.Devices[:1] }, all, "GPU used twice: local ranks 0 and 1 would both have GPU 0, GPU-a"},
		{"one GPU shown to each", job(2), func(r *Report) { r.GPUs.Devices, r.GPUs.Visible = r.GPUs.Devices[:1], "3" }, nil, ""},
		{"peer access", job(4), func(r *Report) { r.GPUs.Peers[1][3] = false }, append(slices.Clone(own), "nccl-window", "nvshmem"), "peer access is missing: GPU 1 (GPU-b) cannot address the memory of GPU 3 (GPU-d)"},
		{"peer access between GPUs of others", job(3), func(r *Report) { r.GPUs.Peers[1][3] = false }, nil, ""},
		{"peer access and no job", job(1), func(r *Report) { r.GPUs.Peers[1][3] = false }, append(slices.Clone(own), "nccl-window", "nvshmem"), "peer access is missing"},
		{"no NCCL", job(4), setLib("nccl", func(l *Library) { l.Path, l.Chosen = "", false }), []string{"nccl", "nccl-window", "hier"}, "missing: NCCL was not found: install it, or set gpu.nccl to its path"},
		{"old NCCL", job(4), setLib("nccl", func(l *Library) { l.Version = "2.12.12" }), []string{"nccl", "nccl-window", "hier"}, "too old: /lib/nccl is NCCL 2.12.12, but 2."},
		{"NCCL without windows", job(4), setLib("nccl", func(l *Library) { l.Version = "2.26.5" }), []string{"nccl-window"}, "too old: /lib/nccl is NCCL 2.26.5, but 2.27.3 or later is needed"},
		{"broken NVSHMEM", job(4), setLib("nvshmem", func(l *Library) { l.Chosen, l.Usable, l.Problem = false, false, "no libnvidia-ml.so.1" }), []string{"nvshmem"}, "broken: /lib/nvshmem: no libnvidia-ml.so.1"},
		{
			"NVSHMEM without its plugin", job(4), setLib("nvshmem", func(l *Library) { l.Notes = []string{"OpenSHMEM specification 1.3", cannotStart + ": no plugin"} }),
			[]string{"nvshmem"},
			"broken: /lib/nvshmem: NVSHMEM cannot start: no plugin",
		},
		{"old NVSHMEM", job(4), setLib("nvshmem", func(l *Library) { l.Version = "2.11.0" }), []string{"nvshmem"}, "too old: /lib/nvshmem is NVSHMEM 2.11.0, but 3.0.6 or later is needed"},
		{"new compiler", job(4), func(r *Report) { r.GPUs.Driver.Version = "CUDA 12.9" }, own, "too new: /lib/nvrtc is NVRTC 13.0, but the driver supports CUDA 12.9"},
		{"no compiler", job(4), setLib("nvrtc", func(l *Library) { l.Path, l.Chosen = "", false }), own, "missing: NVRTC was not found"},
	} {
		r := fourGPUs()
		tt.change(&r)
		engines := JudgeEngines(r, tt.env)
		var names []string
		for _, e := range engines {
			names = append(names, e.Name)
			gone := slices.Contains(tt.gone, e.Name)
			if e.Usable == gone || e.Why == "" || e.Notes == nil || gone && !strings.Contains(e.Why, tt.why) {
				t.Errorf("%s: %+v, want usable %v, %q", tt.name, e, !gone, tt.why)
			}
		}
		if !slices.Equal(names, all) {
			t.Errorf("%s: engines %q, want %q", tt.name, names, all)
		}
	}
}

// The choice is that of internal/gpu/cuda, which starts with the driver's own CUDA version; a
// configured file is always chosen.
func TestChoosesTheNVRTCThatTheDriverRuns(t *testing.T) {
	for _, tt := range []struct {
		driver, foundBy, want string // want is the path that is chosen; "" for none
		usable                bool   // engines
	}{
		{"CUDA 13.0", ByLoader, "/lib/nvrtc", true},
		{"CUDA 12.4", ByLoader, "/12", true},
		{"CUDA 11.8", ByLoader, "", false},
		{"CUDA 12.4", BySetting, "/lib/nvrtc", false},
		{"", ByLoader, "/lib/nvrtc", true},
	} {
		r := fourGPUs()
		r.GPUs.Driver.Version = tt.driver
		for i := range r.GPULibraries {
			if r.GPULibraries[i].Name == "nvrtc" {
				r.GPULibraries[i].FoundBy = tt.foundBy
			}
		}
		r.GPULibraries = append(r.GPULibraries,
			Library{Name: "nvrtc", Path: "/broken", Version: "12.9"}, Library{Name: "nvrtc", Path: "/12", Version: "12.4", Usable: true})
		chooseNVRTC(r.GPULibraries, r.GPUs)
		got := ""
		for _, l := range r.GPULibraries {
			if l.Name == "nvrtc" && l.Chosen {
				got += l.Path
			}
		}
		usable := tooNew(r.GPULibraries, r.GPUs) == ""
		if got != tt.want || usable != tt.usable {
			t.Errorf("driver of %q, NVRTC by %s: chosen %q, usable %v; want %q, %v", tt.driver, tt.foundBy, got, usable, tt.want, tt.usable)
		}
	}
}

func TestEnginesNoteTwoVersions(t *testing.T) {
	r := fourGPUs()
	r.GPULibraries = append(r.GPULibraries, Library{Name: "nccl", Path: "/other", Version: "2.27.7", Usable: true})
	for i := range r.GPULibraries {
		if r.GPULibraries[i].Name == "nvshmem" {
			r.GPULibraries[i].Notes = []string{"OpenSHMEM specification 1.3"}
		}
	}
	notes := map[string]string{}
	for _, e := range JudgeEngines(r, launch.Env{Size: 2, LocalSize: 2}) {
		notes[e.Name] = strings.Join(e.Notes, "; ")
	}
	if want := "two versions: 2.27.7, /other exists as well; a process must not load both: set gpu.nccl if another library loads it"; notes["nccl"] != want {
		t.Errorf("nccl: %q", notes["nccl"])
	}
	if notes["nvshmem"] != "" || notes["oneshot"] != "" {
		t.Errorf("%v", notes)
	}
}

// A backend between GPUs can be used when one of its ways can, and is chosen when settings mean it.
func TestBackendsFollowEnginesAndSettings(t *testing.T) {
	r := fourGPUs()
	for i := range r.GPULibraries {
		if r.GPULibraries[i].Name == "nvshmem" {
			r.GPULibraries[i].Path, r.GPULibraries[i].Chosen = "", false
		}
	}
	env := launch.Env{Size: 4, LocalSize: 4}
	for _, tt := range []struct {
		cfg    backend.Config
		chosen string
	}{
		{backend.Config{}, "shm"},
		{backend.Config{Device: backend.CUDADevice}, "cuda"},
		{backend.Config{Backend: backend.NCCL}, "nccl"},
		{backend.Config{Backend: backend.NVSHMEM}, ""},
	} {
		chosen := ""
		for _, b := range ListBackends(tt.cfg, env, JudgeEngines(r, env)) {
			if b.Chosen {
				chosen += b.Name
			}
			if b.Name == backend.UCX { // by this machine's files
				continue
			}
			if want := b.Name != "nvshmem" && b.Name != "sim" && b.Name != "mpi"; b.Usable != want || b.Why == "" {
				t.Errorf("%s: %+v, want usable %v", tt.chosen, b, want)
			}
		}
		if chosen != tt.chosen {
			t.Errorf("%+v: chosen %q, want %q", tt.cfg, chosen, tt.chosen)
		}
	}
}

func TestTableFitsItsOwnMachine(t *testing.T) {
	gpus := fourGPUs().GPUs
	for _, tt := range []struct {
		table Table
		fits  bool
	}{
		{Table{Machine: "NVIDIA H200"}, true},
		{Table{}, true},
		{Table{Machine: "NVIDIA L4"}, false},
		{Table{Machine: "NVIDIA H200", Problem: "no such file"}, false},
	} {
		tt.table.judge(gpus)
		if tt.table.Fits != tt.fits || tt.table.Lines == nil {
			t.Errorf("%+v, want fits %v", tt.table, tt.fits)
		}
	}
}

func TestVersionsAreComparedByNumbers(t *testing.T) {
	for version, want := range map[string]bool{"2.9.1": true, "2.14.3": false, "2.14.2": true, "2.14": false, "3": false, "": false, "x": false, "13.0": false} {
		if got := older(version, leastNCCL); got != want {
			t.Errorf("%q is older than 2.14.3: %v", version, got)
		}
	}
}

// More ranks than GPUs are seen before any is started, where settings say how many a program starts
// itself.
func TestRanksThatAProgramStartsItselfAreTheJob(t *testing.T) {
	r := fourGPUs()
	alone := launch.Env{Size: 1, LocalSize: 1, Launcher: launch.None}
	for ranks, want := range map[int]string{0: "", 4: "", 5: "GPU used twice: local ranks 0 and 4"} {
		if why := noGPU(r.GPUs, ownRanks(alone, ranks)); !strings.HasPrefix(why, want) || want == "" && why != "" {
			t.Errorf("%d ranks: %q, want %q", ranks, why, want)
		}
	}
	launched := launch.Env{Size: 2, LocalSize: 2, Launcher: "torchrun"}
	if got := ownRanks(launched, 5); got.LocalSize != 2 {
		t.Errorf("a launcher has started 2 ranks, and the job has %d", got.LocalSize)
	}
}

// Engines between hosts follow the launcher and name the package of a missing library.
func TestHostEnginesFollowTheLauncher(t *testing.T) {
	openMPI := Library{Name: "openmpi", Version: "Open MPI 4.1.4 (MPI 3.1)", Path: "/lib/libmpi.so.40", Usable: true}
	mpich := Library{Name: "mpich", Version: "MPICH 4.0.2 (MPI 3.1)", Path: "/lib/libmpich.so.12", Usable: true}
	ucx := Library{Name: "ucx", Version: "UCX 1.13.1", Path: "/lib/libucp.so.0", Usable: true}
	broken := Library{Name: "ucx", Path: "/lib/libucp.so.0", Problem: "the process that loaded it died"}
	for _, tt := range []struct {
		mpi      []Library
		ucx      Library
		launcher string
		want     string
	}{
		{
			[]Library{openMPI, mpich},
			ucx, launch.None,
			"mpi true Open MPI 4.1.4 (MPI 3.1), /lib/libmpi.so.40; MPICH 4.0.2 (MPI 3.1), /lib/libmpich.so.12. ucx true UCX 1.13.1, /lib/libucp.so.0. ",
		},
		{
			[]Library{openMPI, {Name: "mpich"}},
			broken, launch.MPICH,
			"mpi false not found: apt-get install mpich. ucx false not usable: /lib/libucp.so.0: the process that loaded it died. ",
		},
		{
			[]Library{{Name: "openmpi"}, mpich},
			Library{Name: "ucx"},
			launch.OpenMPI,
			"mpi false not found: apt-get install openmpi-bin. ucx false not found: apt-get install libucx0. ",
		},
		{nil, ucx, launch.Torchrun, "mpi false not found: apt-get install openmpi-bin, or mpich. ucx true UCX 1.13.1, /lib/libucp.so.0. "},
	} {
		got := ""
		for _, e := range JudgeHostEngines(Report{MPI: tt.mpi, UCX: []Library{tt.ucx}}, launch.Env{Launcher: tt.launcher}) {
			got += fmt.Sprintf("%s %t %s. ", e.Name, e.Usable, e.Why)
		}
		if got != tt.want {
			t.Errorf("%s:\n%s\nwant\n%s", tt.launcher, got, tt.want)
		}
	}
}
