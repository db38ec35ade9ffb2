package probe

import (
	"fmt"
	"strings"
	"testing"
)

// content is a machine that nothing is to be said about.
func content() Report {
	gpuLib := func(name, version string) Library {
		return Library{Name: name, Path: "/lib/" + name, Version: version, Usable: true, Chosen: true}
	}
	return Report{
		CPU:    CPU{Online: 8, Allowed: 8},
		Memory: Memory{UsableBytes: 8 * gib},
		SharedMemory: SharedMemory{
			Memfd: Trial{Usable: true}, DevShm: FileSystem{TotalBytes: 2 * gib},
		},
		Limits: Limits{Memlock: Limit{Unlimited, Unlimited}, NoFile: Limit{1024, 20000}, PtraceScope: -1},
		BLAS:   BLAS{Name: "openblas"},
		MPI:    []Library{{Name: "openmpi", Path: "/lib/libmpi.so.40", Usable: true}},
		GPUs: GPUs{
			Driver:  Library{Path: "/lib/libcuda.so.1", Version: "CUDA 13.0", Usable: true},
			Devices: []GPU{{ComputeMode: "default"}, {Index: 1, ComputeMode: "default"}}, Peers: [][]bool{{true, true}, {true, true}},
		},
		GPULibraries: []Library{
			gpuLib("cudart", "13.0"), gpuLib("nvrtc", "13.0"), gpuLib("nvjitlink", "13.0"), gpuLib("cublas", "13.1.2"), gpuLib("cudnn", "9.10.2"),
			gpuLib("nccl", "2.28.3"), gpuLib("nvshmem", "3.4.5"),
		},
		Worlds: []World{{Backend: "shm", OK: true}},
		Table:  Table{Fits: true, Rows: 3},
	}
}

func TestAdviceNamesTheRemedy(t *testing.T) {
	setLib := func(name string, l Library) func(*Report) {
		return func(r *Report) {
			for i := range r.GPULibraries {
				if r.GPULibraries[i].Name == name {
					l.Name = name
					r.GPULibraries[i] = l
				}
			}
		}
	}
	tests := []struct {
		name   string
		change func(r *Report)
		want   string // "": nothing to say
	}{
		{"content", func(*Report) {}, ""},
		{"world", func(r *Report) { r.Worlds = []World{{Backend: "shm", Problem: "no memory"}} }, "backend shm does not work: no memory"},
		{"memfd", func(r *Report) { r.SharedMemory.Memfd = Trial{Problem: "EPERM"} }, "shared memory cannot be created (EPERM): a sandbox"},
		{"environment", func(r *Report) { r.Launcher.Problem = "RANK=x" }, "unset or correct the launcher's variables: RANK=x"},
		{"no BLAS", func(r *Report) { r.BLAS = BLAS{Name: "gonum"} }, "apt-get install libopenblas0-pthread"},
		{"no BLAS wanted", func(r *Report) { r.BLAS = BLAS{Name: "gonum", Off: true} }, ""},
		{"bad BLAS", func(r *Report) {
			r.BLAS = BLAS{Name: "gonum", Libraries: []Library{{Name: "mkl"}, {Name: "openblas", Path: "/o", Problem: "64 bits"}}}
		}, "/o is installed but not usable: 64 bits"},
		{"old BLAS", func(r *Report) {
			r.CPU.ISA, r.BLAS = []string{"avx2", "fma"}, BLAS{Name: "openblas", Version: "0.3.21 Prescott"}
		}, "openblas 0.3.21 Prescott does not know this processor and uses no AVX: set OPENBLAS_CORETYPE=Haswell"},
		{"old BLAS for AVX-512", func(r *Report) {
			r.CPU.ISA, r.BLAS = []string{"avx2", "fma", "avx512f", "avx512bw", "avx512vl"}, BLAS{Name: "openblas", Version: "0.3.21 Nehalem"}
		}, "set OPENBLAS_CORETYPE=SkylakeX"},
		{"old BLAS on an old processor", func(r *Report) { r.BLAS = BLAS{Name: "openblas", Version: "0.3.21 Prescott"} }, ""},
		{"BLAS that is no older", func(r *Report) {
			r.CPU.ISA, r.BLAS = []string{"avx2", "fma"}, BLAS{Name: "openblas", Version: "0.3.21 Zen"}
		}, ""},
		{"set BLAS", func(r *Report) { r.BLAS = BLAS{Name: "gonum", Problem: "no file"} }, "set cpu.blas to auto"},
		{"quota", func(r *Report) { r.CPU.Quota = 1.5 }, "the control group grants 1.5 of 8 cores"},
		{"quota that is none", func(r *Report) { r.CPU.Quota = 8 }, ""},
		{"affinity", func(r *Report) { r.CPU.Allowed = 1 }, "the affinity mask allows 1 of 8 cores: mpirun sets it, unless it has --bind-to none"},
		{"little memory left", func(r *Report) { r.Memory = Memory{LimitBytes: gib, UsableBytes: 100 * mib} }, "leaves 100 MiB of memory"},
		{"small /dev/shm", func(r *Report) { r.SharedMemory.DevShm.TotalBytes = 64 * mib }, "/dev/shm has 64 MiB"},
		{"no /dev/shm", func(r *Report) { r.SharedMemory.DevShm.Problem = "absent" }, "/dev/shm cannot be used (absent)"},
		{"driver", func(r *Report) {
			r.GPUs = GPUs{Driver: Library{Path: "/lib/libcuda.so.1", Problem: "cuInit: 999"}}
		}, "the GPU driver does not work: cuInit: 999"},
		{"no GPU", func(r *Report) { r.GPUs, r.GPULibraries = GPUs{Driver: Library{Problem: "not found"}}, nil }, ""},
		{"no peers", func(r *Report) { r.GPUs.Peers[0][1] = false }, "not every GPU can address"},
		{"compute mode", func(r *Report) { r.GPUs.Devices[1].ComputeMode = "exclusive" }, "GPU 1 is in compute mode exclusive"},
		{"no nccl", setLib("nccl", Library{}), "pip install nvidia-nccl-cu13, or set its path with --lib nccl=FILE"},
		{"no cublas", setLib("cublas", Library{}), "pip install nvidia-cublas, or"},
		{"broken cudnn", setLib("cudnn", Library{Path: "/c", Problem: "no libcudnn_graph"}), "cudnn at /c is not usable: no libcudnn_graph"},
		{"newer than the driver", setLib("nvrtc", Library{Path: "/n", Version: "14.0", Usable: true, Chosen: true}), "nvrtc 14.0 is newer than the driver, which supports CUDA 13: update the driver, or install nvrtc for CUDA 13"},
		{"newer than the driver, and so not chosen", setLib("nvrtc", Library{Path: "/n", Version: "14.0", Usable: true}), "nvrtc 14.0 is newer than the driver, which supports CUDA 13: update the driver, or install nvrtc for CUDA 13"},
		{"older than the driver", setLib("nvrtc", Library{Path: "/n", Version: "12.9", Usable: true, Chosen: true}), ""},
		{"two cudarts", func(r *Report) {
			r.GPULibraries = append(r.GPULibraries, Library{Name: "cudart", Path: "/12", Version: "12.9", Usable: true})
		}, ""},
		{"two NCCLs", func(r *Report) {
			r.GPULibraries = append(r.GPULibraries, Library{Name: "nccl", Path: "/other", Version: "2.27.7", Usable: true})
		}, "different versions: 2 files of nccl: 2.28.3 /lib/nccl, 2.27.7 /other; one process must not load two"},
		{"two equal NCCLs", func(r *Report) {
			r.GPULibraries = append(r.GPULibraries, Library{Name: "nccl", Path: "/other", Version: "2.28.3", Usable: true})
		}, "2 files of nccl: "},
		{"no table for the GPUs", func(r *Report) { r.Table.Fits, r.GPUs.Devices[0].Name = false, "NVIDIA L4" }, "nothing was measured on this kind of GPU (NVIDIA L4): symgrad tune -n 2 --out tune.json"},
		{"broken table", func(r *Report) { r.Table.Problem = "no such file" }, "the table of engines cannot be used (no such file)"},
		{"broken table without GPUs", func(r *Report) {
			r.Table.Problem, r.GPUs, r.GPULibraries = "no such file", GPUs{Driver: Library{Problem: "not found"}}, nil
		}, ""},
		{"one GPU has nothing to measure", func(r *Report) { r.Table.Rows, r.GPUs.Devices, r.GPUs.Peers = 0, r.GPUs.Devices[:1], nil }, ""},
		{"signals", func(r *Report) { r.MPI[0].Notes = []string{"replaces the signal handlers of SIGFPE, SIGSEGV"} }, "openmpi replaces signal handlers that Go needs: set UCX_ERROR_SIGNALS="},
		{"broken MPI", func(r *Report) { r.MPI[0].Usable, r.MPI[0].Problem = false, "died" }, "openmpi at /lib/libmpi.so.40 is not usable: died"},
		{"memlock", func(r *Report) { r.Limits.Memlock.Soft = 64 << 10 }, "at most 64 KiB may be locked in memory"},
		{"files", func(r *Report) { r.Limits.NoFile.Hard = 1024 }, "at most 1024 open files"},
		{"yama", func(r *Report) { r.Limits.PtraceScope = 1 }, "kernel.yama.ptrace_scope=0"},
		{"yama without MPI", func(r *Report) { r.Limits.PtraceScope, r.MPI = 1, nil }, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := content()
			tt.change(&r)
			got := Advise(r)
			switch {
			case got == nil:
				t.Error("the list is null in JSON")
			case tt.want == "" && len(got) > 0:
				t.Errorf("nothing to say, and it says %q", got)
			case tt.want != "" && (len(got) != 1 || !strings.Contains(got[0], tt.want)):
				t.Errorf("%q, want one with %q", got, tt.want)
			}
			for _, a := range got {
				if strings.Contains(a, "%!") || a != strings.TrimSpace(a) || strings.HasSuffix(a, ".") {
					t.Errorf("badly written: %q", a)
				}
			}
		})
	}
}

func TestPluralsAreEnglish(t *testing.T) {
	if got := fmt.Sprint(plural(0, "core"), ", ", plural(1, "core"), ", ", plural(2, "core")); got != "0 cores, 1 core, 2 cores" {
		t.Error(got)
	}
}
