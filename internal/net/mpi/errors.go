package mpi

import (
	"fmt"
	"unsafe"

	"github.com/symgrad/symgrad/internal/net/wire"
)

// check returns the error of a call that gave code; op is the function.
func (l *library) check(op string, code int32) error {
	if code == 0 {
		return nil
	}
	return fmt.Errorf("mpi: %s: %s", op, l.text(code))
}

// text returns the library's text for an error code.
func (l *library) text(code int32) string {
	const bytes = 512 // MPI_MAX_ERROR_STRING, at most
	text, n := make([]byte, bytes), new(int32)
	r, err := l.errorString.Call(uintptr(code), uintptr(unsafe.Pointer(&text[0])), uintptr(unsafe.Pointer(n)))
	if err != nil || int32(r) != 0 || *n < 0 || *n > bytes {
		return fmt.Sprintf("error %d", code)
	}
	return string(text[:*n])
}

// class returns the class of an error code.
func (l *library) class(code int32) int32 {
	class := new(int32)
	if r, err := l.errorClass.Call(uintptr(code), uintptr(unsafe.Pointer(class))); err != nil || int32(r) != 0 {
		return code
	}
	return *class
}

// isGone reports whether an error of a class means that the request's peer is gone. MPICH reports
// errors of its network as MPI_ERR_OTHER.
func (c *classes) isGone(class int32) bool {
	switch class {
	case 0:
		return false
	case c.failed, c.aborted, c.other, c.intern:
		return true
	}
	return false
}

// requestError returns the error of a request with peer that ended with code.
func (l *library) requestError(code int32, peer int) error {
	if l.classes.isGone(l.class(code)) && peer >= 0 {
		return &wire.PeerError{Peer: peer, How: l.text(code)}
	}
	return fmt.Errorf("mpi: %s", l.text(code))
}
