// Package cuda is CUDA's driver and NVRTC, its compiler, without cgo and without a toolkit:
// devices, streams, events, memory, kernels, graphs. It knows nothing of ranks and groups.
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
// # What is found where
//
// The driver's library, libcuda.so.1, comes with NVIDIA's kernel module and lies where the loader
// looks. NVRTC comes with a toolkit or a Python wheel. Config sets a path for either; else the
// loader's places are searched, and then those of [dl.Places]. Of several NVRTCs the one of the
// driver's own CUDA is taken, and an older one otherwise: what a newer one makes, the driver might
// not run. NVRTC loads a second library, libnvrtc-builtins, by its bare name; it is loaded
// beforehand from beside the first.
//
// # Threads and contexts
//
// The driver keeps a current context for every OS thread. Each method makes its device's context
// current and gives back what the thread had before, so callers need not care. Those that are
// called for every operation (of Stream and Event, and Launch) leave that out: they are meant to be
// called between [Device.Enter] and [Device.Leave], which is the cheapest way for several at once;
// elsewhere they notice that the driver refuses them, and try again inside. Nothing is left current
// on a thread, so other users of CUDA in the process are not disturbed.
//
// The context is the device's primary one. The CUDA runtime uses the same one, so memory, streams
// and events may be handed to and taken from NCCL, NVSHMEM, or any library on top of the runtime.
//
// # Streams and the host
//
// Streams are not joined with the default stream. The blocking copies of Device run on a stream of
// their own and return when done; with what is queued elsewhere, order is by events or Synchronize,
// as between any two streams.
//
// # Memory
//
// Device memory is an address without an owner. Pinned memory of the host is the driver's, or
// mapped memory that was pinned, never the Go heap's; kernels, copies and stream operations reach
// it by [HostMemory.Device]. Go memory may be copied from and to, since such copies do not outlast
// the call. In captured work use HostMemory only: it is read and written again at every launch.
//
// # Errors
//
// Every status is an [Error] with the library's own name and text for it, its file and version, and
// what can be done. The device works while the host goes on, so that an error of a kernel is that
// of some later call; most of these are [Error.Fatal]: the process has lost the device.
//
// # Cost
//
// Enter and Leave, Launch, GraphExec.Launch, and the methods of Stream and Event that queue or ask
// allocate nothing on the Go heap.
package cuda
