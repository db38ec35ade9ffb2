package cublas

import (
	"errors"
	"fmt"

	"github.com/symgrad/symgrad/internal/dl"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
)

// ErrLibrary is returned by Open if no usable cuBLAS exists: none found, too old or too new, or
// another library.
var ErrLibrary = errors.New("no usable cuBLAS")

// ErrClosed is returned by closed objects, and by plans of a closed handle.
var ErrClosed = fmt.Errorf("cublas: %w", cuda.ErrClosed)

// IsUnavailable reports whether err, from Open or NewHandle, says that this machine has no cuBLAS
// for the device. That is no mistake of the caller.
func IsUnavailable(err error) bool {
	return errors.Is(err, ErrLibrary) || errors.Is(err, dl.ErrUnsupported)
}

// Error is a status of the library other than success, with the library's own text.
//
// It matches dl.ErrUnsupported if the library or the device lacks the operation, cuda.ErrMemory,
// and cuda.ErrInvalid.
type Error struct {
	Call    string // "cublasGemmEx"
	Code    int    // cublasStatus_t
	Name    string // "CUBLAS_STATUS_NOT_SUPPORTED"
	Text    string // "the functionality is not supported"
	What    string // the operation, "gemm f32 128x512x784 nt"; may be empty
	Library string // "cuBLAS 13.0.2 (/usr/local/cuda/lib64/libcublas.so.13.0.2.14)"
}

// Error returns call, operation, text, name, number, library and a remedy, if known.
func (e *Error) Error() string {
	text := e.Call
	if e.What != "" {
		text += " for " + e.What
	}
	text += fmt.Sprintf(": %s (%s, %d), %s", e.Text, e.Name, e.Code, e.Library)
	if r := e.Remedy(); r != "" {
		text += ": " + r
	}
	return text
}

// Is reports whether e matches target.
func (e *Error) Is(target error) bool {
	switch target {
	case dl.ErrUnsupported:
		return e.Code == notSupported || e.Code == archMismatch
	case cuda.ErrMemory:
		return e.Code == allocFailed
	case cuda.ErrInvalid:
		return e.Code == invalidValue
	}
	return false
}

// remedies are remedies for codes whose text has none.
var remedies = []struct {
	code int
	text string
}{
	{notInitialized, "the device's context is gone, or its memory is full: cuBLAS needs some 100 MiB for its kernels"},
	{allocFailed, "use smaller buffers, or end other processes on this GPU (nvidia-smi lists them)"},
	{archMismatch, "this cuBLAS has no kernels for this GPU: install the one of another CUDA (pip install nvidia-cublas-cu12 for older GPUs)"},
	{executionFailed, "a kernel failed, this one or one that was queued before; if others fail too, the process has lost the device"},
	{notSupported, "try other element types, another epilogue, or matrices and leading dimensions at multiples of 16 B"},
}

// Remedy returns a remedy for e, or "".
func (e *Error) Remedy() string {
	for _, r := range remedies {
		if r.code == e.Code {
			return r.text
		}
	}
	return ""
}

// failure returns the *Error of a status.
//
//go:noinline
func (l *Library) failure(call string, code int32, operation string) error {
	e := &Error{Call: call, Code: int(code), Name: "cublasStatus_t", Text: "the library has no text for it", What: operation, Library: l.name}
	if l.f.statusName != nil {
		e.Name, e.Text = l.f.statusName(code), l.f.statusText(code)
	}
	return fmt.Errorf("cublas: %w", e)
}

// check returns nil for success, else the *Error.
func (l *Library) check(call string, code int32) error {
	if code == success {
		return nil
	}
	return l.failure(call, code, "")
}
