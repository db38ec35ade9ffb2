package hosts

import "unsafe"

// pointer returns the address of b, which is not empty.
func pointer(b []byte) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(b)) }
