package probe

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/symgrad/symgrad/internal/dl"
)

// None of these calls needs a GPU. An answer shows that the library and its dependencies could be
// loaded.

// askCUDART asks the CUDA runtime, whose version is 1000*major + 10*minor.
func askCUDART(lib *dl.Library, a *Answer) error {
	var api struct {
		version func(v *int32) int32 `dl:"cudaRuntimeGetVersion"`
	}
	if err := lib.Bind(&api); err != nil {
		return err
	}
	var v int32
	if rc := api.version(&v); rc != 0 {
		return fmt.Errorf("cudaRuntimeGetVersion answers %d", rc)
	}
	a.Version = cudaVersion(v)
	return nil
}

// cudaVersion formats a version of the CUDA driver or runtime: 13000 is 13.0.
func cudaVersion(v int32) string { return fmt.Sprintf("%d.%d", v/1000, v%1000/10) }

// askCUBLAS asks for the three parts of the version (libraryPropertyType: 0, 1, 2). Unlike
// cublasGetVersion_v2, that needs no handle and so no GPU.
func askCUBLAS(lib *dl.Library, a *Answer) error {
	var api struct {
		property func(which int32, value *int32) int32 `dl:"cublasGetProperty"`
	}
	if err := lib.Bind(&api); err != nil {
		return err
	}
	var parts [3]int32
	for i := range parts {
		if rc := api.property(int32(i), &parts[i]); rc != 0 {
			return fmt.Errorf("cublasGetProperty(%d) answers %d", i, rc)
		}
	}
	a.Version = fmt.Sprintf("%d.%d.%d", parts[0], parts[1], parts[2])
	return nil
}

// askCUDNN asks for the version and for the CUDA runtime that cuDNN was built with.
func askCUDNN(lib *dl.Library, a *Answer) error {
	var api struct {
		version func() uintptr `dl:"cudnnGetVersion"`
		runtime func() uintptr `dl:"cudnnGetCudartVersion,optional"`
	}
	if err := lib.Bind(&api); err != nil {
		return err
	}
	a.Version = cudnnVersion(int(api.version()))
	if api.runtime != nil {
		a.Notes = append(a.Notes, "built with CUDA "+cudaVersion(int32(api.runtime())))
	}
	return nil
}

// cudnnVersion formats cuDNN's version: 91002 is 9.10.2 and, up to version 8, 8907 is 8.9.7
// (CUDNN_VERSION of cudnn_version.h).
func cudnnVersion(v int) string {
	major := 10000
	if v < 90000 {
		major = 1000
	}
	return fmt.Sprintf("%d.%d.%d", v/major, v%major/100, v%100)
}

// askNCCL asks for the version.
func askNCCL(lib *dl.Library, a *Answer) error {
	var api struct {
		version func(v *int32) int32 `dl:"ncclGetVersion"`
		windows dl.Proc              `dl:"ncclCommWindowRegister,optional,since=2.27.3"`
	}
	if err := lib.Bind(&api); err != nil {
		return err
	}
	var v int32
	if rc := api.version(&v); rc != 0 {
		return fmt.Errorf("ncclGetVersion answers %d", rc)
	}
	a.Version = ncclVersion(v)
	if api.windows.Err() != nil {
		a.Notes = append(a.Notes, "no symmetric windows, which came with NCCL 2.27.3")
	}
	return nil
}

// ncclVersion formats NCCL's version: 22803 is 2.28.3 and, before 2.9, 2804 is 2.8.4 (NCCL_VERSION
// of nccl.h).
func ncclVersion(v int32) string {
	major := int32(10000)
	if v < 10000 {
		major = 1000
	}
	return fmt.Sprintf("%d.%d.%d", v/major, v%major/100, v%100)
}

// askNVSHMEM asks for the versions of product and specification, which need no initialization.
func askNVSHMEM(lib *dl.Library, a *Answer) error {
	var api struct {
		vendor func(major, minor, patch *int32) `dl:"nvshmemx_vendor_get_version_info"`
		spec   func(major, minor *int32)        `dl:"nvshmem_info_get_version,optional"`
		init   dl.Proc                          `dl:"nvshmemx_hostlib_init_attr"` // starts it in a program without nvcc
	}
	if err := lib.Bind(&api); err != nil {
		return err
	}
	var major, minor, patch int32
	api.vendor(&major, &minor, &patch)
	a.Version = fmt.Sprintf("%d.%d.%d", major, minor, patch)
	if api.spec != nil {
		api.spec(&major, &minor)
		a.Notes = append(a.Notes, fmt.Sprintf("OpenSHMEM specification %d.%d", major, minor))
	}
	if _, err := lib.OpenBeside("NVSHMEM's plugin by which ranks meet", true, bootstrap, bootstrapBare); err != nil {
		a.Notes = append(a.Notes, fmt.Sprintf("%s: %v", cannotStart, err))
	}
	return nil
}

// NVSHMEM's bootstrap plugin for programs without MPI, and the start of the note if it is missing.
const (
	bootstrap     = "nvshmem_bootstrap_uid.so.3"
	bootstrapBare = "nvshmem_bootstrap_uid.so"
	cannotStart   = "NVSHMEM cannot start"
)

// askNVJitLink asks for the version, which libraries from 12.3 on report.
func askNVJitLink(lib *dl.Library, a *Answer) error {
	var api struct {
		version func(major, minor *uint32) int32 `dl:"nvJitLinkVersion,optional,since=12.3"`
	}
	if err := lib.Bind(&api); err != nil {
		return err
	}
	if api.version == nil {
		a.Notes = append(a.Notes, "reports no version, so it is older than 12.3")
		return nil
	}
	var major, minor uint32
	if rc := api.version(&major, &minor); rc != 0 {
		return fmt.Errorf("nvJitLinkVersion answers %d", rc)
	}
	a.Version = fmt.Sprintf("%d.%d", major, minor)
	return nil
}

// askNVRTC asks for the version and compiles a kernel, because libnvrtc-builtins, which NVRTC needs
// for that, is loaded only then.
func askNVRTC(lib *dl.Library, a *Answer) error {
	var api struct {
		version   func(major, minor *int32) int32                                                         `dl:"nvrtcVersion"`
		create    func(prog *uintptr, src, name string, headers int32, texts, names unsafe.Pointer) int32 `dl:"nvrtcCreateProgram"`
		compile   func(prog uintptr, options int32, list unsafe.Pointer) int32                            `dl:"nvrtcCompileProgram"`
		logSize   func(prog uintptr, size *uintptr) int32                                                 `dl:"nvrtcGetProgramLogSize"`
		log       func(prog uintptr, text *byte) int32                                                    `dl:"nvrtcGetProgramLog"`
		destroy   func(prog *uintptr) int32                                                               `dl:"nvrtcDestroyProgram"`
		errorText func(code int32) string                                                                 `dl:"nvrtcGetErrorString"`
		archCount func(n *int32) int32                                                                    `dl:"nvrtcGetNumSupportedArchs,optional,since=11.1"`
		archs     func(list *int32) int32                                                                 `dl:"nvrtcGetSupportedArchs,optional,since=11.1"`
	}
	if err := lib.Bind(&api); err != nil {
		return err
	}
	var major, minor int32
	if rc := api.version(&major, &minor); rc != 0 {
		return fmt.Errorf("nvrtcVersion: %s", api.errorText(rc))
	}
	a.Version = fmt.Sprintf("%d.%d", major, minor)
	var n int32
	if api.archCount != nil && api.archs != nil && api.archCount(&n) == 0 && n > 0 && n < 1000 {
		list := make([]int32, n)
		if api.archs(&list[0]) == 0 {
			a.Notes = append(a.Notes, fmt.Sprintf("compiles for compute capability %s to %s", capability(list[0]), capability(list[n-1])))
		}
	}
	prog := new(uintptr)
	if rc := api.create(prog, "extern \"C\" __global__ void touch(float *x) { x[threadIdx.x] += 1.0f; }\n", "touch.cu", 0, nil, nil); rc != 0 {
		return fmt.Errorf("nvrtcCreateProgram: %s", api.errorText(rc))
	}
	defer api.destroy(prog)
	rc := api.compile(*prog, 0, nil)
	if rc == 0 {
		return nil
	}
	err := fmt.Errorf("compiling a kernel of one line: %s", api.errorText(rc))
	var size uintptr
	if api.logSize(*prog, &size) == 0 && size > 1 && size < 1<<20 {
		text := make([]byte, size)
		if api.log(*prog, &text[0]) == 0 {
			err = errors.Join(err, errors.New(firstLine(string(text[:size-1]))))
		}
	}
	return err
}

// capability formats NVRTC's number of an architecture as a compute capability: 90 is 9.0.
func capability(arch int32) string { return fmt.Sprintf("%d.%d", arch/10, arch%10) }
