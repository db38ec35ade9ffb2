package nvshmem

import (
	"fmt"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/dl"
)

// Error is a call of the library that returned an error code.
type Error struct {
	Call    string
	Code    int32
	Library string // "NVSHMEM 3.4.5 (/path) with NCCL 2.28.3 (/path)"
}

// Error returns a text such as "nvshmemx_team_init: out of memory (2): NVSHMEM 3.4.5 (...) with
// NCCL 2.28.3 (...); set Debug to WARN to see why".
func (e *Error) Error() string {
	return fmt.Sprintf("%s: %s (%d): %s; set Debug to WARN to see why", e.Call, codeText(e.Code), e.Code, e.Library)
}

// refused returns the error of a call that was rejected before the library was called.
func refused(call string, kind error, format string, args ...any) error {
	return fmt.Errorf("nvshmem: %s: %w: %s", call, kind, fmt.Sprintf(format, args...))
}

// unsupported returns the error for a missing function p.
func unsupported(what string, p *dl.Proc) error {
	return fmt.Errorf("nvshmem: %s: %w: %w", what, dist.ErrUnsupported, p.Err())
}
