// Package cgroup finds the control groups of this process: the limits of a container.
//
// A process is in one control group of each hierarchy. Version 2 has one hierarchy for everything,
// version 1 has one for each controller. A machine may have both, with each controller in one of
// them. Limits of all parent groups hold too. See cgroups(7).
package cgroup

import (
	"path"
	"slices"
	"strings"
)

// Unlimited is the least value that means no limit in version 1, which writes the largest multiple
// of a page for it.
const Unlimited = int64(1) << 62

// Dirs returns the folders with the control files of one controller for this process: that of its
// group, then those of its parents. read returns the text of a file, "" if it is missing.
func Dirs(read func(name string) string, controller string) (dirs []string, version int) {
	for line := range strings.Lines(read("/proc/self/cgroup")) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3) // "4:memory:/a/b"; version 2 is "0::/a/b"
		if len(parts) == 3 && slices.Contains(strings.Split(parts[1], ","), controller) {
			if dirs := mountedDirs(read, "cgroup", controller, parts[2]); len(dirs) > 0 {
				return dirs, 1
			}
		}
	}
	for line := range strings.Lines(read("/proc/self/cgroup")) {
		if group, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			return mountedDirs(read, "cgroup2", "", group), 2
		}
	}
	return nil, 0
}

// mountedDirs returns the folders of a group and of its parents, in the first hierarchy of this
// type that is mounted with the option.
func mountedDirs(read func(name string) string, fsType, option, group string) []string {
	for line := range strings.Lines(read("/proc/self/mountinfo")) {
		// "35 32 0:31 /in/fs /mount/point rw,relatime shared:9 - cgroup cgroup rw,memory"
		// (proc_pid_mountinfo(5))
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
