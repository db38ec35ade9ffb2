// Package cuda binds CUDA's driver and its compiler NVRTC, without cgo and without a toolkit:
// devices, streams, events, memory, kernels, graphs. It knows no ranks and groups.
//
//	d, err := cuda.Open(cuda.Config{})
//	defer d.Close()
//	v, err := d.Device(0)
//	c, err := d.Compiler()
//	image, err := c.Compile(v, cuda.Source{Name: "add.cu", Text: `
//	extern "C" __global__ void add(float *x, float y, int n) {
//	    int i = blockIdx.x * blockDim.x + threadIdx.x;
//	    if (i < n) x[i] += y;
//	}`})
//	m, err := v.Load(image)
//	defer m.Close()
//	add, err := m.Function("add")
//	s, err := v.NewStream(0)
//	defer s.Close()
//	x, err := v.Alloc(4 << 20)
//	defer v.Free(x)
//	var args cuda.Args
//	args.Ptr(x)
//	args.F32(1)
//	args.I32(1 << 20)
//	err = add.Launch(s, cuda.Launch{Grid: [3]uint32{4096}, Block: [3]uint32{256}}, &args)
//	err = s.Synchronize()
//
// # Search for the libraries
//
// The driver's library, libcuda.so.1, comes with NVIDIA's kernel module and is in the loader's
// folders. NVRTC comes with a toolkit or a Python wheel. Config sets a path for either; otherwise
// the loader's folders are searched, then those of [dl.Places]. Of several NVRTCs the one of the
// driver's own CUDA version is used, or else an older one: the driver might not run the code of a
// newer one. NVRTC loads a second library, libnvrtc-builtins, by its bare name. It is loaded
// beforehand from NVRTC's folder.
//
// # Threads and contexts
//
// The driver keeps a current context for every OS thread. Each method makes its device's context
// current, and restores the previous one on return. The hot methods of Stream and Event, and
// Launch, skip this: they are fastest between [Device.Enter] and [Device.Leave]. On a thread
// without the context the driver rejects them, and they retry with the context. No context is left
// current, so other users of CUDA in the process are not disturbed.
//
// The context is the device's primary one, which the CUDA runtime also uses. Memory, streams and
// events can therefore be shared with NCCL, NVSHMEM and any library on top of the runtime.
//
// # Streams and the host
//
// Streams do not synchronize with the default stream. The blocking copies of Device run on a stream
// of their own and return when done. Events or Synchronize order them with work on other streams.
//
// # Memory
//
// Device memory is an address without an owner. Pinned host memory belongs to the driver, or is
// mapped memory that was pinned; it is never Go memory. Kernels, copies and stream operations use
// it by [HostMemory.Device]. Copies from and to Go memory are allowed, because they end before the
// call returns. Captured work must use HostMemory only: every launch reads and writes it again.
//
// # Errors
//
// Every failed status is an [Error] with the library's name and text for it, its file and version,
// and a remedy. The device works asynchronously, so an error of a kernel appears in a later call.
// Most such errors are [Error.Fatal]: the process has lost the device.
//
// # Cost
//
// Enter and Leave, Launch, GraphExec.Launch, and the methods of Stream and Event that queue or
// query allocate no Go memory.
package cuda
