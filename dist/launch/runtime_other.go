//go:build !linux

package launch

import (
	"fmt"
	"net"

	"github.com/symgrad/symgrad/dist"
)

func runtimeFolders(string) []string { return nil }

func listenFile(path string) (net.Listener, error) {
	return nil, fmt.Errorf("socket %s: %w", path, dist.ErrUnsupported)
}

func holderOfName(string) error { return nil }
