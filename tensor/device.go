package tensor

import "strconv"

// Kind is a family of devices.
type Kind uint8

// The kinds of device.
const (
	HostKind Kind = iota
	CUDAKind
)

// Device is the location of memory and of work on it. The zero value is the host.
type Device struct {
	Kind  Kind
	Index int // ordinal among the devices of this kind that the process sees; 0 on the host
}

// Host is the CPU and its memory.
var Host = Device{}

// CUDA returns the i-th CUDA device that the process sees.
func CUDA(i int) Device { return Device{Kind: CUDAKind, Index: i} }

// String returns "host" or "cuda:1".
func (d Device) String() string {
	switch d.Kind {
	case HostKind:
		return "host"
	case CUDAKind:
		return "cuda:" + strconv.Itoa(d.Index)
	}
	return "device(" + strconv.Itoa(int(d.Kind)) + "):" + strconv.Itoa(d.Index)
}
