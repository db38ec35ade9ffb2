package mpi

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"syscall"
)

// pmi is the connection of this process to mpiexec, by version 1 of MPICH's process management
// interface.
//
// From 4.1 on MPICH sends "finalize" to mpiexec in a handler of C's exit, because MPI may begin
// again in a session (MPIR_pmi_finalize_on_exit in its src/util/mpir_pmi.c). A Go program does not
// call C's exit. Its end would look like a failure, and mpiexec would kill the other processes.
type pmi struct {
	fd       int // 0: none
	dev, ino uint64
}

// pmiOf returns the connection that mpiexec left to this process.
func pmiOf(env map[string]string) pmi {
	fd, err := strconv.Atoi(env["PMI_FD"])
	if version := env["MPIR_CVAR_PMI_VERSION"]; err != nil || version != "" && version != "1" {
		return pmi{}
	}
	p := pmi{fd: fd}
	var ok bool
	if p.dev, p.ino, ok = socket(fd); !ok {
		return pmi{}
	}
	return p
}

// socket returns the identity of an open socket.
func socket(fd int) (dev, ino uint64, ok bool) {
	var st syscall.Stat_t
	if err := syscall.Fstat(fd, &st); err != nil || st.Mode&syscall.S_IFMT != syscall.S_IFSOCK {
		return 0, 0, false
	}
	return st.Dev, st.Ino, true
}

// finish sends "finalize" to mpiexec and waits for its answer. It does nothing if MPI_Finalize has
// closed the connection, and perhaps another file has its number.
func (p pmi) finish() error {
	if p.fd == 0 {
		return nil
	}
	if dev, ino, ok := socket(p.fd); !ok || dev != p.dev || ino != p.ino {
		return nil
	}
	if _, err := syscall.Write(p.fd, []byte("cmd=finalize\n")); err != nil {
		return fmt.Errorf("mpi: finalize to mpiexec: %w", err)
	}
	var answer []byte
	for b := make([]byte, 64); !bytes.ContainsRune(answer, '\n'); {
		n, err := syscall.Read(p.fd, b)
		switch {
		case err == syscall.EINTR:
		case err != nil:
			return fmt.Errorf("mpi: finalize to mpiexec: %w", err)
		case n == 0:
			return errors.New("mpi: mpiexec has closed its connection: it has ended this job")
		default:
			answer = append(answer, b[:n]...)
		}
	}
	return nil
}
