package launch

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// memoryFile makes a read-only file that holds data, in memory, without a name, closed on exec.
// Unlike a pipe it can be read again, by a rank's second rendezvous and by a program that a wrapper
// script starts.
//
// Owns: the caller closes the file.
func memoryFile(name string, data []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("memfd_create: %w", err)
	}
	f := os.NewFile(uintptr(fd), name)
	if _, err = f.Write(data); err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_WRITE|unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL)
	}
	if err != nil {
		_ = f.Close() // err has the cause
		return nil, fmt.Errorf("memory file %s: %w", name, err)
	}
	return f, nil
}

// readInherited returns the content of the file of the inherited descriptor fd, of at most so many
// bytes. The descriptor stays open for later calls, but not for programs that this one starts.
func readInherited(fd int, most int64) ([]byte, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Size > most {
		return nil, fmt.Errorf("not a file of the launcher: mode %o, %d B", st.Mode, st.Size)
	}
	unix.CloseOnExec(fd)
	data := make([]byte, st.Size)
	n, err := unix.Pread(fd, data, 0)
	if err != nil {
		return nil, err
	}
	return data[:n], nil
}
