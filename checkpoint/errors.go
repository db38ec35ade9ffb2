package checkpoint

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Errors that callers test for.
var (
	// ErrNone is returned by Open when a folder is missing or has no whole checkpoint.
	ErrNone = errors.New("no checkpoint")
	// ErrCorrupt is returned by Open, OpenAt, OpenFile and Verify when a file differs from the
	// written one or is no safetensors file.
	ErrCorrupt = errors.New("corrupt")
	// ErrUnfinished is returned by OpenAt for a folder whose name ends in .tmp: it is being
	// written, or was when its program died. The next save to its parent folder removes it.
	ErrUnfinished = errors.New("not finished")
	// ErrInvalid is returned for invalid arguments: overlapping runs, duplicate names, a wrong
	// dtype.
	ErrInvalid = errors.New("invalid argument")
	// ErrTimeout is returned by Save, Wait and Close of rank 0 when a rank's file is missing.
	ErrTimeout = errors.New("timed out")
	// ErrClosed is returned by calls after Close.
	ErrClosed = errors.New("closed")
	// ErrLocked is returned by New of rank 0, as a *LockedError, when another run saves to the
	// folder.
	ErrLocked = errors.New("locked")
	// ErrUnsupported is returned for a manifest of a later version, by Read for element types that
	// no tensor.DType has, such as 8-bit floats, and on machines that are not little-endian.
	ErrUnsupported = errors.New("not supported")
)

// SaveError is a failed save. Use errors.As: with Options.Async it may be the error of an earlier
// save.
type SaveError struct {
	Step int   // of the failed checkpoint
	Rank int   // that returns the error
	Err  error // the reason
}

// Error returns step, rank and reason.
func (e *SaveError) Error() string {
	return fmt.Sprintf("checkpoint of step %d, rank %d: %v", e.Step, e.Rank, e.Err)
}

// Unwrap returns the reason.
func (e *SaveError) Unwrap() error { return e.Err }

// PruneError is the failed removal of an older checkpoint. The new checkpoint is whole, so training
// may continue: stopping would be worse than the lost disk space.
type PruneError struct {
	Step int   // of the saved checkpoint
	Err  error // the reason
}

// Error returns the step and the reason.
func (e *PruneError) Error() string {
	return fmt.Sprintf("checkpoint of step %d is saved, but an older one cannot be removed: %v", e.Step, e.Err)
}

// Unwrap returns the reason.
func (e *PruneError) Unwrap() error { return e.Err }

// checkByteOrder returns an error on a machine that is not little-endian, like the files.
func checkByteOrder() error {
	if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		return fmt.Errorf("checkpoint: %w: files are little-endian, and this machine is not", ErrUnsupported)
	}
	return nil
}
