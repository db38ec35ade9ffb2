package nvshmem

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
)

// Link implements gpu.Builder for code that includes nvshmem.h or nvshmemx.h and calls the library
// on the device. NVRTC compiles it with the library's headers, and nvJitLink adds the device part.
// It takes seconds each time, because sources with includes are not cached.
//
// Errors: dist.ErrUnsupported if headers, the device part, NVRTC or nvJitLink are missing, and for
// code that the linker rejects, for example because of an undefined function; those of the
// compiler, for example without libcu++.
func (e *engine) Link(src cuda.Source) ([]byte, error) { return e.rt.link(src) }

// Load implements gpu.Builder.
//
// Owns: the caller calls the returned function before it closes the module. Errors: those of the
// driver and of InitModule.
func (e *engine) Load(image []byte) (*cuda.Module, func() error, error) {
	rt := e.rt
	if err := rt.healthy("load"); err != nil {
		return nil, nil, err
	}
	m, err := rt.dev.Load(image)
	if err != nil {
		return nil, nil, err
	}
	if err := rt.InitModule(m); err != nil {
		return nil, nil, errors.Join(err, m.Close())
	}
	return m, func() error { return rt.EndModule(m) }, nil
}

// link compiles src and links it with the device part.
func (c *caller) link(src cuda.Source) ([]byte, error) {
	compiler, err := c.dev.Driver().Compiler()
	if err != nil {
		return nil, unusable("NVRTC", err)
	}
	linker, err := OpenLinker(c.lib.cfg.Dirs)
	if err != nil {
		return nil, unusable("nvJitLink", err)
	}
	parts, err := c.lib.DeviceParts()
	if err != nil {
		return nil, unusable("the device part", err)
	}
	options, err := c.lib.options(filepath.Dir(compiler.Path()))
	if err != nil {
		return nil, unusable("headers", err)
	}
	src.Text = prelude + fmt.Sprintf("#line 1 %q\n", src.Name) + src.Text
	src.Options = append(options, src.Options...)
	object, err := compiler.Compile(c.dev, src)
	if err != nil {
		return nil, err
	}
	return linker.Link(c.dev, []Input{{InputCubin, src.Name, object}, parts[0]})
}

// unusable returns the error for a missing part of the tools for device code.
func unusable(what string, err error) error {
	return fmt.Errorf("nvshmem: device code: %w: %s: %w", dist.ErrUnsupported, what, err)
}

// prelude makes NVRTC accept the headers of 3.4.5. Their reductions need std and atomics of
// libcu++, and functions of cooperative_groups/reduce.h. NVRTC has no complex.h.
const prelude = `#include <cuda/std/type_traits>
#include <cuda/atomic>
namespace std { using namespace cuda::std; }
#define _CG_USE_CUDA_STL
#include <cooperative_groups/reduce.h>
#include <non_abi/nvshmem_build_options.h>
#undef NVSHMEM_COMPLEX_SUPPORT
`

// options returns the options for NVRTC; compiler is its folder.
func (l *Library) options(compiler string) ([]string, error) {
	own, err := including("nvshmem.h", append([]string{filepath.Dir(l.Path())}, l.cfg.Dirs...))
	if err != nil {
		return nil, err
	}
	toolkit, err := including("cuda_runtime.h", append([]string{compiler}, l.cfg.Dirs...))
	if err != nil {
		return nil, err
	}
	return []string{
		"--relocatable-device-code=true", "-default-device", // some functions in the headers would be the host's
		"-I" + own, "-I" + toolkit, "-I" + filepath.Join(toolkit, "cccl"), // from CUDA 13 on libcu++ has its own folder
	}, nil
}

// including returns the include folder with a header that belongs to one of these library folders.
// Wheels and toolkits have it next to the libraries, systems one level up.
func including(header string, libs []string) (string, error) {
	for _, lib := range libs {
		for _, up := range []string{"..", "../.."} {
			dir := filepath.Join(lib, up, "include")
			if _, err := os.Stat(filepath.Join(dir, header)); err == nil {
				return dir, nil
			}
		}
	}
	return "", fmt.Errorf("%w: %s is in no include folder next to %v", ErrLibrary, header, libs)
}
