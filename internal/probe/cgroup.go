package probe

import (
	"path"
	"slices"
	"strconv"
	"strings"
)

// A process is in one control group of each hierarchy. Version 2 has one hierarchy for everything, version 1 has one for each controller, and machines
// mix them: a controller is in one or the other. Limits hold for all groups above as well. See cgroups(7).

// unlimited is where limits of version 1 begin to mean none: it writes the largest multiple of a page.
const unlimited = int64(1) << 62

// cgroupDirs is the folders with the control files of one controller for this process: that of its group, then those above.
func cgroupDirs(r Roots, controller string) (dirs []string, version int) {
	for line := range strings.Lines(r.text("/proc/self/cgroup")) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3) // "4:memory:/a/b"; version 2 is "0::/a/b"
		if len(parts) == 3 && slices.Contains(strings.Split(parts[1], ","), controller) {
			if dirs := mountedDirs(r, "cgroup", controller, parts[2]); len(dirs) > 0 {
				return dirs, 1
			}
		}
	}
	for line := range strings.Lines(r.text("/proc/self/cgroup")) {
		if group, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			return mountedDirs(r, "cgroup2", "", group), 2
		}
	}
	return nil, 0
}

// mountedDirs is the folders of a group and of those above it, in the first hierarchy of this type that is mounted with the option.
func mountedDirs(r Roots, fsType, option, group string) []string {
	for line := range strings.Lines(r.text("/proc/self/mountinfo")) {
		// "35 32 0:31 /in/fs /mount/point rw,relatime shared:9 - cgroup cgroup rw,memory" (proc_pid_mountinfo(5))
		before, after, ok := strings.Cut(line, " - ")
		head, tail := strings.Fields(before), strings.Fields(after)
		if !ok || len(head) < 5 || len(tail) < 3 || tail[0] != fsType {
			continue
		}
		if option != "" && !slices.Contains(strings.Split(tail[2], ","), option) {
			continue
		}
		root, mount := head[3], head[4]
		rel, inside := strings.CutPrefix(group, strings.TrimSuffix(root, "/"))
		if !inside || strings.HasPrefix(rel, "/..") {
			rel = "" // a container sees its own group at the mount point, whatever the group is called outside
		}
		var dirs []string
		for p := path.Clean("/" + rel); ; p = path.Dir(p) {
			dirs = append(dirs, path.Join(mount, p))
			if p == "/" {
				return dirs
			}
		}
	}
	return nil
}

// cpuQuota is how many processors' worth of time the control groups grant; 0 is no limit.
func cpuQuota(r Roots) float64 {
	dirs, version := cgroupDirs(r, "cpu")
	least := 0.0
	for _, dir := range dirs {
		var quota, period float64
		if version == 2 {
			if words := strings.Fields(r.text(dir + "/cpu.max")); len(words) == 2 { // "max 100000" or "150000 100000"
				quota, _ = strconv.ParseFloat(words[0], 64) // 0 for max
				period, _ = strconv.ParseFloat(words[1], 64)
			}
		} else {
			q, _ := r.number(dir + "/cpu.cfs_quota_us") // -1 for none
			p, _ := r.number(dir + "/cpu.cfs_period_us")
			quota, period = float64(q), float64(p)
		}
		if quota > 0 && period > 0 && (least == 0 || quota/period < least) {
			least = quota / period
		}
	}
	return least
}

// memoryLimit is the least room that the control groups leave: the limit that is nearest to being reached, and what counts against it. A limit of 0 is none.
// Cached files do not count: the kernel drops them when memory is wanted.
func memoryLimit(r Roots) (limit, used int64) {
	dirs, version := cgroupDirs(r, "memory")
	limitFile, usedFile, total := "/memory.max", "/memory.current", ""
	if version == 1 {
		limitFile, usedFile, total = "/memory.limit_in_bytes", "/memory.usage_in_bytes", "total_" // with the groups below, as in version 2
	}
	for _, dir := range dirs {
		l, ok := r.number(dir + limitFile) // "max" is no number
		if !ok || l <= 0 || l >= unlimited {
			continue
		}
		u, _ := r.number(dir + usedFile)
		u = max(0, u-cachedFiles(r, dir, total))
		if limit == 0 || l-u < limit-used {
			limit, used = l, u
		}
	}
	return limit, used
}

// cachedFiles is the bytes of files that a group has in memory, which are not shared memory: that is in neither kind.
func cachedFiles(r Roots, dir, total string) (bytes int64) {
	for line := range strings.Lines(r.text(dir + "/memory.stat")) {
		key, text, _ := strings.Cut(strings.TrimSpace(line), " ")
		if n, err := strconv.ParseInt(text, 10, 64); err == nil && (key == total+"inactive_file" || key == total+"active_file") {
			bytes += n
		}
	}
	return bytes
}
