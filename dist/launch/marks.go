package launch

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
)

// NoStep is the step of a rank without a mark.
const NoStep = -1

// Marks are notes of a rank for a launcher that restarts failed jobs: the step that the rank has
// begun, and the success of the job. They survive the death of the rank. The methods of a nil Marks
// do nothing.
type Marks struct {
	f    *os.File
	rank int
}

// The file of marks begins with its key. After it come words of 8 bytes in little-endian order: the
// end of the job, 0 before it, and for each rank the number of its step plus one.
const (
	markKeyBytes = 16
	markBytes    = 8

	markSuccess = 1
	markFailure = 2
)

// markOffset returns the place of a rank's step in the file of marks; -1 is that of the end.
func markOffset(rank int) int64 { return markKeyBytes + markBytes*int64(rank+1) }

// OpenMarks returns the marks of a rank.
//
// Returns: nil if the launcher does not restart jobs, or is on another host. Owns: the caller
// closes it.
func OpenMarks(e Env) *Marks {
	path, key, ok := strings.Cut(e.marks, ":")
	if !ok || len(key) != markKeyBytes {
		return nil
	}
	// The path may be that of another file, on another host: it must have the key, and must not
	// block.
	f, err := os.OpenFile(path, os.O_RDWR|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)
	if err != nil {
		return nil
	}
	var got [markKeyBytes]byte
	if _, err := io.ReadFull(f, got[:]); err != nil || string(got[:]) != key {
		_ = f.Close() // nothing was written to it
		return nil
	}
	return &Marks{f: f, rank: e.Rank}
}

// Begin marks the start of a step: 0 for the preparation, 1 for the first step and so on. It takes
// about 1 us, and must come before anything in the step that may fail.
//
// Errors: those of the launcher's file.
func (m *Marks) Begin(step int) error {
	if m == nil {
		return nil
	}
	return m.set(m.rank, uint64(step)+1)
}

// Succeed marks the success of the job. Only the mark of rank 0 counts, so it comes after the last
// check that all ranks make. A launcher that started mpirun or another launcher needs it, because
// their exit codes may hide a failure.
//
// Errors: those of the launcher's file.
func (m *Marks) Succeed() error {
	if m == nil || m.rank != 0 {
		return nil
	}
	return m.set(-1, markSuccess)
}

// fail marks the failure of the job.
func (m *Marks) fail() error {
	if m == nil {
		return nil
	}
	return m.set(-1, markFailure)
}

func (m *Marks) set(rank int, value uint64) error {
	if _, err := m.f.WriteAt(binary.LittleEndian.AppendUint64(nil, value), markOffset(rank)); err != nil {
		return fmt.Errorf("launch: mark for the launcher: %w", err)
	}
	return nil
}

// Close closes the launcher's file. Idempotent.
func (m *Marks) Close() error {
	if m == nil || m.f == nil {
		return nil
	}
	f := m.f
	m.f = nil
	return f.Close()
}

// markAt returns the word of a rank in a file of marks; 0 without one.
func markAt(f io.ReaderAt, rank int) uint64 {
	var word [markBytes]byte
	if n, _ := f.ReadAt(word[:], markOffset(rank)); n < markBytes {
		return 0
	}
	return binary.LittleEndian.Uint64(word[:])
}
