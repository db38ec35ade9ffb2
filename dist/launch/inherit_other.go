//go:build !linux

package launch

import (
	"fmt"

	"github.com/symgrad/symgrad/dist"
)

func readInherited(int, int64) ([]byte, error) {
	return nil, fmt.Errorf("no launcher of this project runs here: %w", dist.ErrUnsupported)
}

func startedBy(string) (string, error) {
	return "", fmt.Errorf("ancestors of a process are found on Linux only: %w", dist.ErrUnsupported)
}
