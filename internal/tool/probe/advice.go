package probe

import (
	"fmt"
	"slices"
	"strings"

	"github.com/symgrad/symgrad/internal/host/blas"
)

const (
	mib = 1 << 20
	gib = 1 << 30

	// leastDevShm is enough for NCCL, MPI and PyTorch's loaders; Docker gives 64 MiB.
	leastDevShm = gib
	// leastFiles is enough for a rank of a large job: one socket per peer, and data files.
	leastFiles = 4096
)

// Advise returns remedies and improvements, the most useful first.
func Advise(rep Report) []string {
	advice := []string{}
	for _, rule := range []func(Report) []string{
		adviseWorlds, adviseBLAS, adviseCPU, adviseMemory, adviseDriver, adviseGPULibraries, adviseDuplicates, adviseTable, adviseMPI, adviseLimits,
	} {
		advice = append(advice, rule(rep)...)
	}
	return advice
}

// when returns one piece of advice if condition is true.
func when(condition bool, format string, args ...any) []string {
	if !condition {
		return nil
	}
	return []string{fmt.Sprintf(format, args...)}
}

func adviseWorlds(rep Report) (advice []string) {
	for _, w := range rep.Worlds {
		advice = append(advice, when(!w.OK, "backend %s does not work: %s", w.Backend, w.Problem)...)
	}
	if rep.Launcher.Problem != "" {
		advice = append(advice, "unset or correct the launcher's variables: "+rep.Launcher.Problem)
	}
	return append(advice, when(!rep.SharedMemory.Memfd.Usable,
		"shared memory cannot be created (%s): a sandbox or seccomp profile may forbid memfd_create", rep.SharedMemory.Memfd.Problem)...)
}

func adviseBLAS(rep Report) []string {
	if rep.BLAS.Problem != "" {
		return []string{fmt.Sprintf("the configured BLAS cannot be used (%s): set cpu.blas to auto or to another library", rep.BLAS.Problem)}
	}
	if rep.BLAS.Name != "gonum" || rep.BLAS.Off {
		return adviseKernels(rep)
	}
	for _, l := range rep.BLAS.Libraries {
		if l.Path != "" {
			return []string{fmt.Sprintf("matrix products run on gonum: %s is installed but not usable: %s", l.Path, l.Problem)}
		}
	}
	return []string{"matrix products run on gonum: OpenBLAS is several times faster (apt-get install libopenblas0-pthread)"}
}

// adviseKernels reports an OpenBLAS that is older than the processor and does not use its
// extensions.
func adviseKernels(rep Report) []string {
	has := func(extensions ...string) bool {
		return !slices.ContainsFunc(extensions, func(e string) bool { return !slices.Contains(rep.CPU.ISA, e) })
	}
	better := ""
	switch {
	case has("avx512f", "avx512bw", "avx512vl"):
		better = "SkylakeX"
	case has("avx2", "fma"):
		better = "Haswell"
	}
	info := blas.Info{Name: rep.BLAS.Name, Version: rep.BLAS.Version}
	return when(better != "" && info.Outdated(),
		"%s does not know this processor and uses no AVX: set OPENBLAS_CORETYPE=%s in the environment", info, better)
}

func adviseCPU(rep Report) []string {
	c := rep.CPU
	advice := when(c.Quota > 0 && c.Quota < float64(c.Allowed),
		"the control group grants %.4g of %s: more ranks than that wait for each other", c.Quota, plural(c.Allowed, "core"))
	return append(advice, when(c.Allowed < c.Online,
		"the affinity mask allows %d of %s: mpirun sets it, unless it has --bind-to none", c.Allowed, plural(c.Online, "core"))...)
}

func adviseMemory(rep Report) []string {
	m, s := rep.Memory, rep.SharedMemory
	advice := when(m.LimitBytes > 0 && m.UsableBytes < gib,
		"the control group leaves %d MiB of memory: beyond that the job is killed without an error", m.UsableBytes/mib)
	switch {
	case s.DevShm.Problem != "":
		advice = append(advice, fmt.Sprintf("/dev/shm cannot be used (%s): NCCL and MPI need it, backend shm does not", s.DevShm.Problem))
	case s.DevShm.TotalBytes < leastDevShm:
		advice = append(advice, fmt.Sprintf("/dev/shm has %d MiB: NCCL and MPI may need more (docker run --shm-size=8g), backend shm does not", s.DevShm.TotalBytes/mib))
	}
	return advice
}

func adviseDriver(rep Report) []string {
	g := rep.GPUs
	broken := !g.Driver.Usable && (g.Driver.Path != "" || g.Module != "" || len(g.DeviceFiles) > 0)
	advice := when(broken, "the GPU driver does not work: %s", g.Driver.Problem)
	advice = append(advice, when(len(g.Devices) > 1 && !g.AllPeers(),
		"not every GPU can address the memory of every other: some collectives go through the host")...)
	for _, d := range g.Devices {
		advice = append(advice, when(d.ComputeMode != "default",
			"GPU %d is in compute mode %s: one process or none may use it (nvidia-smi -i %[1]d -c 0)", d.Index, d.ComputeMode)...)
	}
	return advice
}

// packages are the PyPI packages of libraries.
var packages = map[string]string{
	"nccl": "nvidia-nccl-cu%s", "nvshmem": "nvidia-nvshmem-cu%s", "cudnn": "nvidia-cudnn-cu%s",
	"cublas": "nvidia-cublas", "nvrtc": "nvidia-cuda-nvrtc", "nvjitlink": "nvidia-nvjitlink", "cudart": "nvidia-cuda-runtime",
}

// adviseGPULibraries returns advice only if there is a GPU.
func adviseGPULibraries(rep Report) (advice []string) {
	if len(rep.GPUs.Devices) == 0 {
		return nil
	}
	cuda, _, _ := strings.Cut(strings.TrimPrefix(rep.GPUs.Driver.Version, "CUDA "), ".")
	for _, p := range products {
		if p.family != familyGPU {
			continue
		}
		libs := slices.DeleteFunc(slices.Clone(rep.GPULibraries), func(l Library) bool { return l.Name != p.Name })
		chosen := slices.IndexFunc(libs, func(l Library) bool { return l.Chosen })
		switch {
		case chosen >= 0:
			advice = append(advice, adviseVersion(libs[chosen], rep.GPUs, cuda)...)
		case len(libs) > 0 && libs[0].Usable: // newer than the driver: see chooseNVRTC
			advice = append(advice, adviseVersion(libs[0], rep.GPUs, cuda)...)
		case len(libs) > 0 && libs[0].Path != "":
			advice = append(advice, fmt.Sprintf("%s at %s is not usable: %s", p.Name, libs[0].Path, libs[0].Problem))
		default:
			name := packages[p.Name]
			if strings.Contains(name, "%s") {
				name = fmt.Sprintf(name, cuda)
			}
			advice = append(advice, fmt.Sprintf("%s is missing: pip install %s, or set its path with --lib %s=FILE", p.Name, name, p.Name))
		}
	}
	return advice
}

// numberedAsCUDA are the libraries whose major version is that of their CUDA version.
var numberedAsCUDA = []string{"cudart", "nvrtc", "nvjitlink", "cublas"}

// adviseVersion compares a library with the driver, which supports cuda. A library of a later major
// version does not run on it.
func adviseVersion(l Library, g GPUs, cuda string) []string {
	return when(slices.Contains(numberedAsCUDA, l.Name) && !runsOn(l, g),
		"%s %s is newer than the driver, which supports CUDA %s: update the driver, or install %[1]s for CUDA %[3]s", l.Name, l.Version, cuda)
}

// adviseDuplicates reports different files of one library: the order of loading decides which one a
// process gets.
func adviseDuplicates(rep Report) (advice []string) {
	for _, p := range products {
		var files []string
		versions := map[string]bool{}
		for _, l := range rep.GPULibraries {
			if l.Name == p.Name && l.Usable {
				files = append(files, l.Version+" "+l.Path)
				versions[l.Version] = true
			}
		}
		// Two CUDA major versions are common and harmless. NCCL and NVSHMEM have one soname for all
		// versions, and NVSHMEM loads NCCL by it.
		if oneSoname := p.Name == "nccl" || p.Name == "nvshmem"; oneSoname && len(files) > 1 {
			text := fmt.Sprintf("%d files of %s: %s", len(files), p.Name, strings.Join(files, ", "))
			if len(versions) > 1 {
				text = "different versions: " + text
			}
			advice = append(advice, text+"; one process must not load two: use the first, or choose one with --lib "+p.Name+"=FILE")
		}
	}
	return advice
}

func adviseMPI(rep Report) (advice []string) {
	for _, l := range slices.Concat(rep.MPI, rep.OpenSHMEM) {
		for _, note := range l.Notes {
			advice = append(advice, when(strings.Contains(note, "signal handlers") && strings.Contains(note, "SIGSEGV"),
				"%s replaces signal handlers that Go needs: set UCX_ERROR_SIGNALS= (empty) for programs that use it", l.Name)...)
		}
		advice = append(advice, when(l.Path != "" && !l.Usable, "%s at %s is not usable: %s", l.Name, l.Path, l.Problem)...)
	}
	return advice
}

func adviseLimits(rep Report) []string {
	l := rep.Limits
	advice := when(l.Memlock.Soft != Unlimited && l.Memlock.Soft < 64*mib && len(rep.GPUs.Devices) > 0,
		"at most %d KiB may be locked in memory: RDMA needs more (ulimit -l unlimited; docker run --ulimit memlock=-1)", l.Memlock.Soft>>10)
	advice = append(advice, when(l.NoFile.Hard != Unlimited && l.NoFile.Hard < leastFiles,
		"at most %d open files: ranks of large jobs need more (ulimit -n)", l.NoFile.Hard)...)
	return append(advice, when(l.PtraceScope >= 1 && anyUsable(rep.MPI),
		"Yama's ptrace_scope is %d: MPI cannot copy between processes directly (sysctl kernel.yama.ptrace_scope=0); backend shm can", l.PtraceScope)...)
}

func anyUsable(libs []Library) bool {
	return slices.ContainsFunc(libs, func(l Library) bool { return l.Usable })
}
