package cudnn

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/symgrad/symgrad/internal/dl"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
)

// ErrLibrary is returned by Open if no usable cuDNN exists: none found, too old or too new, or
// another library.
var ErrLibrary = errors.New("no usable cuDNN")

// ErrClosed is returned by closed objects, and by convolutions of a closed handle.
var ErrClosed = fmt.Errorf("cudnn: %w", cuda.ErrClosed)

// IsUnavailable reports whether err says that this machine has no cuDNN for the device or the
// operation. That is no mistake of the caller, who then works without cuDNN.
func IsUnavailable(err error) bool {
	return errors.Is(err, ErrLibrary) || errors.Is(err, dl.ErrUnsupported)
}

// Error is a status of the library other than success, with the library's own text.
//
// It matches dl.ErrUnsupported if the library or the device lacks the operation, cuda.ErrMemory,
// and cuda.ErrInvalid.
type Error struct {
	Call    string // "cudnnConvolutionForward"
	Code    int    // cudnnStatus_t
	Text    string // "CUDNN_STATUS_NOT_SUPPORTED"
	Detail  string // more detail from cuDNN; may be empty
	What    string // the operation, "conv f32 256x1x28x28 * 32x1x3x3"; may be empty
	Library string // "cuDNN 9.13.0 for CUDA 13 (/usr/lib/x86_64-linux-gnu/libcudnn.so.9.13.0)"
	Notes   string // libraries that cuDNN needs and that were not found, if that may be the cause
}

// Error returns call, operation, text, number, detail, library and a remedy, if known.
func (e *Error) Error() string {
	text := e.Call
	if e.What != "" {
		text += " for " + e.What
	}
	text += fmt.Sprintf(": %s (%d)", e.Text, e.Code)
	if e.Detail != "" {
		text += ": " + e.Detail
	}
	text += "; " + e.Library
	if r := e.Remedy(); r != "" {
		text += ": " + r
	}
	if e.Notes != "" {
		text += "; " + e.Notes
	}
	return text
}

// Is reports whether e matches target.
func (e *Error) Is(target error) bool {
	switch target {
	case dl.ErrUnsupported:
		return e.Code >= statusNotSupported && e.Code < statusInternal || e.loading()
	case cuda.ErrMemory:
		return e.Code == statusHostMemory || e.Code == statusDeviceMemory
	case cuda.ErrInvalid:
		return e.Code >= statusBadParam && e.Code < statusNotSupported
	}
	return false
}

// loading reports whether a part of cuDNN is missing or of another version.
func (e *Error) loading() bool {
	return e.Code == statusVersionMismatch || e.Code == statusLoadingFailed || e.Code == statusNoSublibrary
}

// remedies are remedies for codes whose text has none.
var remedies = []struct {
	code int
	text string
}{
	{statusNotInitialized, "a part of cuDNN, cuBLASLt or NVRTC was not found, or the device's memory is full"},
	{statusVersionMismatch, "the parts of two versions of cuDNN are mixed: set the path of one, or take the other out of LD_LIBRARY_PATH"},
	{statusLoadingFailed, "a part of cuDNN or a library that it needs was not found: install cuDNN as a whole (pip install nvidia-cudnn-cu13)"},
	{statusIncompatDriver, "update NVIDIA's driver, or install cuDNN for the driver's CUDA"},
	{statusArchMismatch, "this cuDNN has no kernels for this GPU: install cuDNN for CUDA 12, which serves older ones"},
	{statusNoSublibrary, "install cuDNN as a whole (pip install nvidia-cudnn-cu13)"},
	{statusDeviceMemory, "use smaller buffers, or end other processes on this GPU (nvidia-smi lists them)"},
}

// Remedy returns a remedy for e, or "".
func (e *Error) Remedy() string {
	for _, r := range remedies {
		if r.code == e.Code {
			return r.text
		}
	}
	if e.Code >= statusExecution && e.Code < statusExecution+1000 {
		return "a kernel failed, this one or one that was queued before; if others fail too, the process has lost the device"
	}
	return ""
}

// failure returns the *Error of a status. It must run on the thread that got the status, which has
// the detail.
//
//go:noinline
func (l *Library) failure(call string, code int32, operation string) error {
	e := &Error{Call: call, Code: int(code), Text: "the library has no text for it", What: operation, Library: l.name}
	if l.f.errorText != nil {
		e.Text = l.f.errorText(code)
	}
	if l.f.lastError != nil {
		text := make([]byte, 1024)
		l.f.lastError(&text[0], uint64(len(text)))
		if i := bytes.IndexByte(text, 0); i >= 0 {
			text = text[:i]
		}
		e.Detail = strings.TrimSpace(string(text))
	}
	if e.loading() || code == statusNotInitialized {
		e.Notes = l.notes
	}
	return fmt.Errorf("cudnn: %w", e)
}

// check returns nil for success, else the *Error.
func (l *Library) check(call string, code int32) error {
	if code == success {
		return nil
	}
	return l.failure(call, code, "")
}
