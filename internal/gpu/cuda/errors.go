package cuda

import (
	"errors"
	"fmt"

	"github.com/symgrad/symgrad/internal/dl"
)

var (
	// ErrNoDevice is returned by Open and Device if there is no GPU, or not the requested one.
	ErrNoDevice = errors.New("no such device")

	// ErrTooOld is returned by Open and Compiler if a library is older than this package needs.
	ErrTooOld = errors.New("too old")

	// ErrInvalid is returned for an argument that every driver would reject.
	ErrInvalid = errors.New("invalid argument")

	// ErrMemory matches an Error if device memory, or memory that can be pinned, has run out.
	ErrMemory = errors.New("out of memory")

	// ErrUntrusted is returned by Compiler.CacheError if other users can change the folder of
	// compiled kernels, or a file in it.
	ErrUntrusted = errors.New("other users can change it")

	// ErrClosed is returned by closed objects, and by objects of a closed driver.
	ErrClosed = errors.New("closed")
)

// Error is a status of the driver or of NVRTC other than success, with the library's own text.
type Error struct {
	Call    string // the function: "cuMemAlloc_v2"
	Code    int    // CUresult or nvrtcResult
	Name    string // "CUDA_ERROR_OUT_OF_MEMORY"
	Text    string // "out of memory"; for NVRTC the compiler's log follows
	Library string // name, file and version: "CUDA 13.0 (/usr/lib/libcuda.so.580.65.06)"

	compiler bool // NVRTC's: Code is an nvrtcResult
}

// Error returns call, text, name, number, library, and the remedy if one is known.
func (e *Error) Error() string {
	text := fmt.Sprintf("%s: %s (%s, %d), %s", e.Call, e.Text, e.Name, e.Code, e.Library)
	if r := e.Remedy(); r != "" {
		text += ": " + r
	}
	return text
}

// Is reports whether e matches target: ErrNoDevice, ErrMemory, or dl.ErrUnsupported.
func (e *Error) Is(target error) bool {
	if e.compiler {
		return false
	}
	switch target {
	case ErrNoDevice:
		return e.Code == codeNoDevice || e.Code == codeStub
	case ErrMemory:
		return e.Code == codeOutOfMemory
	case dl.ErrUnsupported:
		return e.Code == codeNotSupported
	}
	return false
}

// remedies lists remedies for codes whose text names none, in the order of their numbers.
var remedies = []struct {
	code int
	text string
}{
	{codeOutOfMemory, "use smaller buffers, or end other processes on this GPU (nvidia-smi lists them)"},
	{codeStub, "this libcuda.so is a toolkit's stub: remove its folder from LD_LIBRARY_PATH, and install a driver"},
	{46, "the GPU is busy, or another process uses it exclusively: end that process, or run nvidia-smi -c 0"}, // DEVICE_UNAVAILABLE
	{codeNoDevice, "check the GPU, CUDA_VISIBLE_DEVICES and, in a container, /dev/nvidia*"},
	{101, "check CUDA_VISIBLE_DEVICES"}, // INVALID_DEVICE
	{codeInvalidContext, "the calling thread has no context of this device: call between Enter and Leave"},
	{209, "the image is for another architecture: compile it for this device"},               // NO_BINARY_FOR_GPU
	{214, "memory of the GPU has failed: see nvidia-smi -q -d ECC, and reset or replace it"}, // ECC_UNCORRECTABLE
	{220, "an NVLink has failed: see nvidia-smi nvlink -e, and reset or replace it"},         // NVLINK_UNCORRECTABLE
	{222, "the compiler is newer than the driver: update the driver, or use an older NVRTC"}, // UNSUPPORTED_PTX_VERSION
	{codeInvalidHandle, "it is closed, or belongs to another device or process"},             // INVALID_HANDLE
	{700, lost}, // ILLEGAL_ADDRESS
	{701, "use fewer threads per block, or less shared memory"}, // LAUNCH_OUT_OF_RESOURCES
	{710, lost}, // ASSERT
	{714, lost}, // HARDWARE_STACK_ERROR
	{715, lost}, // ILLEGAL_INSTRUCTION
	{716, lost}, // MISALIGNED_ADDRESS
	{717, lost}, // INVALID_ADDRESS_SPACE
	{718, lost}, // INVALID_PC
	{719, lost}, // LAUNCH_FAILED
	{720, "use fewer blocks: all blocks of a cooperative launch run at once"}, // COOPERATIVE_LAUNCH_TOO_LARGE
	{codeNotSupported, "this GPU, driver or container does not support it"},
	{802, "start the fabric manager, which machines with NVSwitch need"},                                                                           // SYSTEM_NOT_READY
	{803, "versions of libcuda.so and the kernel's driver differ: restart the machine after an update; in a container, use the host's libcuda.so"}, // SYSTEM_DRIVER_MISMATCH
	{804, "remove the folder of cuda-compat from LD_LIBRARY_PATH, or update the driver"},                                                           // COMPAT_NOT_SUPPORTED_ON_DEVICE
}

// lost is the remedy for errors that destroy the context.
const lost = "an earlier kernel has failed, here or on a peer; this process has lost the device and must end"

// Remedy returns the remedy for e; "" if none is known.
func (e *Error) Remedy() string {
	if e.compiler {
		return ""
	}
	for _, r := range remedies {
		if r.code == e.Code {
			return r.text
		}
	}
	return ""
}

// Fatal reports whether e means that the process has lost the device: every later call on it fails.
func (e *Error) Fatal() bool {
	return e.Remedy() == lost || !e.compiler && (e.Code == 214 || e.Code == 220)
}

// versionText formats a version as CUDA does: 13000 is "13.0".
func versionText(v int) string { return fmt.Sprintf("%d.%d", v/1000, v%1000/10) }
