package hostexec

import "golang.org/x/sys/unix"

// machineBytes is the memory of this machine, with what it may swap; 0 where it does not tell.
func machineBytes() int64 {
	var s unix.Sysinfo_t
	if unix.Sysinfo(&s) != nil {
		return 0
	}
	return (int64(s.Totalram) + int64(s.Totalswap)) * int64(s.Unit)
}
