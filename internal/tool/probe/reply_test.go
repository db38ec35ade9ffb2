package probe

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestLibrariesAreAskedForTheirVersion(t *testing.T) {
	tests := []struct {
		name, product string
		defines       []string
		version       string
		problem       string
		notes         []string
	}{
		{"nccl", "nccl", []string{"NCCL=22803"}, "2.28.3", "", nil},
		{"nccl without windows", "nccl", []string{"NCCL=21805"}, "2.18.5", "", []string{"no symmetric windows, which came with NCCL 2.27.3"}},
		{"cublas", "cublas", []string{"CUBLAS"}, "13.1.2", "", nil},
		{"cudart", "cudart", []string{"CUDART"}, "13.0", "", nil},
		{"cudnn", "cudnn", []string{"CUDNN"}, "9.10.2", "", []string{"built with CUDA 13.0"}},
		{"nvjitlink", "nvjitlink", []string{"NVJITLINK"}, "13.0", "", nil},
		{"nvjitlink before 12.3", "nvjitlink", nil, "", "", []string{"reports no version, so it is older than 12.3"}},
		{"nvrtc", "nvrtc", []string{"NVRTC=0"}, "13.0", "", []string{"compiles for compute capability 7.5 to 12.1"}},
		{
			"nvrtc without its builtins", "nvrtc",
			[]string{"NVRTC=7"},
			"13.0",
			"compiling a kernel of one line: NVRTC_ERROR_BUILTIN_OPERATION_FAILURE; nvrtc: error: failed to open libnvrtc-builtins.so.13.0",
			[]string{"compiles for compute capability 7.5 to 12.1"},
		},
		{
			"Open MPI", "openmpi",
			[]string{`MPI="Open MPI v4.1.4, package: Debian OpenMPI, ident: 4.1.4"`, "OPENMPI"},
			"Open MPI 4.1.4 (MPI 3.1)", "",
			[]string{"Open MPI's ABI"},
		},
		{"MPICH", "mpich", []string{`MPI="MPICH Version:\t4.0.2\nMPICH Release date:\tThu"`}, "MPICH 4.0.2 (MPI 3.1)", "", []string{"MPICH's ABI"}},
		{
			"Intel MPI", "mpich",
			[]string{`MPI="Intel(R) MPI Library 2021.12 for Linux* OS\n"`},
			"Intel(R) MPI Library 2021.12 for Linux* OS (MPI 3.1)", "",
			[]string{"MPICH's ABI"},
		},
		{"MPI-5 ABI", "mpi-abi", []string{`MPI="MPICH Version:\t5.0.0\n"`, "ABI"}, "MPICH 5.0.0 (MPI 3.1)", "", []string{"the MPI-5 ABI"}},
		{"UCX", "ucx", []string{"UCX"}, "UCX 1.13.1", "", nil},
		{"OpenSHMEM", "openshmem", []string{"SHMEM"}, "OpenSHMEM 1.4", "", []string{"Fake SHMEM", "no signals, which came with OpenSHMEM 1.5"}},
		{"something else under the name", "nccl", []string{"CUBLAS"}, "", `field version: symbol "ncclGetVersion": unsupported`, nil},
		{
			"takes signal handlers", "nccl",
			[]string{"NCCL=22803", "THIEF"},
			"2.28.3", "",
			[]string{"replaces the signal handlers of SIGFPE, SIGSEGV"},
		},
		{"prints what looks like an answer", "nccl", []string{"NCCL=22803", "NOISY"}, "2.28.3", "", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			file := fake(t, "libfake.so", tt.defines...)
			got := child()(deadline(t), Question{tt.product, file})
			want := Answer{Loaded: true, Path: file, Version: tt.version, Problem: tt.problem, Notes: tt.notes}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestNVSHMEMIsAskedForItsPlugin(t *testing.T) {
	file := fake(t, "libnvshmem_host.so.3", "NVSHMEM")
	plugin := filepath.Join(filepath.Dir(file), bootstrapBare)
	a := child()(deadline(t), Question{"nvshmem", file})
	if len(a.Notes) != 2 || a.Notes[0] != "OpenSHMEM specification 1.3" || !strings.HasPrefix(a.Notes[1], cannotStart) || !strings.Contains(a.Notes[1], plugin) || a.Problem != "" {
		t.Errorf("without one: %+v", a)
	}
	if err := os.Rename(fake(t, bootstrapBare), plugin); err != nil {
		t.Fatal(err)
	}
	if a := child()(deadline(t), Question{"nvshmem", file}); len(a.Notes) != 1 || a.Version != "3.4.5" {
		t.Errorf("with one: %+v", a)
	}
}

func TestDriverIsAskedForItsGPUs(t *testing.T) {
	file := fake(t, "libcuda.so.1", "DRIVER")
	t.Setenv("FAKE_CUDA", "")
	got := child()(deadline(t), Question{"cuda-driver", file})
	gpu := func(i int, uuid, pci, mode string, vmm bool) GPU {
		return GPU{
			Index: i, Name: "Fake H10" + string(rune('0'+i)), UUID: uuid, PCI: pci, MemoryBytes: 140 << 30, ComputeCapability: "9.0",
			Multiprocessors: 132, ComputeMode: mode, VirtualMemory: vmm,
		}
	}
	want := Answer{Loaded: true, Path: file, Version: "CUDA 12.8", Driver: &Driver{
		CUDA: "12.8",
		Devices: []GPU{
			gpu(0, "GPU-00102030-4050-6070-8090-a0b0c0d0e0f0", "0001:1b:00.0", "default", true),
			gpu(1, "GPU-01112131-4151-6171-8191-a1b1c1d1e1f1", "0001:1c:00.0", "default", true),
			gpu(2, "GPU-02122232-4252-6272-8292-a2b2c2d2e2f2", "0001:1d:00.0", "exclusive", false),
		},
		Peers:   [][]bool{{true, true, true}, {true, true, false}, {false, false, true}},
		Atomics: [][]bool{{true, true, false}, {true, true, false}, {false, false, true}},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestDriverThatDoesNotStartSaysWhy(t *testing.T) {
	file := fake(t, "libcuda.so.1", "DRIVER")
	for how, want := range map[string]string{
		"init": "cuInit: CUDA_ERROR_UNKNOWN (999): unknown error",
		"none": "the driver shows no GPU",
	} {
		t.Setenv("FAKE_CUDA", how)
		got := child()(deadline(t), Question{"cuda-driver", file})
		if got.Problem != want || got.Version != "CUDA 12.8" || got.Driver == nil || len(got.Driver.Devices) != 0 {
			t.Errorf("%s: %+v, want the version, no GPUs and %q", how, got, want)
		}
	}
}

func TestLibrariesThatCannotBeLoadedSayWhy(t *testing.T) {
	text := filepath.Join(t.TempDir(), "libtext.so")
	if err := os.WriteFile(text, []byte(strings.Repeat("no ELF magic here\n", 64)), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		question Question
		want     string
	}{
		{Question{"nccl", "/absent/libnccl.so.2"}, "cannot open shared object file: No such file or directory"},
		{Question{"nccl", "libabsent.so.2"}, "cannot open shared object file: No such file or directory"},
		{Question{"nccl", text}, "invalid ELF header"},
		{Question{"blas", text}, "invalid ELF header"},
		{Question{"toaster", text}, `unknown product "toaster"`},
	} {
		got := child()(deadline(t), tt.question)
		if want := (Answer{Path: tt.question.File, Problem: tt.want}); !cmp.Equal(got, want) {
			t.Errorf("%+v: %+v, want %+v", tt.question, got, want)
		}
	}
}

func TestBLASIsTriedNotOnlyLoaded(t *testing.T) {
	file := fake(t, "libblas.so", "CUBLAS")
	got := child()(deadline(t), Question{"blas", file})
	if !got.Loaded || got.Path != file || !strings.Contains(got.Problem, "sgemm_") {
		t.Errorf("%+v, want a problem that names sgemm_", got)
	}
	if got := child()(deadline(t), Question{"blas", ""}); got.Problem != "" || got.BLAS.Name == "" || got.BLAS.Threads == 0 {
		t.Errorf("%+v, want what package blas takes", got)
	}
}

func TestReplyRefusesWhatIsNoQuestion(t *testing.T) {
	var out bytes.Buffer
	if err := Reply([]string{"nccl"}, &out); err == nil || out.Len() > 0 {
		t.Errorf("got %v and %q", err, &out)
	}
	if err := Reply([]string{"toaster", "x"}, fullDisk{}); !errors.Is(err, errFull) {
		t.Errorf("got %v, want that the answer could not be written", err)
	}
}

var errFull = errors.New("no space left")

type fullDisk struct{}

// Write fails.
func (fullDisk) Write([]byte) (int, error) { return 0, errFull }

func TestVersionNumbersAreReadAsTheirHeadersSay(t *testing.T) {
	for _, tt := range []struct{ got, want string }{
		{cudaVersion(13000), "13.0"},
		{cudaVersion(12080), "12.8"},
		{cudaVersion(11020), "11.2"},
		{ncclVersion(22803), "2.28.3"},
		{ncclVersion(21005), "2.10.5"},
		{ncclVersion(2804), "2.8.4"},
		{cudnnVersion(91002), "9.10.2"},
		{cudnnVersion(90100), "9.1.0"},
		{cudnnVersion(8907), "8.9.7"},
		{capability(90), "9.0"},
		{capability(121), "12.1"},
		{computeMode(0), "default"},
		{computeMode(2), "prohibited"},
		{computeMode(3), "exclusive"},
		{computeMode(9), "mode 9"},
	} {
		if tt.got != tt.want {
			t.Errorf("got %s, want %s", tt.got, tt.want)
		}
	}
}
