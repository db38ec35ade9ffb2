package probe

import (
	"bytes"
	"fmt"
	"unsafe"

	"github.com/symgrad/symgrad/internal/dl"
)

// Driver has the CUDA driver's answers about itself and the GPUs.
type Driver struct {
	CUDA    string   // newest CUDA version that it supports: "13.0"
	Devices []GPU    // in the driver's order, which CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER set
	Peers   [][]bool // Peers[i][j] is whether GPU i can read and write the memory of GPU j
	Atomics [][]bool // whether it can also do atomic operations there
}

// GPU is one device.
type GPU struct {
	Index             int    `json:"index"`
	Name              string `json:"name"`
	UUID              string `json:"uuid"` // "GPU-..." as nvidia-smi prints it
	PCI               string `json:"pci"`  // "0000:1b:00.0"
	MemoryBytes       int64  `json:"memory_bytes"`
	ComputeCapability string `json:"compute_capability"` // "9.0"
	Multiprocessors   int    `json:"multiprocessors"`
	ComputeMode       string `json:"compute_mode"` // "default", "prohibited" or "exclusive"

	// VirtualMemory is whether memory can be mapped in pieces and shared by file descriptors, which
	// symmetric heaps need.
	VirtualMemory bool `json:"virtual_memory"`
}

// Numbers of CUdevice_attribute and CUdevice_P2PAttribute (cuda.h).
const (
	attrMultiprocessors = 16
	attrComputeMode     = 20
	attrPCIBus          = 33
	attrPCIDevice       = 34
	attrPCIDomain       = 50
	attrMajor           = 75
	attrMinor           = 76
	attrVirtualMemory   = 102
	attrFDHandles       = 103

	p2pNativeAtomics = 3
)

// driverAPI is the part of the driver that needs no context, and so takes no memory of a GPU.
type driverAPI struct {
	initialize  func(flags uint32) int32                        `dl:"cuInit"`
	version     func(v *int32) int32                            `dl:"cuDriverGetVersion"`
	count       func(n *int32) int32                            `dl:"cuDeviceGetCount"`
	device      func(dev *int32, ordinal int32) int32           `dl:"cuDeviceGet"`
	name        func(text *byte, length, dev int32) int32       `dl:"cuDeviceGetName"`
	memory      func(bytes *uint64, dev int32) int32            `dl:"cuDeviceTotalMem_v2"`
	attribute   func(value *int32, attr, dev int32) int32       `dl:"cuDeviceGetAttribute"`
	canAccess   func(yes *int32, dev, peer int32) int32         `dl:"cuDeviceCanAccessPeer"`
	uuid        func(id *[16]byte, dev int32) int32             `dl:"cuDeviceGetUuid_v2,optional,since=11.4"`
	uuidOld     func(id *[16]byte, dev int32) int32             `dl:"cuDeviceGetUuid,optional,since=9.2"`
	p2p         func(value *int32, attr, dev, peer int32) int32 `dl:"cuDeviceGetP2PAttribute,optional,since=8.0"`
	errorName   func(code int32, text **byte) int32             `dl:"cuGetErrorName"`
	errorString func(code int32, text **byte) int32             `dl:"cuGetErrorString"`
}

// check returns nil for CUDA_SUCCESS, else the driver's error text.
func (d *driverAPI) check(call string, code int32) error {
	if code == 0 {
		return nil
	}
	name, text := "CUresult", "no such error"
	var p *byte
	if d.errorName(code, &p) == 0 && p != nil {
		name = cText(p)
	}
	if d.errorString(code, &p) == 0 && p != nil {
		text = cText(p)
	}
	return fmt.Errorf("%s: %s (%d): %s", call, name, code, text)
}

// askDriver initializes the driver and asks for all data of the GPUs.
func askDriver(lib *dl.Library, a *Answer) error {
	var d driverAPI
	if err := lib.Bind(&d); err != nil {
		return err
	}
	// All calls run on one thread, because they share its state.
	return dl.OnThread(func() error {
		var v int32
		if err := d.check("cuDriverGetVersion", d.version(&v)); err != nil { // needs no cuInit
			return err
		}
		a.Driver = &Driver{CUDA: cudaVersion(v), Devices: []GPU{}}
		a.Version = "CUDA " + a.Driver.CUDA
		if err := d.check("cuInit", d.initialize(0)); err != nil {
			return err
		}
		var n int32
		if err := d.check("cuDeviceGetCount", d.count(&n)); err != nil {
			return err
		}
		if n == 0 {
			return fmt.Errorf("the driver shows no GPU")
		}
		handles := make([]int32, n)
		for i := range handles {
			if err := d.check("cuDeviceGet", d.device(&handles[i], int32(i))); err != nil {
				return err
			}
			gpu, err := d.describe(i, handles[i])
			if err != nil {
				return err
			}
			a.Driver.Devices = append(a.Driver.Devices, gpu)
		}
		return d.peers(handles, a.Driver)
	})
}

// describe returns the data of one GPU.
func (d *driverAPI) describe(index int, dev int32) (GPU, error) {
	g := GPU{Index: index}
	name := make([]byte, 256)
	if err := d.check("cuDeviceGetName", d.name(&name[0], int32(len(name)), dev)); err != nil {
		return g, err
	}
	text, _, _ := bytes.Cut(name, []byte{0})
	g.Name = string(text)
	var memory uint64
	if err := d.check("cuDeviceTotalMem", d.memory(&memory, dev)); err != nil {
		return g, err
	}
	g.MemoryBytes = int64(memory)
	values := map[int32]int32{}
	for _, attr := range []int32{
		attrMultiprocessors, attrComputeMode, attrPCIBus, attrPCIDevice, attrPCIDomain, attrMajor, attrMinor, attrVirtualMemory, attrFDHandles,
	} {
		var v int32
		code := d.attribute(&v, attr, dev)
		if code != 0 && attr < attrVirtualMemory { // older drivers do not know the later attributes
			return g, d.check(fmt.Sprintf("cuDeviceGetAttribute(%d)", attr), code)
		}
		if code == 0 {
			values[attr] = v
		}
	}
	g.Multiprocessors = int(values[attrMultiprocessors])
	g.ComputeCapability = fmt.Sprintf("%d.%d", values[attrMajor], values[attrMinor])
	g.PCI = fmt.Sprintf("%04x:%02x:%02x.0", values[attrPCIDomain], values[attrPCIBus], values[attrPCIDevice])
	g.ComputeMode = computeMode(values[attrComputeMode])
	g.VirtualMemory = values[attrVirtualMemory] != 0 && values[attrFDHandles] != 0
	g.UUID = d.uuidOf(dev)
	return g, nil
}

// computeMode returns the name of a CUcomputemode.
func computeMode(mode int32) string {
	switch mode {
	case 0:
		return "default"
	case 2:
		return "prohibited"
	case 1, 3: // per thread (removed), per process
		return "exclusive"
	}
	return fmt.Sprintf("mode %d", mode)
}

// uuidOf returns the UUID as nvidia-smi prints it, or "".
func (d *driverAPI) uuidOf(dev int32) string {
	get := d.uuid
	if get == nil {
		get = d.uuidOld
	}
	id := new([16]byte)
	if get == nil || get(id, dev) != 0 {
		return ""
	}
	return fmt.Sprintf("GPU-%x-%x-%x-%x-%x", id[0:4], id[4:6], id[6:8], id[8:10], id[10:16])
}

// peers fills in the peer access.
func (d *driverAPI) peers(handles []int32, out *Driver) error {
	for i, dev := range handles {
		access, atomics := make([]bool, len(handles)), make([]bool, len(handles))
		for j, peer := range handles {
			if i == j {
				access[j], atomics[j] = true, true
				continue
			}
			var yes int32
			if err := d.check("cuDeviceCanAccessPeer", d.canAccess(&yes, dev, peer)); err != nil {
				return err
			}
			access[j] = yes != 0
			if d.p2p != nil && access[j] && d.p2p(&yes, p2pNativeAtomics, dev, peer) == 0 {
				atomics[j] = yes != 0
			}
		}
		out.Peers, out.Atomics = append(out.Peers, access), append(out.Atomics, atomics)
	}
	return nil
}

// cText returns the text at an address in C memory, up to its NUL or 200 bytes.
func cText(p *byte) string {
	var text []byte
	for i := range 200 {
		b := *(*byte)(unsafe.Add(unsafe.Pointer(p), i))
		if b == 0 {
			break
		}
		text = append(text, b)
	}
	return string(text)
}
