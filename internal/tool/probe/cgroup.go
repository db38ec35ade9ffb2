package probe

import (
	"strconv"
	"strings"

	"github.com/symgrad/symgrad/internal/host/cgroup"
)

// cpuQuota returns the processor time that the control groups grant, in processors; 0 means no
// limit.
func cpuQuota(r Roots) float64 {
	dirs, version := cgroup.Dirs(r.text, "cpu")
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

// memoryLimit returns limit and use of the control group with the least remaining memory. A limit
// of 0 means none. Cached files do not count: the kernel drops them when memory is needed.
func memoryLimit(r Roots) (limit, used int64) {
	dirs, version := cgroup.Dirs(r.text, "memory")
	limitFile, usedFile, total := "/memory.max", "/memory.current", ""
	if version == 1 {
		limitFile, usedFile, total = "/memory.limit_in_bytes", "/memory.usage_in_bytes", "total_" // including the groups below, as in version 2
	}
	for _, dir := range dirs {
		l, ok := r.number(dir + limitFile) // "max" is no number
		if !ok || l <= 0 || l >= cgroup.Unlimited {
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

// cachedFiles returns the bytes of a group's cached files. They do not include shared memory.
func cachedFiles(r Roots, dir, total string) (bytes int64) {
	for line := range strings.Lines(r.text(dir + "/memory.stat")) {
		key, text, _ := strings.Cut(strings.TrimSpace(line), " ")
		if n, err := strconv.ParseInt(text, 10, 64); err == nil && (key == total+"inactive_file" || key == total+"active_file") {
			bytes += n
		}
	}
	return bytes
}
