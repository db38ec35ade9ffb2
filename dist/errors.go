package dist

import (
	"errors"
	"fmt"
)

// Errors for callers to branch on. Every error of this package and of a backend matches one with
// errors.Is.
var (
	// ErrInvalid is returned by every operation when an argument is wrong, before anything is sent.
	// The group stays usable.
	ErrInvalid = errors.New("invalid argument")
	// ErrDType is the ErrInvalid for invalid element types, or different ones, of buffers or of a
	// premulsum scalar.
	ErrDType = fmt.Errorf("%w: dtype", ErrInvalid)
	// ErrCount is the ErrInvalid for a buffer that is too small or a length that is no multiple of
	// the number of ranks.
	ErrCount = fmt.Errorf("%w: count", ErrInvalid)
	// ErrRoot is the ErrInvalid for a root outside 0 to size-1.
	ErrRoot = fmt.Errorf("%w: root", ErrInvalid)
	// ErrRank is the ErrInvalid for another rank outside 0 to size-1: a peer of Send and Recv, the
	// target of a one-sided call. It matches ErrRoot, which it was in earlier versions.
	ErrRank error = &kind{"invalid argument: rank", ErrRoot}
	// ErrRange is the ErrInvalid for a one-sided access that leaves its region or its buffer. It
	// matches ErrCount, which it was in earlier versions.
	ErrRange error = &kind{"invalid argument: out of range", ErrCount}
	// ErrDevice is the ErrInvalid for a buffer that is not on the group's device, and for a GPU
	// that two ranks use.
	ErrDevice = fmt.Errorf("%w: device", ErrInvalid)
	// ErrAlias is the ErrInvalid for source and destination that overlap but are not in place.
	ErrAlias = fmt.Errorf("%w: aliasing", ErrInvalid)

	// ErrMismatch is returned on every rank of the group when ranks disagree on op, count, dtype,
	// reduction, root or order. The group is broken permanently.
	ErrMismatch = errors.New("ranks disagree")
	// ErrAborted is returned by every pending and later operation of a group after Abort, or after
	// a rank died.
	ErrAborted = errors.New("group aborted")
	// ErrTimeout is returned by operations that a peer did not complete within the step timeout.
	// The group is broken.
	ErrTimeout = errors.New("timed out")
	// ErrClosed is returned by calls on a closed group, and by operations with a peer that has
	// closed its end.
	ErrClosed = errors.New("group closed")
	// ErrUnsupported is returned by calls that the group's backend, or this machine, cannot do.
	ErrUnsupported = errors.New("not supported")
)

// kind is a sentinel with its own text that matches another one.
type kind struct {
	text string
	of   error
}

func (k *kind) Error() string { return k.text }
func (k *kind) Unwrap() error { return k.of }

// OpError is the error of one operation: the operation, the rank and the cause, which it wraps.
type OpError struct {
	Op   Op    // the operation; its buffers give dtype and length
	Rank int   // this rank in the group
	Size int   // ranks in the group
	Err  error // the cause; matches one of the sentinels
}

// Error returns "allreduce #7 rank 1/4 "fc1.weight" (f32[128] sum, 512 B): cause".
func (e *OpError) Error() string {
	name := ""
	if e.Op.Name != "" {
		name = fmt.Sprintf(" %q", e.Op.Name)
	}
	return fmt.Sprintf("%v #%d rank %d/%d%s (%v): %v", e.Op.Kind, e.Op.Seq, e.Rank, e.Size, name, e.Op.Signature(), e.Err)
}

// Unwrap returns the cause.
func (e *OpError) Unwrap() error { return e.Err }

// RankError is the death of a rank: the process ended, or its connection broke, without closing the
// group. It matches ErrAborted.
type RankError struct {
	Rank int    // the dead rank, numbered in the group that reports it
	Host string // the name of its host, if the job has several and it is known
	How  string // observation: "connection closed", "killed by script"
}

// Error returns "rank 2 died: connection closed", or "rank 2 died on host1: connection closed".
func (e *RankError) Error() string {
	if e.Host == "" {
		return fmt.Sprintf("rank %d died: %s", e.Rank, e.How)
	}
	return fmt.Sprintf("rank %d died on %s: %s", e.Rank, e.Host, e.How)
}

// Is matches ErrAborted.
func (e *RankError) Is(target error) bool { return target == ErrAborted }
