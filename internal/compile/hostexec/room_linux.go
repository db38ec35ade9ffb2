package hostexec

import "golang.org/x/sys/unix"

// machineBytes returns the memory of this machine, including swap; 0 if unknown.
func machineBytes() int64 {
	var s unix.Sysinfo_t
	if unix.Sysinfo(&s) != nil {
		return 0
	}
	return (int64(s.Totalram) + int64(s.Totalswap)) * int64(s.Unit)
}
