//go:build linux

package launch

import (
	"maps"
	"strings"
	"testing"
)

// A rank is said to have been killed for memory once for each time that the kernel counts, and
// otherwise not.
func TestLackOfMemoryExplainsAKill(t *testing.T) {
	const (
		v1 = "36 32 0:33 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
		v2 = "35 24 0:31 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
	)
	for name, c := range map[string]struct {
		files, killed map[string]string // before, and the differences afterwards
		want          string
	}{
		"version 1": {
			map[string]string{
				"/proc/self/mountinfo": v1, "/proc/self/cgroup": "4:memory:/job/a\n",
				"/sys/fs/cgroup/memory/job/a/memory.oom_control":      "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n",
				"/sys/fs/cgroup/memory/job/a/memory.limit_in_bytes":   "9223372036854771712\n",
				"/sys/fs/cgroup/memory/job/memory.limit_in_bytes":     "104857600\n",
				"/sys/fs/cgroup/memory/job/memory.max_usage_in_bytes": "104333312\n",
				"/sys/fs/cgroup/memory/memory.limit_in_bytes":         "209715200\n",
				"/proc/vmstat": "oom_kill 7\n",
			},
			map[string]string{
				"/sys/fs/cgroup/memory/job/a/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 4\n",
				"/proc/vmstat": "oom_kill 8\n",
			},
			"; memory ran out: the control group /sys/fs/cgroup/memory/job has a limit of 100.0 MiB, and had 99.5 MiB in use",
		},
		"version 2": {
			map[string]string{
				"/proc/self/mountinfo": v2, "/proc/self/cgroup": "0::/job\n",
				"/sys/fs/cgroup/job/memory.events": "low 0\noom 1\noom_kill 0\n", "/sys/fs/cgroup/job/memory.max": "52428800\n",
				"/sys/fs/cgroup/job/memory.peak": "52428800\n", "/sys/fs/cgroup/memory.max": "max\n",
			},
			map[string]string{"/sys/fs/cgroup/job/memory.events": "low 0\noom 2\noom_kill 1\n"},
			"; memory ran out: the control group /sys/fs/cgroup/job has a limit of 50.0 MiB, and had 50.0 MiB in use",
		},
		"version 2 before 5.19": {
			map[string]string{
				"/proc/self/mountinfo": v2, "/proc/self/cgroup": "0::/job\n",
				"/sys/fs/cgroup/job/memory.events": "oom_kill 0\n", "/sys/fs/cgroup/job/memory.max": "52428800\n",
				"/sys/fs/cgroup/job/memory.current": "10485760\n",
			},
			map[string]string{"/sys/fs/cgroup/job/memory.events": "oom_kill 1\n"},
			"; memory ran out: the control group /sys/fs/cgroup/job has a limit of 50.0 MiB, and has 10.0 MiB in use without the rank",
		},
		"the machine": {
			map[string]string{"/proc/vmstat": "oom_kill 1\n", "/proc/meminfo": "MemTotal:  2048 kB\nMemFree: 1 kB\nMemAvailable: 1024 kB\n"},
			map[string]string{"/proc/vmstat": "oom_kill 2\n"},
			"; perhaps out of memory: the kernel has killed a process for that on this machine, which has 2.0 MiB, of which 1.0 MiB are left",
		},
		"nothing is known": {map[string]string{}, map[string]string{}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			files := maps.Clone(c.files)
			m := newMemoryWatch(func(name string) string { return files[name] })
			if got := m.explain(); got != "" {
				t.Errorf("before any kill: %q", got)
			}
			maps.Copy(files, c.killed)
			if got := m.explain(); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
			if got := m.explain(); got != "" {
				t.Errorf("a second time for one kill: %q", got)
			}
		})
	}
}

// The explanation is part of how a rank has ended, and is asked for only where the launcher did not
// kill it.
func TestAKilledRankIsReportedWithItsSignal(t *testing.T) {
	c := &child{memory: "; memory ran out"}
	c.status = 9 // killed, of wait(2)
	if got := c.how(); !strings.HasSuffix(got, "killed; memory ran out") || !c.unasked() {
		t.Errorf("got %q, unasked %v", got, c.unasked())
	}
	if c.stopped = true; c.unasked() {
		t.Error("a rank that the launcher killed is looked at")
	}
}
