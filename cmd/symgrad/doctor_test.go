package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/symgrad/symgrad/internal/tool/probe"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the golden files")

// sampleCPU is a report of a small machine with a bit of everything.
func sampleCPU() probe.Report {
	return probe.Report{
		OK: true, Verdict: "ready: backend shm, 2 cores, BLAS openblas",
		Advice: []string{
			"/dev/shm has 64 MiB: NCCL and MPI may need more (docker run --shm-size=8g), backend shm does not",
		},
		System: probe.System{OS: "linux", Distribution: "Debian GNU/Linux 12 (bookworm)", Kernel: "6.1.0-31-amd64", Arch: "amd64", Go: "go1.26.0", Container: "docker"},
		CPU: probe.CPU{
			Model: "AMD EPYC 9654 96-Core Processor", ISA: []string{"avx", "avx2", "fma", "f16c", "avx512f"},
			Online: 8, Allowed: 4, Affinity: "0-3", Quota: 2.5, Usable: 2,
			NUMANodes: []probe.NUMA{{ID: 0, CPUs: "0-3", MemoryBytes: 64 << 30}, {ID: 1, CPUs: "4-7", MemoryBytes: 64 << 30}},
			Caches: []probe.Cache{
				{Level: 1, Type: "Data", Bytes: 48 << 10, SharedBy: 1},
				{Level: 1, Type: "Instruction", Bytes: 32 << 10, SharedBy: 1},
				{Level: 3, Type: "Unified", Bytes: 32 << 20, SharedBy: 4},
			},
		},
		Memory: probe.Memory{TotalBytes: 128 << 30, AvailableBytes: 100_000_000_000, LimitBytes: 16 << 30, LimitUsedBytes: 3 << 29},
		SharedMemory: probe.SharedMemory{
			Memfd: probe.Trial{Usable: true, Bytes: 4 << 20}, DevShm: probe.FileSystem{Path: "/dev/shm", TotalBytes: 64 << 20, FreeBytes: 64 << 20},
			HugePages: []probe.HugePage{{PageBytes: 2 << 20, Total: 512, Free: 500}}, THP: "madvise", THPShmem: "never",
		},
		Limits: probe.Limits{
			Memlock: probe.Limit{Soft: 8 << 20}, Stack: probe.Limit{Soft: probe.Unlimited}, NoFile: probe.Limit{Soft: 20000}, NProc: probe.Limit{Soft: 96365}, PtraceScope: 1,
		},
		BLAS: probe.BLAS{
			Name: "openblas", Version: "0.3.21 Haswell", Path: "/usr/lib/x86_64-linux-gnu/openblas-pthread/libopenblasp-r0.3.21.so", Threads: 1,
			Libraries: []probe.Library{
				{Name: "mkl"},
				{Name: "openblas", Path: "/usr/lib/x86_64-linux-gnu/openblas-pthread/libopenblasp-r0.3.21.so", Usable: true, Chosen: true},
				{Name: "blis", Path: "/opt/libblis.so.4", Problem: "its integers have 64 bits: install the build for 32-bit integers (LP64)"},
			},
		},
		MPI: []probe.Library{
			{Name: "mpi-abi"},
			{Name: "openmpi", Version: "Open MPI 4.1.4 (MPI 3.1)", Path: "/usr/lib/libmpi.so.40.30.4", Usable: true, Chosen: true, Notes: []string{"Open MPI's ABI"}},
			{Name: "mpich", Path: "/usr/lib/libmpich.so.12.2.2", Problem: "the process that loaded it died: signal: segmentation fault"},
		},
		UCX:          []probe.Library{{Name: "ucx", Version: "UCX 1.13.1", Path: "/usr/lib/libucp.so.0.0.0", Usable: true, Chosen: true}},
		OpenSHMEM:    []probe.Library{{Name: "openshmem"}},
		GPUs:         probe.GPUs{Driver: probe.Library{Problem: "not found: no libcuda.so.1"}},
		GPULibraries: []probe.Library{{Name: "cudart"}, {Name: "nccl"}},
		Engines: []probe.Engine{
			{Name: "oneshot", Why: "no GPU: not found: no libcuda.so.1"}, {Name: "nccl", Why: "no GPU: not found: no libcuda.so.1"},
		},
		HostEngines: []probe.Engine{
			{Name: "mpi", Why: "not found: apt-get install openmpi-bin, or mpich"}, {Name: "ucx", Usable: true, Why: "UCX 1.13.1, /usr/lib/libucp.so.0.0.0"},
		},
		Table:    probe.Table{Fits: true, Machine: "NVIDIA H200", Lines: []string{"others: nccl"}},
		Launcher: probe.Launcher{Name: "none", Size: 1, LocalSize: 1, Variables: []probe.Variable{{Name: "SLURM_JOB_ID", Of: "slurm"}}},
		Backends: []probe.Backend{{Name: "shm", Usable: true, Chosen: true, Why: "all ranks are on this host"}, {Name: "sim", Why: "only when asked for"}},
		Worlds:   []probe.World{{Backend: "shm", Ranks: 2, OK: true}, {Backend: "sim", Ranks: 2, Problem: "no memory"}},
	}
}

// sampleGPU is a report of a machine with three GPUs that do not all reach each other.
func sampleGPU() probe.Report {
	r := sampleCPU()
	r.Advice = nil
	gpu := func(i int, mode string) probe.GPU {
		return probe.GPU{
			Index: i, Name: "NVIDIA H200", UUID: "GPU-00102030-4050-6070-8090-a0b0c0d0e0f" + string(rune('0'+i)), PCI: "0000:1b:00.0",
			MemoryBytes: 150_754_820_096, ComputeCapability: "9.0", Multiprocessors: 132, ComputeMode: mode,
		}
	}
	r.CPU.NUMANodes, r.CPU.Allowed, r.CPU.Quota, r.CPU.Caches, r.CPU.ISA, r.CPU.Model = r.CPU.NUMANodes[:1], 8, 0, nil, nil, ""
	r.Memory.LimitBytes, r.Limits.PtraceScope, r.System = 0, -1, probe.System{OS: "linux", Arch: "amd64", Go: "go1.26.0"}
	r.SharedMemory = probe.SharedMemory{Memfd: probe.Trial{Problem: "memfd_create: operation not permitted"}, DevShm: probe.FileSystem{Problem: "/dev/shm: no such file or directory"}}
	r.BLAS = probe.BLAS{Problem: "/opt/libmine.so: invalid ELF header", Name: "gonum"}
	r.GPUs = probe.GPUs{
		Driver: probe.Library{Version: "CUDA 13.0", Path: "/usr/lib/x86_64-linux-gnu/libcuda.so.580.159.04", Usable: true}, Module: "580.159.04",
		Devices: []probe.GPU{gpu(0, "default"), gpu(1, "default"), gpu(2, "exclusive")},
		Peers:   [][]bool{{true, true, false}, {true, true, false}, {false, false, true}},
	}
	r.GPULibraries = []probe.Library{
		{Name: "nccl", Version: "2.28.3", Path: "/opt/torch/.venv/lib/python3.12/site-packages/nvidia/nccl/lib/libnccl.so.2", Usable: true, Chosen: true},
		{Name: "nccl", Version: "2.27.7", Path: "/usr/lib/x86_64-linux-gnu/libnccl.so.2.27.7", Usable: true},
		{Name: "nvshmem", Path: "/opt/libnvshmem_host.so.3", Problem: "libnvidia-ml.so.1: cannot open shared object file"},
	}
	r.Engines = []probe.Engine{
		{Name: "oneshot", Usable: true, Why: "NVRTC 13.0, /usr/local/cuda/lib64/libnvrtc.so.13"},
		{Name: "twoshot", Usable: true, Why: "NVRTC 13.0, /usr/local/cuda/lib64/libnvrtc.so.13"},
		{Name: "nccl", Usable: true, Why: "NCCL 2.28.3, /opt/libnccl.so.2", Notes: []string{"two versions: 2.27.7, /usr/lib/x86_64-linux-gnu/libnccl.so.2.27.7 exists as well"}},
		{Name: "nvshmem", Why: "peer access is missing: GPU 0 (GPU-00102030-4050-6070-8090-a0b0c0d0e0f0) cannot address the memory of GPU 2 (GPU-00102030-4050-6070-8090-a0b0c0d0e0f2)"},
	}
	r.Table = probe.Table{
		File: "tune.json", Machine: "NVIDIA H200", Fits: true, Rows: 38, Hash: "0123456789abcdef0123",
		Lines: []string{"allreduce f32 sum, symmetric, 2 ranks: oneshot to 2M, twoshot to 64M, nccl to 256M", "others: nccl, nvshmem"},
	}
	r.Launcher = probe.Launcher{Name: "torchrun", Rank: 1, Size: 4, LocalRank: 1, LocalSize: 2, Variables: []probe.Variable{{Name: "RANK", Of: "torchrun"}, {Name: "SLURM_JOB_ID", Of: "slurm"}}}
	return r
}

func TestDoctorTextIsAlignedAndFits(t *testing.T) {
	refused := sampleCPU()
	refused.Launcher.Problem = "environment variable RANK is not set: want a rank, 0 to 3"
	refused.BLAS.Off = true
	peers := sampleGPU()
	peers.GPUs.Devices = peers.GPUs.Devices[:2]
	peers.Engines = peers.Engines[:3]
	peers.Table = probe.Table{Machine: "NVIDIA L4", Rows: 1, Hash: "0123456789abcdef0123", Lines: make([]string, 30)}
	for i := range peers.Table.Lines {
		peers.Table.Lines[i] = fmt.Sprintf("line %d", i)
	}
	peers.GPUs.Peers, peers.GPUs.Atomics = [][]bool{{true, true}, {true, true}}, [][]bool{{true, true}, {true, true}}
	for name, report := range map[string]probe.Report{"cpu": sampleCPU(), "gpu": sampleGPU(), "refused": refused, "peers": peers} {
		t.Run(name, func(t *testing.T) {
			got := string(doctorText(report))
			for line := range strings.Lines(got) {
				line = strings.TrimSuffix(line, "\n")
				if n := utf8.RuneCountInString(line); n > doctorWidth && strings.Contains(strings.TrimSpace(line[labelWidth:]), " ") {
					t.Errorf("%d columns: %s", n, line)
				}
				if strings.TrimRight(line, " ") != line || strings.Contains(line, "%!") {
					t.Errorf("badly written: %q", line)
				}
			}
			if n := strings.Count(got, "\n"); n > 60 {
				t.Errorf("%d lines are more than a screen", n)
			}
			file := filepath.Join("testdata", "doctor-"+name+".txt")
			if *rewrite {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", file, diff)
			}
		})
	}
}

func TestDoctorJSONIsTheReport(t *testing.T) {
	report := sampleCPU()
	const command = "echo 0 > /proc/sys/kernel/yama/ptrace_scope"
	report.Advice = append(report.Advice, command)
	text, err := doctorJSON(report)
	if err != nil {
		t.Fatal(err)
	}
	var back probe.Report
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(report, back); diff != "" {
		t.Errorf("what comes back (-want +got):\n%s", diff)
	}
	if !bytes.Contains(text, []byte(command)) {
		t.Error("commands in the advice cannot be copied from JSON")
	}
}

func TestBytesAreShortAndExact(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0 B", 1023: "1023 B", 1024: "1 KiB", 48 << 10: "48 KiB", 1536: "1.5 KiB", 64 << 20: "64 MiB",
		150_754_820_096: "140 GiB", 25276510208: "23.5 GiB", 1 << 60: "1024 PiB",
	} {
		if got := binary(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
}
