package checkpoint

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// What callers branch on.
var (
	// ErrNone is returned by Open when a folder has no whole checkpoint, or is not there.
	ErrNone = errors.New("no checkpoint")
	// ErrCorrupt is returned by Open, OpenAt, OpenFile and Verify when a file is not what was
	// written: short, long, changed or no safetensors file.
	ErrCorrupt = errors.New("corrupt")
	// ErrUnfinished is returned by OpenAt for a folder whose name says that it is being written, or
	// was when its program died. The next save to the folder around it clears it away.
	ErrUnfinished = errors.New("not finished")
	// ErrInvalid is returned when arguments make no sense: runs that overlap, names twice, a dtype
	// that differs.
	ErrInvalid = errors.New("invalid argument")
	// ErrTimeout is returned by Save, Wait and Close of rank 0 when a rank's file did not come.
	ErrTimeout = errors.New("timed out")
	// ErrClosed is returned by calls after Close.
	ErrClosed = errors.New("closed")
	// ErrLocked is returned by New of rank 0, as a *LockedError, when another run saves to the
	// folder.
	ErrLocked = errors.New("locked")
	// ErrUnsupported is returned for a manifest of a later version, by Read of a tensor with
	// elements that no tensor.DType has, such as those of 8 bits, and on machines that are not
	// little-endian.
	ErrUnsupported = errors.New("not supported")
)

// SaveError is why a save failed; errors.As finds it, since with Options.Async an error may be that
// of a save before.
type SaveError struct {
	Step int   // of the checkpoint that was not made
	Rank int   // that tells so
	Err  error // the reason
}

// Error names step and rank.
func (e *SaveError) Error() string {
	return fmt.Sprintf("checkpoint of step %d, rank %d: %v", e.Step, e.Rank, e.Err)
}

// Unwrap is the reason.
func (e *SaveError) Unwrap() error { return e.Err }

// PruneError is that an older checkpoint cannot be removed. It came after the save, which is whole:
// to stop training for it would be worse than the room that it takes.
type PruneError struct {
	Step int   // of the checkpoint that was made
	Err  error // the reason
}

// Error says that the checkpoint is there.
func (e *PruneError) Error() string {
	return fmt.Sprintf("checkpoint of step %d is saved, but an older one cannot be removed: %v", e.Step, e.Err)
}

// Unwrap is the reason.
func (e *PruneError) Unwrap() error { return e.Err }

// checkByteOrder refuses machines whose memory is not as files are.
func checkByteOrder() error {
	if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		return fmt.Errorf("checkpoint: %w: files are little-endian, and this machine is not", ErrUnsupported)
	}
	return nil
}
