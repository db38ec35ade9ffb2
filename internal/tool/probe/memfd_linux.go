package probe

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// statfs returns the size of the file system at a path, and the part that is free for this user.
func statfs(path string) (total, free int64, err error) {
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return 0, 0, fmt.Errorf("%s: %w", path, err)
	}
	return int64(s.Blocks) * int64(s.Bsize), int64(s.Bavail) * int64(s.Bsize), nil
}

// tryMemfd creates shared memory as backend shm does and frees it.
func tryMemfd(bytes int64) (err error) {
	fd, err := unix.MemfdCreate("symgrad-doctor", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return fmt.Errorf("memfd_create: %w", err)
	}
	defer func() { err = errors.Join(err, unix.Close(fd)) }()
	if err := unix.Ftruncate(fd, bytes); err != nil {
		return fmt.Errorf("set size to %d B: %w", bytes, err)
	}
	err = unix.Fallocate(fd, 0, 0, bytes)
	for errors.Is(err, unix.EINTR) { // Go interrupts threads with signals
		err = unix.Fallocate(fd, 0, 0, bytes)
	}
	if err != nil {
		return fmt.Errorf("reserve %d B: %w", bytes, err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL); err != nil {
		return fmt.Errorf("seal: %w", err)
	}
	memory, err := unix.Mmap(fd, 0, int(bytes), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("map %d B: %w", bytes, err)
	}
	memory[0], memory[len(memory)-1] = 1, 1
	if err := unix.Ftruncate(fd, bytes/2); err == nil {
		err = errors.New("a sealed file could be cut short")
		return errors.Join(err, unix.Munmap(memory))
	}
	return unix.Munmap(memory)
}
