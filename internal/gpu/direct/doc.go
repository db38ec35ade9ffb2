// Package direct implements collectives by its own kernels: plain loads and stores on the memory of
// peers over NVLink, without NCCL, NVSHMEM or multicast.
//
// Make returns seven engines for the dispatcher of package gpu. They share one board of symmetric
// memory, one count of operations and the rules below, so a group may mix them freely:
//
//	name           algorithm                                    hops  bytes out of a GPU, of S
//	ll             packets of 4 bytes and 4 of flag, to all     1     2 (n-1) S
//	ll128          packets of 120 bytes and a flag, to all      1     16/15 (n-1) S
//	ll128-twoshot  the same, to the slice's owner, who sends    2     16/15 2 (n-1)/n S
//	               the sum to all
//	oneshot        own data staged; all meet; each loads all    2     (n-1) S
//	twoshot        all meet; each loads its slice from all,     3     2 (n-1)/n S
//	               stores the sum to all; all meet again
//	tiles          tiles to the slice's owner, who sends the    2     2 (n-1)/n S
//	               sum to all
//	copy           all meet; copy engines bring each its slice  4     2 (n-1)/n S
//	               of all, and the sum to all; all meet again
//
// S is the bytes of the vector in an allreduce. An engine does operations without an algorithm of
// its own by packets: see Native. Every engine does every collective operation, type and reduction,
// but no messages between two ranks.
//
// The files: engine.go queues operations, engine_kind.go maps them to kernels, layout.go has the
// memory layout and Config, shape.go and rules.go the launch shapes, kernels.go and source.go
// compile kernels/*.cu. state.go is the part that the engines of a group share. copy.go,
// tile.go and alone.go belong to one engine or case each, kept.go caches launches, ipc.go allocates
// memory.
//
// # The floor
//
// One direction of NVLink has 450 GB/s for a GPU of the Hopper generation, all peers together, and
// headers take a part of that. TestFloor measured this payload in each of both directions on H200s:
//
//	stores of multiprocessors   365 GB/s between 2 GPUs, 358 among 4
//	loads                       333              , 327
//	copy engines                382 to 388
//
// Kernels are fastest by stores, and tiles uses nothing else. A hop, a store that a peer's spinning
// load sees, takes about 1 us. An empty kernel takes 2 to 2.5 us from the end of its predecessor in
// the stream to its own end. So an allreduce of S bytes takes about
//
//	2.5 us + hops * 1 us + (bytes out) / 365 GB/s
//
//	S               1 KiB  64 KiB  256 KiB  1 MiB  4 MiB  16 MiB  64 MiB
//	2 GPUs, us      3.5    3.7     4.3      6.6    15.8   50.5    188     (1)
//	4 GPUs, us      3.5    4.0     5.7      8.9    22.0   74      284     (2)
//
//	(1) one hop of ll128 with 16/15 S up to 4 MiB; then two hops and S
//	(2) one hop up to 64 KiB; then two hops and 1.5 S
//
// Reduce-scatter and all-gather move half of that and take about 2.5 us + 1 us + (n-1)/n S / 365
// GB/s. docs/reference/collective-numbers.md has the measured times. Small operations are faster in
// graphs than the floor, because they start before their predecessor ends.
//
// # Tiles
//
// Each warp is a pipeline of its own. It stores its tile of every slice to scratch memory of the
// slice's owner. While the links carry that, the owner's warp of the same number reduces the
// previous tile and stores the sum to its place on all ranks. Data cross the links once in each
// direction, without flags in between, by stores only. Each tile costs a fence and a word to each
// peer. So tiles pays from 16 MiB on between 2 GPUs and 4, and needs 64 MiB of board. An allreduce
// stores sums directly to the destinations, so these must have one offset in a slab on all ranks,
// as op.Symmetric promises. Without that, tiles uses the algorithm of twoshot.
//
// # Copy engines
//
// The engine copy does allreduce, reduce-scatter and all-gather by the driver's copies between
// peers. A kernel that waits for no rank adds the parts that have arrived. So multiprocessors are
// busy only as long as this GPU's memory takes, not as long as the links do. On an idle GPU copy is
// slower than tiles, most of all for small operations: a copy in a graph begins a few microseconds
// after its predecessor. During a computation it can be faster for large operations; Aside returns
// from which size on. It needs op.Symmetric, and memory whose allocations the driver knows, since a
// copy in a graph must not cross two of them. Without these, and for operations of many passes,
// copy uses the algorithm of twoshot, and packets for all other operations. Each of its meetings is
// an operation with its own epoch. Between the first and the last its scratch memory is all tiles
// of the board, both halves. Copies cannot be ended: if the group breaks, queued copies still run.
//
// # Fewer blocks
//
// An operation is fastest with nearly all multiprocessors, but each block keeps all or part of one
// until it ends. A computation takes longer meanwhile: a matrix product whose blocks fill the GPU
// once then needs two waves. Config.MaxCTAs limits the blocks of every launch. With 512 threads in
// a block that costs an operation little. The bits are the same. The dispatcher's table was
// measured without a limit, so force an engine, or measure a table with the limit (symgrad tune).
//
// # Cached launches and early starts
//
// A launch costs the host 3 to 5 us. Programs repeat their operations at every step, so a group
// caches the launches of operations that come a second time. The cache has 512 places, each a graph
// of one kernel, which a driver for CUDA 13.0 launches in 1.8 us. The graphs are created with the
// group, since creation may wait for running work; later they get other kernels and arguments. From
// the third time on Kept finds the launch by the operation alone. Not cached are operations of
// several launches, or of more than 2 MiB (of all ranks together if they gather or scatter). Nor
// are operations on captured streams or streams of other libraries. Registering or unregistering a
// slab, and Force, empty the cache.
//
// In a graph, or uncached, an operation may begin when all blocks of its predecessor have ended,
// before the device has made their writes visible. The kernel itself waits for that. An operation
// of 8 MiB then takes 0.99 of its time in a graph, and queued 0.96 of the time of a cached launch.
// If two successive operations have few blocks and bytes, the second may begin before the first
// ends. The device's work before a kernel's first instruction is then done early: 0.3 us of 3.3.
// With Config.MaxCTAs no operation begins early.
//
// # Kernels are loaded before the first operation
//
// The driver loads code, and allocates local memory of threads, after the running kernels. One of
// them may wait for a peer, which may wait for this rank. So Enqueue must load nothing. Make
// compiles, loads, and launches without work, every kernel for the group's number of ranks: for
// each type and reduction a module with all algorithms. The ranks divide the modules that are in no
// cache; together these take one core about a minute. Signed and unsigned integers share kernels
// that produce equal bits. Parts of a group with the same number of ranks use the loaded kernels.
//
// # One rank
//
// In a group of one all engines are the same: no work in place, and a copy of the driver elsewhere.
// Only a premulsum has a kernel. It waits for no rank, so its blocks fill the GPU; it reads and
// writes the data once. A factor of exactly 1 in place ends it at once: all numbers, including
// denormal ones and -0, keep the bits of the product. A NaN also keeps its bits, while the product
// would be a NaN that the GPU chooses; package internal/host/reduce does not specify which one.
// Such a group compiles only these kernels, and its board has no scratch memory.
//
// # Synchronization of ranks
//
// Every operation has a number, its epoch, which the kernel counts in device memory. So a launch
// has no changing arguments, and can be captured in a graph and replayed. Words by which ranks meet
// contain the epoch and are never reset. Scratch memory has two halves; an operation uses the half
// of its epoch's parity. A rank ends operation e+1 only after it had data of e+1 from every other
// rank. Those had finished e, so e+2 may use the half of e again. That saves the closing barrier of
// all engines except twoshot and copy, whose peers access the buffers themselves.
//
// The words that open an operation contain the location of a rank's buffers: the number of a
// registered slab, and an offset. Ranks may have buffers in a slab or elsewhere; data elsewhere is
// copied to the board, in pieces if it is large. Engines that send packets access the buffers of
// their own rank only.
//
// A kernel that waits now and then reads a word of the host, which Abort sets: a dead peer never
// hangs a GPU. The blocks of a launch wait for those of other GPUs, so all of them must run at
// once: there are fewer blocks than multiprocessors.
//
// # Arithmetic
//
// Results have the bits of package internal/host/reduce, except the bits of a NaN, for every
// engine, launch shape and buffer location. Elements combine from rank 0 upwards; f16 and bf16
// combine in f32, rounded once at the end. A product is rounded before it is added (kernels are
// compiled with
// -fmad=false, and use __fmul_rn and __fadd_rn). Denormal numbers are kept; integers wrap; minimum
// and maximum of a NaN are NaN, and -0 is below +0.
//
// # Assumptions
//
// The kernels rely on the memory model of PTX. ll128 also relies on a property that NCCL's LL128
// needs: 128 bytes that a warp stores with one instruction arrive as a whole over NVLink. Words of
// ll contain 32 bits of the epoch: one last written exactly 2^32 - 2 operations ago would be taken
// for new.
//
// Sources: NCCL 2.28 (prims_ll.h, prims_ll128.h), PTX ISA 8.8 (memory consistency model), the
// custom allreduce of vLLM and TensorRT-LLM (flag barriers per block).
package direct
