//go:build !linux || !amd64 || android

package dl

import (
	"fmt"
	"runtime"
)

func errPlatform() error {
	return fmt.Errorf("%w: shared libraries on %s/%s", ErrUnsupported, runtime.GOOS, runtime.GOARCH)
}

func sysOpen(string, bool) (uintptr, error) { return 0, errPlatform() }

func sysSymbol(uintptr, string) uintptr { return 0 }

func sysPath(uintptr) string { return "" }

func sysCall(uintptr, []uintptr) uintptr { return 0 }

const statusWords = 0

func sysStatus(uintptr, []uintptr) int32 { return 0 }

func sysStatus2(uintptr, uintptr, uintptr) int32 { return -1 }

func sysRegister(any, uintptr) {}

func sysCallback(any) (uintptr, error) { return 0, errPlatform() }
