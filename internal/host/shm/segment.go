package shm

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// segment is memory that several ranks share.
type segment interface {
	bytes() []byte
	fd() int      // to pass to another process; -1 if that is impossible
	close() error // unmap; idempotent
}

// maker makes segments for one process.
type maker interface {
	make(purpose string, size int64) (segment, error)
}

// memfdMaker makes sealed anonymous files: no other user can open them by name, and only memory
// limits their size.
type memfdMaker struct{}

func (memfdMaker) make(purpose string, size int64) (segment, error) {
	fd, err := unix.MemfdCreate("symgrad-"+purpose, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if errors.Is(err, unix.ENOSYS) {
		return fileMaker{dir: "/dev/shm"}.make(purpose, size)
	}
	if err != nil {
		return nil, fmt.Errorf("shared memory for %s: memfd_create: %w", purpose, err)
	}
	if err := reserve(fd, size); err != nil {
		return nil, errors.Join(fmt.Errorf("shared memory for %s: %w", purpose, err), unix.Close(fd))
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL); err != nil {
		return nil, errors.Join(fmt.Errorf("shared memory for %s: seal: %w", purpose, err), unix.Close(fd))
	}
	return mapFD(fd, size)
}

// fileMaker makes files in a tmpfs folder and removes their names at once.
type fileMaker struct{ dir string }

func (m fileMaker) make(purpose string, size int64) (segment, error) {
	f, err := os.CreateTemp(m.dir, ".symgrad-*") // O_EXCL, 0600
	if err != nil {
		return nil, fmt.Errorf("shared memory for %s: %w", purpose, err)
	}
	defer f.Close()
	if err := os.Remove(f.Name()); err != nil {
		return nil, fmt.Errorf("shared memory for %s: %w", purpose, err)
	}
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, fmt.Errorf("shared memory for %s: dup: %w", purpose, err)
	}
	if err := reserve(fd, size); err != nil {
		return nil, errors.Join(fmt.Errorf("shared memory for %s in %s: %w", purpose, m.dir, err), unix.Close(fd))
	}
	return mapFD(fd, size)
}

// reserve allocates the pages now, so that a later access cannot raise SIGBUS.
func reserve(fd int, size int64) error {
	if err := checkRoom(size); err != nil { // a tmpfs may be larger than this process's limit
		return err
	}
	if err := unix.Fchmod(fd, 0o600); err != nil {
		return fmt.Errorf("fchmod: %w", err)
	}
	if err := unix.Ftruncate(fd, size); err != nil {
		return fmt.Errorf("set size to %d B: %w", size, err)
	}
	for {
		err := unix.Fallocate(fd, 0, 0, size)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.ENOMEM) {
			return fmt.Errorf("no room for %d B (make the heap smaller, or the file system larger): %w", size, err)
		}
		if err != nil {
			return fmt.Errorf("reserve %d B: %w", size, err)
		}
		return nil
	}
}

// mapped is a segment over a file descriptor that it owns.
type mapped struct {
	mu   sync.Mutex
	mem  []byte
	file int
}

func mapFD(fd int, size int64) (segment, error) {
	mem, err := unix.Mmap(fd, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("map %d B: %w", size, err), unix.Close(fd))
	}
	return &mapped{mem: mem, file: fd}, nil
}

// mapReceived maps a descriptor from another rank after it has checked its size.
func mapReceived(fd int, size int64) (segment, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, errors.Join(fmt.Errorf("stat of received segment: %w", err), unix.Close(fd))
	}
	if st.Size != size {
		return nil, errors.Join(fmt.Errorf("received segment has %d B, not %d", st.Size, size), unix.Close(fd))
	}
	return mapFD(fd, size)
}

func (m *mapped) bytes() []byte { return m.mem }
func (m *mapped) fd() int       { return m.file }

func (m *mapped) close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mem == nil {
		return nil
	}
	err := errors.Join(unix.Munmap(m.mem), unix.Close(m.file))
	m.mem = nil
	return err
}

// goMaker makes segments of Go memory for goroutine ranks of one process. The race detector sees
// this memory and its synchronization; it cannot see mapped memory.
type goMaker struct{}

func (goMaker) make(_ string, size int64) (segment, error) {
	words := make([]uint64, (size+7)/8)
	return goSegment{unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), size)}, nil
}

type goSegment struct{ mem []byte }

func (s goSegment) bytes() []byte { return s.mem }
func (s goSegment) fd() int       { return -1 }
func (s goSegment) close() error  { return nil }
