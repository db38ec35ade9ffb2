package checkpoint

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"runtime"
	"sync"
	"sync/atomic"
)

// Verify reads every file once, several at a time, and compares its checksum with the manifest's.
//
// Errors: ErrCorrupt, with every damaged file; ErrClosed.
func (c *Checkpoint) Verify() error {
	if err := c.verify(); err != nil {
		return fmt.Errorf("checkpoint: %s: %w", c.path, err)
	}
	return nil
}

func (c *Checkpoint) verify() error {
	errs := make([]error, len(c.files))
	var next atomic.Int64
	var workers sync.WaitGroup
	for range min(len(c.files), runtime.GOMAXPROCS(0)) {
		workers.Go(func() {
			buffer := make([]byte, chunk)
			for i := int(next.Add(1)) - 1; i < len(c.files); i = int(next.Add(1)) - 1 {
				errs[i] = c.files[i].verify(&c.manifest.Files[i], buffer)
			}
		})
	}
	workers.Wait()
	return errors.Join(errs...)
}

// verify reads the whole file through buffer and compares its checksum.
func (f *File) verify(info *FileInfo, buffer []byte) error {
	r := io.NewSectionReader(f.f, 0, info.Bytes)
	var sum uint32
	var total int64
	for {
		n, err := r.Read(buffer)
		sum = crc32.Update(sum, castagnoli, buffer[:n])
		total += int64(n)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("%s: %w", f.name, unlessClosed(err))
		}
	}
	if got := fmt.Sprintf("%08x", sum); total != info.Bytes || got != info.CRC32C {
		return fmt.Errorf("%w: %s: its CRC-32C is %s over %d B, the manifest says %s over %d", ErrCorrupt, f.name, got, total, info.CRC32C, info.Bytes)
	}
	return nil
}
