package mpi

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// mpiexec returns both ends of a connection as mpiexec leaves it: that of the process, and its own.
func mpiexec(t *testing.T) (process, own int) {
	t.Helper()
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(pair[1]) })
	return pair[0], pair[1]
}

func TestFinishTellsMPIExec(t *testing.T) {
	process, own := mpiexec(t)
	defer syscall.Close(process)
	p := pmiOf(map[string]string{"PMI_FD": strconv.Itoa(process)})
	if _, err := syscall.Write(own, []byte("cmd=finalize_ack\n")); err != nil {
		t.Fatal(err)
	}
	if err := p.finish(); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 64)
	if n, err := syscall.Read(own, b); err != nil || string(b[:max(n, 0)]) != "cmd=finalize\n" {
		t.Errorf("mpiexec read %q, error %v", b[:max(n, 0)], err)
	}
}

func TestFinishReportsMPIExecThatIsGone(t *testing.T) {
	process, own := mpiexec(t)
	defer syscall.Close(process)
	p := pmiOf(map[string]string{"PMI_FD": strconv.Itoa(process)})
	if err := syscall.Shutdown(own, syscall.SHUT_WR); err != nil {
		t.Fatal(err)
	}
	if err := p.finish(); err == nil || !strings.Contains(err.Error(), "has ended this job") {
		t.Errorf("error %v", err)
	}
}

// MPI_Finalize of MPICH 4.0 closes the connection. Another file may get its number.
func TestFinishLeavesOtherFilesAlone(t *testing.T) {
	process, _ := mpiexec(t)
	p := pmiOf(map[string]string{"PMI_FD": strconv.Itoa(process)})
	other, own := mpiexec(t)
	defer syscall.Close(other)
	if err := syscall.Dup3(other, process, 0); err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(process)
	if err := p.finish(); err != nil {
		t.Fatal(err)
	}
	if err := syscall.SetNonblock(own, true); err != nil {
		t.Fatal(err)
	}
	if n, err := syscall.Read(own, make([]byte, 64)); err != syscall.EAGAIN {
		t.Errorf("read %d bytes, error %v", n, err)
	}
}

func TestPMIIsEmptyWithoutASocket(t *testing.T) {
	file, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	process, _ := mpiexec(t)
	defer syscall.Close(process)
	fd := strconv.Itoa(process)
	for _, env := range []map[string]string{
		{},
		{"PMI_FD": "x"},
		{"PMI_FD": strconv.Itoa(int(file.Fd()))},
		{"PMI_FD": fd, "MPIR_CVAR_PMI_VERSION": "2"},
	} {
		if p := pmiOf(env); p != (pmi{}) {
			t.Errorf("%v: %+v", env, p)
		}
	}
}
