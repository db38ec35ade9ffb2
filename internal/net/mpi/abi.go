package mpi

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/symgrad/symgrad/internal/dl"
)

// abi has the values in which the libraries differ. Functions have the same names and, as words,
// the same parameters in all of them. A handle is passed as a word.
type abi struct {
	name    string
	product string // for messages
	remedy  string // how to get the library
	sonames []string
	global  bool // symbols must be visible to plugins

	world, byteType, errorsReturn uintptr // MPI_COMM_WORLD, MPI_BYTE, MPI_ERRORS_RETURN
	tagUB                         uintptr // MPI_TAG_UB
	anySource, anyTag             int32
	serialized                    int32 // MPI_THREAD_SERIALIZED

	handleBytes               int // of MPI_Request, MPI_Comm and MPI_Message in memory
	statusBytes               int // of MPI_Status
	statusSource, statusError int // offsets of MPI_SOURCE, which MPI_TAG follows, and of MPI_ERROR

	classes classes
}

// classes has error classes. 0 stands for a class that the ABI lacks.
type classes struct {
	other, intern         int32 // MPI_ERR_OTHER, MPI_ERR_INTERN
	aborted               int32 // MPI_ERR_PROC_ABORTED
	failed, failedPending int32 // MPI_ERR_PROC_FAILED, MPI_ERR_PROC_FAILED_PENDING of ULFM
}

// The ABIs. openMPI lacks its handles: they are addresses of variables, which bind finds.
var (
	// openMPI is from mpi.h of Open MPI 4.1.4, and the classes of ULFM from that of 5.0.
	openMPI = abi{
		name: "openmpi", product: "Open MPI", remedy: "install libopenmpi3 or libopenmpi40, or set its path",
		sonames: []string{"libmpi.so.40"}, global: true,
		tagUB: 0, anySource: -1, anyTag: -1, serialized: 2,
		handleBytes: 8, statusBytes: 24, statusSource: 0, statusError: 8,
		classes: classes{other: 16, intern: 17, aborted: 74, failed: 75, failedPending: 76},
	}
	// mpich is from mpi.h of MPICH 4.0.2. The MPICH ABI Compatibility Initiative
	// (www.mpich.org/abi) holds its values and sonames for MPICH, Intel MPI, MVAPICH and Cray MPI.
	mpich = abi{
		name: "mpich", product: "MPICH", remedy: "install libmpich12, or set the path of a library of its ABI",
		sonames: []string{"libmpich.so.12", "libmpi.so.12"},
		world:   0x44000000, byteType: 0x4c00010d, errorsReturn: 0x54000001,
		tagUB: 0x64400001, anySource: -2, anyTag: -1, serialized: 2,
		handleBytes: 4, statusBytes: 20, statusSource: 8, statusError: 16,
		classes: classes{other: 15, intern: 16, failed: 101, failedPending: 102},
	}
	// standard is from the MPI 5.0 standard, chapter 20 and appendix A, in the form of mpi.h of
	// github.com/mpi-forum/mpi-abi-stubs at 14ef69eb81d6.
	standard = abi{
		name: "standard", product: "MPI 5 standard ABI", remedy: "install an MPI 5 library with its ABI, or set its path",
		sonames: []string{"libmpi_abi.so.1", "libmpi_abi.so.0"},
		world:   0x101, byteType: 0x247, errorsReturn: 0x142,
		tagUB: 501, anySource: -1, anyTag: -2, serialized: 2048,
		handleBytes: 8, statusBytes: 32, statusSource: 0, statusError: 8,
		classes: classes{other: 16, intern: 17, aborted: 58},
	}
)

// procs has the functions of MPI.
type procs struct {
	initThread    dl.Proc `dl:"MPI_Init_thread"`
	initialized   dl.Proc `dl:"MPI_Initialized"`
	finalize      dl.Proc `dl:"MPI_Finalize"`
	version       dl.Proc `dl:"MPI_Get_library_version"`
	errorString   dl.Proc `dl:"MPI_Error_string"`
	errorClass    dl.Proc `dl:"MPI_Error_class"`
	commRank      dl.Proc `dl:"MPI_Comm_rank"`
	commSize      dl.Proc `dl:"MPI_Comm_size"`
	commDup       dl.Proc `dl:"MPI_Comm_dup"`
	setErrhandler dl.Proc `dl:"MPI_Comm_set_errhandler"`
	getAttr       dl.Proc `dl:"MPI_Comm_get_attr"`
	isend         dl.Proc `dl:"MPI_Isend"`
	irecv         dl.Proc `dl:"MPI_Irecv"`
	cancel        dl.Proc `dl:"MPI_Cancel"`
	testCancelled dl.Proc `dl:"MPI_Test_cancelled"`
	improbe       dl.Proc `dl:"MPI_Improbe"`
	imrecv        dl.Proc `dl:"MPI_Imrecv"`
	testSome      dl.Proc `dl:"MPI_Testsome"`
	getCount      dl.Proc `dl:"MPI_Get_count"`
}

// variables has the handles of Open MPI.
type variables struct {
	World        uintptr `dl:"ompi_mpi_comm_world"`
	Byte         uintptr `dl:"ompi_mpi_byte"`
	ErrorsReturn uintptr `dl:"ompi_mpi_errors_return"`
}

// library is a loaded library.
type library struct {
	procs
	ulfm ulfm
	abi
	Library
}

// bind returns the functions and values of lib. a is its ABI, or nil if identify must find it.
func bind(lib *dl.Library, a *abi) (*library, error) {
	l := &library{}
	if err := errors.Join(lib.Bind(&l.procs), lib.Bind(&l.ulfm)); err != nil {
		return nil, fmt.Errorf("mpi: %w", err)
	}
	l.Path = lib.Path()
	l.Version = l.versionText()
	if a == nil {
		if a = identify(lib, l.Version); a == nil {
			return nil, fmt.Errorf("mpi: %s has an unknown ABI (%q): use Open MPI 4 or 5, a library of MPICH's ABI, or an MPI 5 library named libmpi_abi.so", lib.Path(), l.Version)
		}
	}
	l.abi, l.ABI = *a, a.name
	if a.world != 0 {
		return l, nil
	}
	var v variables
	if err := lib.Bind(&v); err != nil {
		return nil, fmt.Errorf("mpi: %w", err)
	}
	l.world, l.byteType, l.errorsReturn = v.World, v.Byte, v.ErrorsReturn
	return l, nil
}

// identify returns the ABI of a library that was named by its path, or nil. The file name decides
// first: a library of the standard ABI may depend on one of its product's own ABI.
func identify(lib *dl.Library, version string) *abi {
	if strings.HasPrefix(filepath.Base(lib.Path()), "libmpi_abi") {
		return &standard
	}
	if _, err := lib.Lookup("ompi_mpi_comm_world"); err == nil {
		return &openMPI
	}
	for _, product := range []string{"MPICH", "Intel(R) MPI", "MVAPICH"} {
		if strings.Contains(version, product) {
			return &mpich
		}
	}
	return nil
}
