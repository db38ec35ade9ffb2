package nvshmem

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/dl"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
)

// Linker is nvJitLink. It links device code with the device part of NVSHMEM, which NVRTC cannot do.
type Linker struct {
	lib *dl.Library
	t   linkTable
}

// linkTable is its functions, by the names exported since CUDA 12.3; nvJitLink.h maps others to
// them by macros. All return nvJitLinkResult.
type linkTable struct {
	version  func(major, minor *uint32) int32                                               `dl:"nvJitLinkVersion"`
	create   dl.Proc                                                                        `dl:"nvJitLinkCreate"` // (handle*, number of options, options**)
	destroy  func(handle *uintptr) int32                                                    `dl:"nvJitLinkDestroy"`
	add      func(handle uintptr, kind int32, data *byte, bytes uintptr, name string) int32 `dl:"nvJitLinkAddData"`
	complete func(handle uintptr) int32                                                     `dl:"nvJitLinkComplete"`
	size     func(handle uintptr, bytes *uintptr) int32                                     `dl:"nvJitLinkGetLinkedCubinSize"`
	cubin    func(handle uintptr, to *byte) int32                                           `dl:"nvJitLinkGetLinkedCubin"`
	logSize  func(handle uintptr, bytes *uintptr) int32                                     `dl:"nvJitLinkGetErrorLogSize"`
	log      func(handle uintptr, to *byte) int32                                           `dl:"nvJitLinkGetErrorLog"`
}

// InputKind is the format of an input of the linker, an nvJitLinkInputType.
type InputKind int32

// The kinds of nvJitLink.h.
const (
	InputCubin   InputKind = 1
	InputPTX     InputKind = 2
	InputLTOIR   InputKind = 3
	InputFatbin  InputKind = 4
	InputObject  InputKind = 5  // a host object that contains device code
	InputLibrary InputKind = 6  // an archive of host objects, such as libnvshmem_device.a
	InputAny     InputKind = 10 // the linker detects the format
)

// Input is a piece of device code. Name is used in messages.
type Input struct {
	Kind InputKind
	Name string
	Data []byte
}

// OpenLinker finds nvJitLink in the loader's folders and in dirs; nil means dl.Places without an
// environment.
//
// Errors: ErrLibrary, with every place that was tried.
func OpenLinker(dirs []string) (*Linker, error) {
	if dirs == nil {
		dirs = dl.Places(os.DirFS("/"), nil)
	}
	lib, err := dl.Open(dl.Search{Name: "nvjitlink", Sonames: []string{"libnvJitLink.so.13", "libnvJitLink.so.12"}, Dirs: dirs})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrLibrary, err)
	}
	l := &Linker{lib: lib}
	if err := lib.Bind(&l.t); err != nil {
		return nil, fmt.Errorf("%w: nvJitLink of CUDA 12.3 or later is needed: %w", ErrLibrary, err)
	}
	return l, nil
}

// String returns a text such as "nvJitLink 13.0 (/usr/lib/libnvJitLink.so.13)".
func (l *Linker) String() string {
	var major, minor uint32
	if l.t.version(&major, &minor) != 0 {
		return "nvJitLink (" + l.lib.Path() + ")"
	}
	return fmt.Sprintf("nvJitLink %d.%d (%s)", major, minor, l.lib.Path())
}

// Link links inputs to a cubin for v's architecture.
//
// Errors: dist.ErrUnsupported with the rejected input and the linker's log.
func (l *Linker) Link(v *cuda.Device, inputs []Input) ([]byte, error) {
	libc, err := openC()
	if err != nil {
		return nil, err
	}
	major, minor := v.Arch()
	arch := fmt.Sprintf("-arch=sm_%d%d", major, minor)
	// C memory, since this is an array of strings. nvJitLinkCreate reads it and does not keep it.
	mem := libc.calloc(1, 8+uintptr(len(arch))+1)
	if err := noMemory(mem); err != nil {
		return nil, err
	}
	defer libc.free(mem)
	*(*unsafe.Pointer)(mem) = unsafe.Add(mem, 8)
	copy(unsafe.Slice((*byte)(unsafe.Add(mem, 8)), len(arch)), arch)
	var handle uintptr
	r, err := l.t.create.Call(uintptr(unsafe.Pointer(&handle)), 1, uintptr(mem))
	if err != nil {
		return nil, err
	}
	if int32(r) != 0 {
		return nil, l.refusal("option "+arch, int32(r), 0)
	}
	defer l.t.destroy(&handle)
	for _, in := range inputs {
		if len(in.Data) == 0 {
			return nil, refused("link", dist.ErrInvalid, "%s is empty", in.Name)
		}
		if r := l.t.add(handle, int32(in.Kind), &in.Data[0], uintptr(len(in.Data)), in.Name); r != 0 {
			return nil, l.refusal(in.Name, r, handle)
		}
	}
	if r := l.t.complete(handle); r != 0 {
		return nil, l.refusal("the complete link", r, handle)
	}
	var n uintptr
	if r := l.t.size(handle, &n); r != 0 || n == 0 {
		return nil, l.refusal("the result", r, handle)
	}
	cubin := make([]byte, n)
	if r := l.t.cubin(handle, &cubin[0]); r != 0 {
		return nil, l.refusal("the result", r, handle)
	}
	return cubin, nil
}

// refusal returns the error of a step, with the linker's log.
func (l *Linker) refusal(what string, code int32, handle uintptr) error {
	text := "no log"
	var n uintptr
	if handle != 0 && l.t.logSize(handle, &n) == 0 && n > 1 {
		log := make([]byte, n)
		if l.t.log(handle, &log[0]) == 0 {
			text = strings.TrimSpace(strings.TrimRight(string(log), "\x00"))
		}
	}
	return refused("link", dist.ErrUnsupported, "%v rejected %s with code %d: %s", l, what, code, text)
}

// DeviceParts returns the files of the library's device part in the library's folder, as inputs for
// a Linker. Packages contain different ones: an archive of objects, LTO code, or LLVM bitcode,
// which the linker takes for LTO code or rejects.
//
// Errors: ErrLibrary if there is none.
func (l *Library) DeviceParts() ([]Input, error) {
	var found []Input
	dir := filepath.Dir(l.Path())
	for _, f := range []struct {
		name string
		kind InputKind
	}{{"libnvshmem_device.a", InputLibrary}, {"libnvshmem_device.ltoir", InputLTOIR}, {"libnvshmem_device.bc", InputLTOIR}} {
		data, err := os.ReadFile(filepath.Join(dir, f.name))
		if err == nil {
			found = append(found, Input{Kind: f.kind, Name: f.name, Data: data})
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("%w: no device part of NVSHMEM in %s", ErrLibrary, dir)
	}
	return found, nil
}

// InitModule initializes the device state in a module that is linked with the library's device
// part. The module's device calls need it.
//
// Returns: when the module can be used. Owns: the caller calls EndModule before it unloads the
// module. Errors: dist.ErrUnsupported for a module without that part, and before NVSHMEM 3.0.6;
// *Error for a device part of another version.
func (c *caller) InitModule(m *cuda.Module) error {
	return c.module(&c.lib.t.moduleInit, "nvshmemx_cumodule_init", m)
}

// EndModule undoes InitModule. Errors: as InitModule.
func (c *caller) EndModule(m *cuda.Module) error {
	return c.module(&c.lib.t.moduleEnd, "nvshmemx_cumodule_finalize", m)
}

func (c *caller) module(p *dl.Proc, name string, m *cuda.Module) error {
	if m == nil || m.Device() != c.dev {
		return refused(name, dist.ErrDevice, "the module is not on %v", c.dev.Tensor())
	}
	// Checked here, because the library does not check them before it writes.
	for _, variable := range []string{"nvshmemi_device_state_d", "nvshmemi_device_lib_version_d"} {
		if _, _, err := m.Global(variable); err != nil {
			return refused(name, dist.ErrUnsupported, "the module is not linked with NVSHMEM's device part: %v", err)
		}
	}
	if err := c.healthy(name); err != nil {
		return err
	}
	if err := c.dev.Enter(); err != nil {
		return err
	}
	defer c.dev.Leave()
	return c.setup(p, name, m.Handle())
}
