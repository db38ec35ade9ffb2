//go:build unix

package ddp

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// takeAddresses maps pages without access, which therefore take no memory.
func takeAddresses(bytes int64) ([]byte, error) {
	m, err := unix.Mmap(-1, 0, int(bytes), unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil, fmt.Errorf("addresses of %d B: mmap: %w", bytes, err)
	}
	return m, nil
}

func giveAddresses(m []byte) error { return unix.Munmap(m) }
