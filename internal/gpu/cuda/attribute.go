package cuda

import "fmt"

// Attribute is a numeric property of a device, a CUdevice_attribute.
type Attribute int32

// Attributes used by this library, its tests or its reports, with cuda.h's numbers.
const (
	MaxThreadsPerBlock          Attribute = 1
	MaxBlockDimX                Attribute = 2
	MaxBlockDimY                Attribute = 3
	MaxBlockDimZ                Attribute = 4
	MaxGridDimX                 Attribute = 5
	MaxGridDimY                 Attribute = 6
	MaxGridDimZ                 Attribute = 7
	MaxSharedPerBlock           Attribute = 8 // bytes
	WarpSize                    Attribute = 10
	MaxRegistersPerBlock        Attribute = 12
	ClockRateKHz                Attribute = 13
	MultiprocessorCount         Attribute = 16
	CanMapHostMemory            Attribute = 19
	ComputeMode                 Attribute = 20 // 0 shared, 2 prohibited, 3 one process
	ECCEnabled                  Attribute = 32
	MemoryClockKHz              Attribute = 36
	MemoryBusBits               Attribute = 37
	L2Bytes                     Attribute = 38
	MaxThreadsPerMultiprocessor Attribute = 39
	AsyncEngines                Attribute = 40 // copy engines
	UnifiedAddressing           Attribute = 41
	ComputeCapabilityMajor      Attribute = 75
	ComputeCapabilityMinor      Attribute = 76
	StreamPriorities            Attribute = 78
	MaxSharedPerMultiprocessor  Attribute = 81 // bytes
	HostNativeAtomics           Attribute = 86
	CooperativeLaunch           Attribute = 95
	MaxSharedPerBlockOptIn      Attribute = 97 // bytes, after Function.AllowShared
	VirtualMemory               Attribute = 102
	FileDescriptorHandles       Attribute = 103
	GPUDirectRDMA               Attribute = 116
	StreamMemoryOps64           Attribute = 122 // Stream.Write64 and Wait64
	StreamWaitNOR               Attribute = 123
)

// Attribute returns the value of a for the device. Errors: *Error.
func (v *Device) Attribute(a Attribute) (int, error) {
	var n int32
	if err := v.d.check("cuDeviceGetAttribute", v.d.api.deviceAttr(&n, int32(a), v.dev)); err != nil {
		return 0, fmt.Errorf("attribute %d of device %d: %w", a, v.index, err)
	}
	return int(n), nil
}
