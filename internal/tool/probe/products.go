package probe

import "github.com/symgrad/symgrad/internal/dl"

// family is the section of the report that a product belongs to.
type family int

const (
	familyBLAS family = iota
	familyMPI
	familyUCX
	familySHMEM
	familyDriver
	familyGPU
)

// product is a library to search: its names, and the function that asks for its version.
type product struct {
	Name    string
	family  family
	sonames []string   // the best first
	home    dl.Product // its variable has the highest priority; the zero Product for none
	global  bool       // needs RTLD_GLOBAL: it loads plugins that look for its symbols
	ask     func(lib *dl.Library, a *Answer) error
}

// products lists the libraries to search, in the order of the report. The sonames are those of
// Debian's packages and of NVIDIA's wheels, CUDA 11 to 13.
var products = []product{
	{Name: "mkl", family: familyBLAS, sonames: []string{"libmkl_rt.so.2"}},
	{Name: "openblas", family: familyBLAS, sonames: []string{"libopenblas.so.0"}},
	{Name: "blis", family: familyBLAS, sonames: []string{"libblis.so.4"}},
	{Name: "blas", family: familyBLAS}, // the program's choice, or the configured one

	{Name: "mpi-abi", family: familyMPI, sonames: []string{"libmpi_abi.so.1", "libmpi_abi.so.0", "libmpi_abi.so"}, global: true, ask: askMPI},
	{Name: "openmpi", family: familyMPI, sonames: []string{"libmpi.so.40"}, global: true, ask: askMPI},
	// libmpi.so.12 is MPICH under its own name, Intel MPI and MVAPICH.
	{Name: "mpich", family: familyMPI, sonames: []string{"libmpich.so.12", "libmpi.so.12"}, global: true, ask: askMPI},
	{Name: "ucx", family: familyUCX, sonames: []string{"libucp.so.0"}, ask: askUCX},
	{Name: "openshmem", family: familySHMEM, sonames: []string{"liboshmem.so.40", "libsma.so.1"}, global: true, ask: askSHMEM},

	{Name: "cuda-driver", family: familyDriver, sonames: []string{"libcuda.so.1"}, ask: askDriver},
	{Name: "cudart", family: familyGPU, sonames: []string{"libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0"}, ask: askCUDART},
	{Name: "nvrtc", family: familyGPU, sonames: []string{"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2"}, ask: askNVRTC},
	{Name: "nvjitlink", family: familyGPU, sonames: []string{"libnvJitLink.so.13", "libnvJitLink.so.12"}, ask: askNVJitLink},
	{Name: "cublas", family: familyGPU, sonames: []string{"libcublas.so.13", "libcublas.so.12", "libcublas.so.11"}, ask: askCUBLAS},
	{Name: "cudnn", family: familyGPU, sonames: []string{"libcudnn.so.9", "libcudnn.so.8"}, ask: askCUDNN},
	{Name: "nccl", family: familyGPU, home: dl.NCCL, sonames: dl.NCCL.Sonames, ask: askNCCL},
	{Name: "nvshmem", family: familyGPU, home: dl.NVSHMEM, sonames: []string{"libnvshmem_host.so.3", "libnvshmem_host.so.2"}, global: true, ask: askNVSHMEM},
}

// productByName returns the product with this name.
func productByName(name string) (product, bool) {
	for _, p := range products {
		if p.Name == name {
			return p, true
		}
	}
	return product{}, false
}

// ProductNames returns the names of all products, for Options.Files.
func ProductNames() []string {
	names := make([]string, len(products))
	for i, p := range products {
		names[i] = p.Name
	}
	return names
}
