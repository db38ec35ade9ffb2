package probe

import (
	"errors"
	"runtime"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSystemIsReadFromFilesAndMarks(t *testing.T) {
	want := System{OS: runtime.GOOS, Arch: runtime.GOARCH, Go: runtime.Version(), Kernel: "6.1.0-31-amd64", Distribution: `Debian "12"`}
	files := []string{"proc/sys/kernel/osrelease=6.1.0-31-amd64\n", "etc/os-release=NAME=Debian\nPRETTY_NAME=\"Debian \\\"12\\\"\"\n"}
	for _, tt := range []struct {
		name, file, variable, want string
	}{
		{"none", "x=", "PATH=/bin", ""},
		{"docker", ".dockerenv=", "PATH=/bin", "docker"},
		{"podman", "run/.containerenv=", "PATH=/bin", "podman"},
		{"kubernetes", ".dockerenv=", "KUBERNETES_SERVICE_HOST=10.0.0.1", "kubernetes"},
		{"nspawn", "x=", "container=systemd-nspawn", "systemd-nspawn"},
	} {
		r := roots(append(files, tt.file)...)
		r.Environ = []string{tt.variable}
		want.Container = tt.want
		if diff := cmp.Diff(want, ReadSystem(r)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
	if got := shellValue("PRETTY_NAME='Alpine'\n", "PRETTY_NAME"); got != "Alpine" {
		t.Errorf("a value in single quotes: %q", got)
	}
}

// twoSockets is a machine with two nodes, of which this process may use six cores.
var twoSockets = []string{
	"proc/cpuinfo=processor\t: 0\nmodel name\t: AMD EPYC 9654\nflags\t\t: fpu sse avx avx2 fma f16c avx512f xavx512bw\n\nprocessor\t: 1\nmodel name\t: other\n",
	"proc/self/status=Name:\tx\nCpus_allowed:\t0f03\nCpus_allowed_list:\t0-1,8-11\n",
	"sys/devices/system/cpu/online=0-15\n",
	"sys/devices/system/node/node0/cpulist=0-7\n", "sys/devices/system/node/node0/meminfo=Node 0 MemTotal:       1024 kB\nNode 0 MemFree: 3 kB\n",
	"sys/devices/system/node/node10/cpulist=\n", "sys/devices/system/node/node10/meminfo=Node 10 MemTotal:       2048 kB\n",
	"sys/devices/system/node/node2/cpulist=8-15\n", "sys/devices/system/node/node2/meminfo=\n",
	"sys/devices/system/cpu/cpu0/cache/index0/level=1\n", "sys/devices/system/cpu/cpu0/cache/index0/type=Data\n",
	"sys/devices/system/cpu/cpu0/cache/index0/size=48K\n", "sys/devices/system/cpu/cpu0/cache/index0/shared_cpu_list=0\n",
	"sys/devices/system/cpu/cpu0/cache/index3/level=3\n", "sys/devices/system/cpu/cpu0/cache/index3/type=Unified\n",
	"sys/devices/system/cpu/cpu0/cache/index3/size=32M\n", "sys/devices/system/cpu/cpu0/cache/index3/shared_cpu_list=0-7\n",
	"sys/devices/system/cpu/cpu0/cache/index4/size=1K\n",
}

func TestCPUIsReadFromProcAndSys(t *testing.T) {
	want := CPU{
		Model: "AMD EPYC 9654", ISA: []string{"avx", "avx2", "fma", "f16c", "avx512f"},
		Online: 16, Allowed: 6, Affinity: "0-1,8-11", Usable: 6,
		NUMANodes: []NUMA{{0, "0-7", 1 << 20}, {2, "8-15", 0}, {10, "", 2 << 20}},
		Caches:    []Cache{{1, "Data", 48 << 10, 1}, {3, "Unified", 32 << 20, 8}},
	}
	if diff := cmp.Diff(want, ReadCPU(roots(twoSockets...))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestCPUWithoutProcIsWhatGoCounts(t *testing.T) {
	n := runtime.NumCPU()
	want := CPU{ISA: []string{}, Online: n, Allowed: n, Usable: n, NUMANodes: []NUMA{}, Caches: []Cache{}}
	if diff := cmp.Diff(want, ReadCPU(roots())); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestListsOfTheKernelAreCounted(t *testing.T) {
	for list, want := range map[string]int{"0": 1, "0-3": 4, "0-1,8-11": 6, "": 0, "\n": 0, "x": 0, "3-1": 0, "1-x,5": 1} {
		if got := countList(list); got != want {
			t.Errorf("%q: %d, want %d", list, got, want)
		}
	}
	for size, want := range map[string]int64{"48K": 48 << 10, "32M": 32 << 20, "2G": 2 << 30, "512": 512, "": 0, "xK": 0} {
		if got := suffixed(size); got != want {
			t.Errorf("%q: %d, want %d", size, got, want)
		}
	}
}

func TestControlGroupsLimitProcessorsAndMemory(t *testing.T) {
	const (
		v2Mount = "proc/self/mountinfo=30 24 0:27 / /proc rw - proc proc rw\n35 24 0:31 / /sys/fs/cgroup rw shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
		v1Mount = "proc/self/mountinfo=33 32 0:30 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n" +
			"36 32 0:33 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
	)
	tests := []struct {
		name        string
		files       []string
		quota       float64
		limit, used int64
	}{
		{"no control groups", nil, 0, 0, 0},
		{"version 2 without limits", []string{
			v2Mount, "proc/self/cgroup=0::/user.slice\n", "sys/fs/cgroup/user.slice/cpu.max=max 100000\n", "sys/fs/cgroup/user.slice/memory.max=max\n",
		}, 0, 0, 0},
		{"version 2, the tighter limit is above", []string{
			v2Mount, "proc/self/cgroup=0::/pod/app\n",
			"sys/fs/cgroup/pod/app/cpu.max=400000 100000\n", "sys/fs/cgroup/pod/cpu.max=150000 100000\n",
			"sys/fs/cgroup/pod/app/memory.max=4000\n", "sys/fs/cgroup/pod/app/memory.current=1000\n",
			"sys/fs/cgroup/pod/memory.max=5000\n", "sys/fs/cgroup/pod/memory.current=4500\n",
		}, 1.5, 5000, 4500},
		{"version 2, files that are cached do not count", []string{
			v2Mount, "proc/self/cgroup=0::/a\n", "sys/fs/cgroup/a/memory.max=5000\n", "sys/fs/cgroup/a/memory.current=4900\n",
			"sys/fs/cgroup/a/memory.stat=anon 300\nfile 4600\nshmem 600\ninactive_file 3000\nactive_file 1000\ntotal_active_file 7\n",
		}, 0, 5000, 900},
		{"version 1, those of groups below neither", []string{
			v1Mount, "proc/self/cgroup=4:memory:/a\n", "sys/fs/cgroup/memory/a/memory.limit_in_bytes=2000\n",
			"sys/fs/cgroup/memory/a/memory.usage_in_bytes=1900\n",
			"sys/fs/cgroup/memory/a/memory.stat=inactive_file 5\ntotal_inactive_file 1100\ntotal_active_file 200\n",
		}, 0, 2000, 600},
		{"version 2 in a container: the group's own folder is the mount", []string{
			"proc/self/mountinfo=35 24 0:31 /docker/abc /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n", "proc/self/cgroup=0::/docker/abc\n",
			"sys/fs/cgroup/cpu.max=50000 100000\n", "sys/fs/cgroup/memory.max=1000\n",
		}, 0.5, 1000, 0},
		{"version 2 in a namespace: the group is outside", []string{
			v2Mount, "proc/self/cgroup=0::/../../elsewhere\n", "sys/fs/cgroup/memory.max=1000\n", "sys/fs/cgroup/memory.current=10\n",
		}, 0, 1000, 10},
		{"version 1", []string{
			v1Mount, "proc/self/cgroup=4:memory:/a\n3:cpuacct,cpu:/a/b\n0::/\n",
			"sys/fs/cgroup/cpu,cpuacct/a/b/cpu.cfs_quota_us=250000\n", "sys/fs/cgroup/cpu,cpuacct/a/b/cpu.cfs_period_us=100000\n",
			"sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us=-1\n", "sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us=100000\n",
			"sys/fs/cgroup/memory/a/memory.limit_in_bytes=2000\n", "sys/fs/cgroup/memory/a/memory.usage_in_bytes=500\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes=9223372036854771712\n",
		}, 2.5, 2000, 500},
		{"version 1 in a container that sees the host's names", []string{
			"proc/self/mountinfo=36 32 0:33 /docker/abc /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n", "proc/self/cgroup=4:memory:/other/name\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes=3000\n", "sys/fs/cgroup/memory/memory.usage_in_bytes=1\n",
		}, 0, 3000, 1},
		{"both: cpu in version 1, memory in version 2", []string{
			"proc/self/mountinfo=33 32 0:30 / /c1 rw - cgroup cgroup rw,cpu\n41 32 0:38 / /c2 rw - cgroup2 cgroup2 rw\n",
			"proc/self/cgroup=1:cpu:/\n0::/x\n", "c1/cpu.cfs_quota_us=300000\n", "c1/cpu.cfs_period_us=100000\n", "c2/x/memory.max=700\n",
		}, 3, 700, 0},
		{"broken files", []string{v2Mount, "proc/self/cgroup=nonsense\n0::/a\n", "sys/fs/cgroup/a/cpu.max=1 2 3\n", "sys/fs/cgroup/a/memory.max=x\n"}, 0, 0, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := roots(tt.files...)
			limit, used := memoryLimit(r)
			if quota := cpuQuota(r); quota != tt.quota || limit != tt.limit || used != tt.used {
				t.Errorf("quota %v, memory %d of %d; want %v, %d of %d", quota, used, limit, tt.quota, tt.used, tt.limit)
			}
		})
	}
}

func TestUsableIsTheTightestOfWhatIsGranted(t *testing.T) {
	group := []string{
		"proc/self/mountinfo=35 24 0:31 / /cg rw - cgroup2 cgroup2 rw\n", "proc/self/cgroup=0::/\n", "cg/cpu.max=50000 100000\n",
		"cg/memory.max=1048576\n", "cg/memory.current=1572864\n",
		"proc/meminfo=MemTotal:  4096 kB\nMemAvailable:  2048 kB\n",
	}
	r := roots(append(group, twoSockets...)...)
	if c := ReadCPU(r); c.Usable != 1 || c.Quota != 0.5 {
		t.Errorf("half a core granted: usable %d, quota %v; want 1, 0.5", c.Usable, c.Quota)
	}
	want := Memory{TotalBytes: 4 << 20, AvailableBytes: 2 << 20, LimitBytes: 1 << 20, LimitUsedBytes: 3 << 19, UsableBytes: 0}
	if diff := cmp.Diff(want, ReadMemory(r)); diff != "" {
		t.Errorf("a limit that is passed (-want +got):\n%s", diff)
	}
	want = Memory{TotalBytes: 4 << 20, AvailableBytes: 2 << 20, UsableBytes: 2 << 20}
	if diff := cmp.Diff(want, ReadMemory(roots(group[5:]...))); diff != "" {
		t.Errorf("no limit (-want +got):\n%s", diff)
	}
}

func TestSharedMemoryIsTriedAndRead(t *testing.T) {
	r := roots(
		"sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages=2\n", "sys/kernel/mm/hugepages/hugepages-1048576kB/free_hugepages=1\n",
		"sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages=0\n", "sys/kernel/mm/hugepages/hugepages-xkB/nr_hugepages=0\n",
		"sys/kernel/mm/transparent_hugepage/enabled=always [madvise] never\n",
		"sys/kernel/mm/transparent_hugepage/shmem_enabled=always within_size advise [never] deny force\n",
	)
	want := SharedMemory{
		Memfd:     Trial{Usable: true, Bytes: trialBytes},
		DevShm:    FileSystem{Path: "/dev/shm", TotalBytes: 64 << 20, FreeBytes: 32 << 20},
		HugePages: []HugePage{{2 << 20, 0, 0}, {1 << 30, 2, 1}},
		THP:       "madvise", THPShmem: "never",
	}
	if diff := cmp.Diff(want, ReadSharedMemory(r)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	r = roots()
	r.TryMemfd = func(int64) error { return errors.New("memfd_create: operation not permitted") }
	r.Statfs = func(string) (int64, int64, error) { return 0, 0, errors.New("/dev/shm: no such file or directory") }
	want = SharedMemory{
		Memfd:     Trial{Problem: "memfd_create: operation not permitted", Bytes: trialBytes},
		DevShm:    FileSystem{Path: "/dev/shm", Problem: "/dev/shm: no such file or directory"},
		HugePages: []HugePage{},
	}
	if diff := cmp.Diff(want, ReadSharedMemory(r)); diff != "" {
		t.Errorf("where nothing works (-want +got):\n%s", diff)
	}
}

func TestLimitsAreReadFromProc(t *testing.T) {
	const header = "proc/self/limits=Limit                     Soft Limit           Hard Limit           Units     \n"
	r := roots(header+
		"Max stack size            8388608              unlimited            bytes     \n"+
		"Max processes             96365                96366                processes \n"+
		"Max open files            1024                 20000                files     \n"+
		"Max locked memory         65536                18446744073709551615 bytes     \n",
		"proc/sys/kernel/yama/ptrace_scope=1\n")
	want := Limits{
		Stack: Limit{8 << 20, Unlimited}, NProc: Limit{96365, 96366}, NoFile: Limit{1024, 20000}, Memlock: Limit{64 << 10, Unlimited}, PtraceScope: 1,
	}
	if diff := cmp.Diff(want, ReadLimits(r)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	none := Limit{Unlimited, Unlimited}
	if got, want := ReadLimits(roots("proc/self/limits=Max open files\n")), (Limits{none, none, none, none, -1}); got != want {
		t.Errorf("without a text to read: %+v, want %+v", got, want)
	}
}

// The real roots answer, too: the machine that runs the tests is one.
func TestThisMachineAnswers(t *testing.T) {
	r := This(nil, nil)
	if c := ReadCPU(r); c.Online < 1 || c.Usable < 1 || c.Usable > c.Online {
		t.Errorf("processors: %+v", c)
	}
	if m := ReadMemory(r); m.TotalBytes <= 0 || m.UsableBytes < 0 || m.UsableBytes > m.TotalBytes {
		t.Errorf("memory: %+v", m)
	}
	if err := r.TryMemfd(trialBytes); err != nil {
		t.Errorf("memfd: %v", err)
	}
	if err := r.TryMemfd(-1); err == nil {
		t.Error("a memfd of -1 B was made")
	}
	if total, free, err := r.Statfs("/"); err != nil || total <= 0 || free < 0 || free > total {
		t.Errorf("statfs /: %d, %d, %v", total, free, err)
	}
	if _, _, err := r.Statfs("/absent"); err == nil {
		t.Error("statfs of a folder that is not there succeeded")
	}
	if l := ReadLimits(r); l.NoFile.Soft == 0 || l.NoFile.Hard < l.NoFile.Soft && l.NoFile.Hard != Unlimited {
		t.Errorf("limits: %+v", l)
	}
}
