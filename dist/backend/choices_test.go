package backend

import (
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/symgrad/symgrad/dist/launch"
)

// machine is the files of a machine.
func machine(files ...string) fstest.MapFS {
	m := fstest.MapFS{"etc/hostname": {Data: []byte("host")}}
	for _, f := range files {
		m[f] = &fstest.MapFile{Data: []byte("x")}
	}
	return m
}

// Files of a machine with two GPUs and everything for them.
var twoGPUs = []string{
	"dev/nvidia0", "dev/nvidia1", "dev/nvidiactl", "usr/lib/x86_64-linux-gnu/libcuda.so.1", "usr/local/cuda/lib64/libnvrtc.so.13",
	"opt/torch/.venv/lib/python3.12/site-packages/nvidia/nccl/lib/libnccl.so.2",
	"opt/torch/.venv/lib/python3.12/site-packages/nvidia/nvshmem/lib/libnvshmem_host.so.3",
}

// choice is the choice called name.
func choice(t *testing.T, all []Choice, name string) Choice {
	t.Helper()
	for _, c := range all {
		if c.Name == name {
			return c
		}
	}
	t.Fatalf("no choice %q in %+v", name, all)
	return Choice{}
}

func TestChoicesHoldAllBackendsAndTheHostFirst(t *testing.T) {
	got := Choices(launch.Env{Size: 2, LocalSize: 2})
	var names []string
	for _, c := range got {
		names = append(names, c.Name)
		if c.Why == "" {
			t.Errorf("%s has no reason", c.Name)
		}
	}
	if text := strings.Join(names, " "); text != "shm mpi ucx cuda nccl nvshmem sim" || !got[0].Usable || got[1].Usable || got[6].Usable {
		t.Errorf("choices %+v", got)
	}
}

func TestChoicesTellWhatIsMissingForGPUs(t *testing.T) {
	without := func(part string) []string {
		var files []string
		for _, f := range twoGPUs {
			if !strings.Contains(f, part) {
				files = append(files, f)
			}
		}
		return files
	}
	twice := append(slices.Clone(twoGPUs), "usr/lib/libnccl.so.2", "usr/lib/libnvshmem_host.so.3", "opt/n/lib/libnccl.so.2", "opt/n/lib/libnvshmem_host.so.3")
	homes := []string{"NCCL_HOME=/opt/n", "NVSHMEM_HOME=/opt/n"}
	two, three := launch.Env{Size: 2, LocalSize: 2}, launch.Env{Size: 3, LocalSize: 3}
	apart, apartByMPI := launch.Env{Size: 4, LocalSize: 2}, launch.Env{Size: 4, LocalSize: 2, Launcher: launch.OpenMPI}
	for _, tt := range []struct {
		name    string
		cfg     Config
		env     launch.Env
		files   []string
		environ []string
		backend string
		usable  bool
		why     string
	}{
		{"no UCX", Config{}, apart, nil, nil, UCX, false, "no libucp.so.0: install package libucx0"},
		{"UCX without a meeting", Config{}, apart, []string{"usr/lib/libucp.so.0"}, nil, UCX, false, "gives ranks of several hosts no address to meet at"},
		{"UCX", Config{}, two, []string{"usr/lib/x86_64-linux-gnu/libucp.so.0"}, nil, UCX, true, "taken when ranks are on several without mpirun"},
		{"no GPU", Config{}, two, nil, nil, CUDA, false, "no GPU here: there is no /dev/nvidia0"},
		{"all there", Config{}, two, twoGPUs, nil, CUDA, true, "between GPUs by own kernels (/usr/local/cuda/lib64/libnvrtc.so.13), NCCL (/opt/torch/"},
		{"all there, nccl", Config{}, two, twoGPUs, nil, NCCL, true, "libnccl.so.2); taken when it is asked for"},
		{"hidden", Config{}, two, twoGPUs, []string{"CUDA_VISIBLE_DEVICES="}, CUDA, false, "no GPU shown: CUDA_VISIBLE_DEVICES="},
		{"one shown to each", Config{}, two, twoGPUs, []string{"CUDA_VISIBLE_DEVICES=1"}, CUDA, true, "between GPUs"},
		{"too few", Config{}, three, twoGPUs, nil, CUDA, false, "3 ranks on this host for 2 GPUs: each rank needs one of its own"},
		{"too few shown", Config{}, three, twoGPUs, []string{"CUDA_VISIBLE_DEVICES=0,1"}, CUDA, false, "3 ranks on this host for 2 GPUs (CUDA_VISIBLE_DEVICES=0,1)"},
		{"several hosts", Config{}, apart, twoGPUs, nil, NVSHMEM, false, "2 of 4 ranks are on this host, and NVSHMEM joins hosts by RDMA transports only"},
		{"several hosts without MPI", Config{}, apart, twoGPUs, nil, CUDA, false, "no libucp.so.0"},
		{"several hosts by MPI", Config{}, apartByMPI, twoGPUs, nil, NCCL, true, "between GPUs"},
		{"no driver", Config{}, two, without("libcuda"), nil, CUDA, false, "no libcuda.so.1"},
		{"no NCCL", Config{}, two, without("libnccl"), nil, NCCL, false, "no NCCL is found"},
		{"no NCCL, cuda", Config{}, two, without("libnccl"), nil, CUDA, true, "; no NCCL is found; taken when it, or device cuda, is asked for"},
		{"no NVSHMEM", Config{}, two, without("nvshmem"), nil, NVSHMEM, false, "no NVSHMEM is found"},
		{"nothing but GPUs", Config{}, two, twoGPUs[:4], nil, CUDA, false, "no NVRTC is found, no NCCL is found, no NVSHMEM is found"},
		{"set path", Config{NCCL: "/usr/lib/mine.so"}, two, append(without("libnccl"), "usr/lib/mine.so"), nil, NCCL, true, "NCCL (/usr/lib/mine.so)"},
		{"the loader's", Config{}, two, twice, nil, NCCL, true, "NCCL (/usr/lib/libnccl.so.2)"},
		{"that of its variable", Config{}, two, twice, homes, NCCL, true, "NCCL (/opt/n/lib/libnccl.so.2)"},
		{"that of its variable, NVSHMEM", Config{}, two, twice, homes, NVSHMEM, true, "NVSHMEM (/opt/n/lib/libnvshmem_host.so.3)"},
		{"set, and a variable", Config{NCCL: "/usr/lib/libnccl.so.2"}, two, twice, homes, NCCL, true, "NCCL (/usr/lib/libnccl.so.2)"},
		{"a variable of nothing", Config{}, two, twice, []string{"NVSHMEM_HOME=/opt"}, NVSHMEM, true, "NVSHMEM (/usr/lib/"},
		{"wrong path", Config{NCCL: "/absent.so"}, two, twoGPUs, nil, NCCL, false, "no NCCL is found"},
	} {
		got := choice(t, tt.cfg.choices(tt.env, place{machine(tt.files...), tt.environ}), tt.backend)
		if got.Usable != tt.usable || !strings.Contains(got.Why, tt.why) {
			t.Errorf("%s: %+v, want usable %v, %q", tt.name, got, tt.usable, tt.why)
		}
	}
}

// WSL has one device file for all GPUs, so that their number is not known.
func TestChoicesOfWSL(t *testing.T) {
	files := append([]string{"dev/dxg"}, twoGPUs[3:]...)
	if got := choice(t, Config{}.choices(launch.Env{Size: 4, LocalSize: 4}, place{machine(files...), nil}), CUDA); !got.Usable {
		t.Errorf("%+v", got)
	}
}

func TestBackendFollowsTheDevice(t *testing.T) {
	for _, tt := range []struct {
		cfg  Config
		want string
	}{
		{Config{}, SHM},
		{Config{Backend: Auto, Device: AnyDevice}, SHM},
		{Config{Device: HostDevice}, SHM},
		{Config{Device: CUDADevice}, CUDA},
		{Config{Backend: Auto, Device: CUDADevice}, CUDA},
		{Config{Backend: NCCL}, NCCL},
		{Config{Backend: NVSHMEM, Device: CUDADevice}, NVSHMEM},
	} {
		if got := tt.cfg.Name(); got != tt.want || tt.cfg.Validate() != nil {
			t.Errorf("%+v: %s (%v), want %s", tt.cfg, got, tt.cfg.Validate(), tt.want)
		}
	}
}
