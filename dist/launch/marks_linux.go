package launch

import (
	"encoding/hex"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// markFile is the launcher's end of the marks of one generation. A nil markFile has no marks.
type markFile struct {
	f   *os.File
	key string
}

// newMarkFile makes a file in memory. Ranks open it by its path in /proc, also those of a launcher
// that closes the descriptors it inherits.
//
// Owns: the caller closes it.
func newMarkFile() (*markFile, error) {
	fd, err := unix.MemfdCreate("symgrad-marks", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("launch: memfd_create: %w", err)
	}
	m := &markFile{os.NewFile(uintptr(fd), "symgrad-marks"), hex.EncodeToString(randomBytes(markKeyBytes / 2))}
	if _, err := m.f.WriteString(m.key); err != nil {
		_ = m.f.Close() // err has the cause
		return nil, fmt.Errorf("launch: marks of the ranks: %w", err)
	}
	return m, nil
}

// variable returns the value of the variable by which ranks find the file; "" for nil.
func (m *markFile) variable() string {
	if m == nil {
		return ""
	}
	return fmt.Sprintf("/proc/%d/fd/%d:%s", os.Getpid(), m.f.Fd(), m.key)
}

// step returns the step that a rank marked last, or NoStep.
func (m *markFile) step(rank int) int {
	if m == nil {
		return NoStep
	}
	return int(markAt(m.f, rank)) - 1
}

// succeeded reports whether rank 0 marked the success of the job.
func (m *markFile) succeeded() bool { return m != nil && markAt(m.f, -1) == markSuccess }

// failed reports whether a rank marked the failure of the job.
func (m *markFile) failed() bool { return m != nil && markAt(m.f, -1) == markFailure }

// close frees the file.
func (m *markFile) close() {
	if m != nil {
		_ = m.f.Close() // memory
	}
}
