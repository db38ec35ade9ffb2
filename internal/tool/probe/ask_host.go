package probe

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/symgrad/symgrad/internal/dl"
	"github.com/symgrad/symgrad/internal/host/blas"
)

// askBLAS lets package blas try a library, or search for one.
func askBLAS(q Question) Answer {
	impl, err := blas.Open(blas.Config{Path: q.File})
	switch {
	case errors.Is(err, dl.ErrNotFound):
		return Answer{Path: q.File, Problem: loaderWords(err, q.File)}
	case err != nil:
		_, why, ok := strings.Cut(err.Error(), blas.ErrRejected.Error()+": ")
		if !ok {
			why = err.Error()
		}
		return Answer{Loaded: true, Path: q.File, Problem: why}
	}
	info := impl.Info()
	return Answer{Loaded: true, Path: info.Path, Version: info.Version, BLAS: info}
}

// mpiVersionBytes is MPI_MAX_LIBRARY_VERSION_STRING of MPICH and of the MPI-5 ABI; Open MPI writes
// at most 256.
const mpiVersionBytes = 8192

// askMPI identifies an MPI library. MPI_Get_version and MPI_Get_library_version may be called
// before MPI_Init (MPI 3.1, section 8.1.1).
func askMPI(lib *dl.Library, a *Answer) error {
	var api struct {
		version     func(major, minor *int32) int32       `dl:"MPI_Get_version"`
		library     func(text *byte, length *int32) int32 `dl:"MPI_Get_library_version"`
		abi         dl.Proc                               `dl:"MPI_Abi_get_version,optional,since=5.0"`
		openMPIMark uintptr                               `dl:"ompi_mpi_comm_world,optional"`
	}
	if err := lib.Bind(&api); err != nil {
		return err
	}
	var major, minor, length int32
	if rc := api.version(&major, &minor); rc != 0 {
		return fmt.Errorf("MPI_Get_version answers %d", rc)
	}
	text := make([]byte, mpiVersionBytes)
	if rc := api.library(&text[0], &length); rc != 0 {
		return fmt.Errorf("MPI_Get_library_version answers %d", rc)
	}
	full, _, _ := bytes.Cut(text, []byte{0})
	a.Version = fmt.Sprintf("%s (MPI %d.%d)", mpiVersion(string(full)), major, minor)
	switch {
	case api.abi.Err() == nil:
		a.Notes = append(a.Notes, "the MPI-5 ABI")
	case api.openMPIMark != 0:
		a.Notes = append(a.Notes, "Open MPI's ABI")
	default:
		a.Notes = append(a.Notes, "MPICH's ABI")
	}
	return nil
}

// mpiVersion shortens the text of MPI_Get_library_version:
//
//	"Open MPI v4.1.4, package: Debian OpenMPI, ident: 4.1.4, ..." is "Open MPI 4.1.4"
//	"MPICH Version:\t4.0.2\nMPICH Release date:\t..." is "MPICH 4.0.2"
//	"Intel(R) MPI Library 2021.12 for Linux* OS\n" stays, without the newline
func mpiVersion(text string) string {
	line := firstLine(text)
	if rest, ok := strings.CutPrefix(line, "Open MPI v"); ok {
		number, _, _ := strings.Cut(rest, ",")
		return "Open MPI " + number
	}
	if name, number, ok := strings.Cut(line, " Version:"); ok {
		return name + " " + strings.TrimSpace(number)
	}
	return line
}

// askUCX asks for the version, which needs no context.
func askUCX(lib *dl.Library, a *Answer) error {
	var api struct {
		version func() string `dl:"ucp_get_version_string"`
	}
	if err := lib.Bind(&api); err != nil {
		return err
	}
	a.Version = "UCX " + api.version()
	return nil
}

// askSHMEM asks for name and version, which need no shmem_init (OpenSHMEM 1.4, section 9.1.11).
func askSHMEM(lib *dl.Library, a *Answer) error {
	var api struct {
		version func(major, minor *int32) `dl:"shmem_info_get_version"`
		name    func(text *byte)          `dl:"shmem_info_get_name,optional"`
		signal  dl.Proc                   `dl:"shmem_signal_fetch,optional,since=1.5"`
	}
	if err := lib.Bind(&api); err != nil {
		return err
	}
	var major, minor int32
	api.version(&major, &minor)
	a.Version = fmt.Sprintf("OpenSHMEM %d.%d", major, minor)
	if api.name != nil {
		text := make([]byte, 4096) // SHMEM_MAX_NAME_LEN is 256 or less
		api.name(&text[0])
		name, _, _ := bytes.Cut(text, []byte{0})
		if n := firstLine(string(name)); n != "" {
			a.Notes = append(a.Notes, n)
		}
	}
	if err := api.signal.Err(); err != nil {
		a.Notes = append(a.Notes, "no signals, which came with OpenSHMEM 1.5")
	}
	return nil
}
