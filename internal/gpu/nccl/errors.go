package nccl

import (
	"errors"
	"fmt"
	"strings"

	"github.com/symgrad/symgrad/dist"
	"golang.org/x/sys/unix"
)

// Error is an unsuccessful result of a function of NCCL, with the operation, the rank and the
// library's own text.
//
// It matches dist.ErrInvalid for wrong arguments and usage, after which the communicator still
// works; dist.ErrTimeout for NCCL's own limit; and dist.ErrAborted for all others, after which a
// communicator can only be aborted.
type Error struct {
	Call    string // "ncclAllReduce"
	Code    int    // ncclResult_t
	Text    string // ncclGetErrorString
	Detail  string // ncclGetLastError, of the process and not of one communicator; may be empty
	What    string // the operation, "allreduce f32[128]"; may be empty
	Rank    int    // this rank in the communicator; -1 outside of one
	Size    int
	Version Version
	Path    string // file of the library
	Hint    string // a likely cause; may be empty
}

// Error returns "ncclAllReduce for allreduce f32[128] on rank 1/4: invalid argument (code 4):
// detail; NCCL 2.28.3 (/lib/libnccl.so.2)".
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Call)
	if e.What != "" {
		b.WriteString(" for " + e.What)
	}
	if e.Rank >= 0 {
		fmt.Fprintf(&b, " on rank %d/%d", e.Rank, e.Size)
	}
	fmt.Fprintf(&b, ": %s (code %d)", e.Text, e.Code)
	if e.Detail != "" {
		b.WriteString(": " + e.Detail)
	}
	fmt.Fprintf(&b, "; NCCL %v (%s)", e.Version, e.Path)
	if e.Hint != "" {
		b.WriteString("; " + e.Hint)
	}
	return b.String()
}

// Is matches the sentinel of package dist that says how to continue.
func (e *Error) Is(target error) bool { return target == e.sentinel() }

func (e *Error) sentinel() error {
	switch e.Code {
	case resultInvalidArg, resultInvalidUsage:
		return dist.ErrInvalid
	case resultTimeout:
		return dist.ErrTimeout
	}
	return dist.ErrAborted
}

// hint returns the most frequent cause of an error, from reports of users.
func hint(code int32, detail string, sharedMemory func() (free uint64, err error)) string {
	switch {
	case strings.Contains(detail, "Duplicate GPU"):
		return "every rank needs a GPU of its own: check the devices that the launcher assigns"
	case strings.Contains(detail, "No space left") || strings.Contains(detail, "/dev/shm"):
		return "shared memory is full: " + sharedMemoryText(sharedMemory)
	case strings.Contains(detail, "pidfd") || strings.Contains(detail, "ptrace"):
		return "the container forbids pidfd_getfd: allow SYS_PTRACE or set NCCL_CUMEM_HOST_ENABLE=0"
	case strings.Contains(detail, "out of memory"):
		return "the GPU's memory is full"
	case code == resultSystemError:
		return sharedMemoryText(sharedMemory) + "; NCCL_DEBUG=WARN prints more"
	}
	return ""
}

func sharedMemoryText(free func() (uint64, error)) string {
	bytes, err := free()
	if err != nil {
		return fmt.Sprintf("/dev/shm: %v", err)
	}
	return fmt.Sprintf("/dev/shm has %d MiB left", bytes>>20)
}

func sharedMemoryFree() (uint64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs("/dev/shm", &st); err != nil {
		return 0, err
	}
	return st.Bavail * uint64(st.Bsize), nil
}

// Errors of calls on an ended communicator.
var (
	errCommClosed  = fmt.Errorf("nccl: the communicator is closed: %w", dist.ErrClosed)
	errCommAborted = fmt.Errorf("nccl: the communicator was aborted: %w", dist.ErrAborted)
)

// ErrLibrary is returned by Open when the library cannot be used: not found, too old, or a second
// NCCL in the process.
var ErrLibrary = errors.New("no usable NCCL")
