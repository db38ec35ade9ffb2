package dist

import (
	"errors"
	"fmt"
)

// Errors that callers compare with. Every error of this package and of a backend matches one of
// them with errors.Is.
var (
	// ErrInvalid is returned by every verb when an argument is wrong, before anything is sent. The
	// group stays usable.
	ErrInvalid = errors.New("invalid argument")
	// ErrDType is the ErrInvalid for buffers, or a premulsum scalar, whose element types differ or
	// are none.
	ErrDType = fmt.Errorf("%w: dtype", ErrInvalid)
	// ErrCount is the ErrInvalid for a buffer that is too small or a length the ranks do not
	// divide.
	ErrCount = fmt.Errorf("%w: count", ErrInvalid)
	// ErrRoot is the ErrInvalid for a root outside 0 to size-1.
	ErrRoot = fmt.Errorf("%w: root", ErrInvalid)
	// ErrRank is the ErrInvalid for a rank outside 0 to size-1 that is no root: a peer of Send and
	// Recv, the target of a one-sided call. It matches ErrRoot, which it was in earlier versions.
	ErrRank error = &kind{"invalid argument: rank", ErrRoot}
	// ErrRange is the ErrInvalid for a one-sided access that leaves its region or its buffer. It
	// matches ErrCount, which it was in earlier versions.
	ErrRange error = &kind{"invalid argument: out of range", ErrCount}
	// ErrDevice is the ErrInvalid for a buffer that is not on the group's device, and for a GPU
	// that two ranks have.
	ErrDevice = fmt.Errorf("%w: device", ErrInvalid)
	// ErrAlias is the ErrInvalid for source and destination that overlap otherwise than in place.
	ErrAlias = fmt.Errorf("%w: aliasing", ErrInvalid)

	// ErrMismatch is returned on every rank of the group when ranks disagree on op, count, dtype,
	// reduction, root or order. The group is broken for good.
	ErrMismatch = errors.New("ranks disagree")
	// ErrAborted is returned by every pending and later operation of a group after Abort, or after
	// a rank died.
	ErrAborted = errors.New("group aborted")
	// ErrTimeout is returned by operations that no peer completed within the step timeout. The
	// group is broken.
	ErrTimeout = errors.New("timed out")
	// ErrClosed is returned by calls on a closed group, and by operations with a peer that has
	// closed its end.
	ErrClosed = errors.New("group closed")
	// ErrUnsupported is returned by calls that the group's backend, or this machine, cannot do.
	ErrUnsupported = errors.New("not supported")
)

// kind is a sentinel with a text of its own that matches another one.
type kind struct {
	text string
	of   error
}

func (k *kind) Error() string { return k.text }
func (k *kind) Unwrap() error { return k.of }

// OpError is the error of one operation: which one, on which rank, and why. It wraps the cause.
type OpError struct {
	Op   Op    // the operation; its buffers tell dtype and length
	Rank int   // this rank in the group
	Size int   // ranks in the group
	Err  error // the cause; matches one of the sentinels
}

// Error is "allreduce #7 rank 1/4 "fc1.weight" (f32[128] sum, 512 B): cause".
func (e *OpError) Error() string {
	name := ""
	if e.Op.Name != "" {
		name = fmt.Sprintf(" %q", e.Op.Name)
	}
	return fmt.Sprintf("%v #%d rank %d/%d%s (%v): %v", e.Op.Kind, e.Op.Seq, e.Rank, e.Size, name, e.Op.Signature(), e.Err)
}

// Unwrap is the cause.
func (e *OpError) Unwrap() error { return e.Err }

// RankError is the death of a rank: the process ended, or its connection broke, without closing the
// group. It matches ErrAborted.
type RankError struct {
	Rank int    // the dead rank, numbered in the group that reports it
	How  string // the observation: "connection closed", "killed by script"
}

// Error is "rank 2 died: connection closed".
func (e *RankError) Error() string { return fmt.Sprintf("rank %d died: %s", e.Rank, e.How) }

// Is matches ErrAborted.
func (e *RankError) Is(target error) bool { return target == ErrAborted }
