// Package direct is collectives by kernels of our own: plain loads and stores on the memory of
// peers over NVLink, without NCCL or NVSHMEM, and without multicast.
//
// Make gives eight engines to the dispatcher, which share one board of symmetric memory, one count
// of operations, and every rule below, so that they may be mixed as one likes:
//
//	name           how                                                        hops  bytes out of a GPU, of S
//	ll             packets of 4 bytes of data and 4 of flag, to all peers     1     2 (n-1) S
//	ll128          packets of 120 bytes and a flag, to all peers              1     16/15 (n-1) S
//	ll128-twoshot  the same, to the slice's owner, who sends the sum to all   2     16/15 2 (n-1)/n S
//	oneshot        own data staged; all meet; each loads from all             2     (n-1) S
//	twoshot        all meet; each loads its slice from all, stores the sum    3     2 (n-1)/n S
//	               to all; all meet again
//	tiles          tiles to the slice's owner, who sends the sum to all       2     2 (n-1)/n S
//	host           the same between two, parts by lines, and by the host      2     15/16 S
//	copy           all meet; copy engines bring each its slice of all, and    4     2 (n-1)/n S
//	               the sum to all; all meet again
//
// S is the bytes of the vector; the column is an allreduce's. What an engine has no way of its own
// for it does by packets: Native tells. All of them do every collective operation, for every type
// and reduction; messages between two ranks none does.
//
// # The floor
//
// One way of NVLink is 450 GB/s for a GPU of the Hopper generation, all peers together, of which
// headers take a part. Payload one way, with both ways busy, as TestFloor measures it on H200s:
//
//	stores of multiprocessors   365 GB/s between 2 GPUs, 358 among 4
//	loads                       333              , 327
//	copy engines                382 to 388
//
// Stores are the fastest of what a kernel can do, and tiles does nothing else. A hop, a store that
// a peer's spinning load sees, takes about 1 us; a kernel takes 2 to 2.5 us from the end of the one
// before it in the stream to its own end, with nothing in it. So an allreduce of S bytes takes some
//
//	2.5 us + hops * 1 us + (bytes out) / 365 GB/s
//
//	S                  1 KiB  64 KiB  256 KiB  1 MiB  4 MiB  16 MiB  64 MiB
//	2 GPUs, us         3.5    3.7     4.3      6.6    15.8   50.5    188    (ll128's one hop and 16/15 S to 4 MiB; then two hops and S)
//	measured           3.2    3.8     4.6      7.3    15.7   50.9    179    (ll, ll128, ll128-twoshot from 1 MiB on, host from 8 MiB on)
//	in graphs          1.8    2.4     3.0      5.8    15.3   50.7    179    (small ones begin beside the one in front, which the floor leaves out)
//	4 GPUs, us         3.5    4.0     5.7      8.9    22.0   74      284    (one hop to 64 KiB; then two hops and 1.5 S)
//	measured           3.8    4.9     7.0      10.3   24.2   80.0    304    (ll, ll128, ll128-twoshot from 256 KiB on, tiles from 16 MiB on)
//	in graphs          2.4    3.4     5.3      8.7    23.9   80.0    303
//
// as dispatched between H100s (bench/results/current/h100x2-collectives.json,
// h100x4-collectives.json); the floor does not count what goes by the host. Reduce-scatter and
// all-gather, which move half of that, take some 2.5 us + 1 us + (n-1)/n S / 365 GB/s.
//
// # Tiles
//
// Each warp is a pipeline of its own: it stores its tile of every slice to scratch memory of the
// slice's owner, and while the links carry that, the owner's warp of the same number reduces the
// tile before, and stores the sum to where it belongs on all ranks. Data cross the links once in
// each direction, whole, without flags among them, and by stores only. What it costs is a fence and
// a word to each peer for every tile, so that it pays from 16 MiB on between 2 GPUs and 4, and 64
// MiB of board. In an allreduce the sums go where the destinations lie, so these must lie at one
// place of a slab, which is what the promise of symmetry says: without it, tiles does what twoshot
// does.
//
// # By way of the host
//
// Between two ranks the engine host has a part of an allreduce of 8 MiB and more go by way of the
// host's memory, over the buses between the GPUs and the host: some blocks store tiles of what this
// rank has to pinned memory that both processes map, and others add up what has come there, rank
// 0's first, as everywhere. From 24 MiB on that is a sixteenth, and of what is left twelve blocks
// do a sixteenth by lines, as ll128-twoshot does, and the others tiles. Of less it is 5 of 64 bytes
// less 320 KiB, since the first ones come late, and all else goes by lines, as far as the boards
// have room for these: what is more than 17.9 MiB goes by tiles alone. Less than 8 MiB goes by
// lines alone.
//
// From 32 MiB on an allreduce takes 0.93 to 0.95 of what it takes by tiles, of float32 and of bf16;
// at 8 and 16 MiB 0.96 and 0.94 of the time of ll128-twoshot, in graphs and queued by a group
// (between H100s). It wants a control group whose heap is memory that processes share; without
// that, and where buffers do not lie alike, it does what tiles does. How fast the buses are depends
// on the machine more than on the GPU: only a table that was measured there (symgrad tune) names
// it.
//
// # Copy engines
//
// Of an allreduce, a reduce-scatter and an all-gather copy does what moves by the driver's copies
// between peers, and adds up what has come, in parts, by a kernel that waits for no rank and so
// ends soon: multiprocessors are busy for as long as the memory of this GPU takes, and not for as
// long as the links do. Alone it is slower than tiles, the more the smaller the operation, since a
// copy in a graph begins a few microseconds behind what it follows. Beside a computation it can be
// the better way all the same, for large operations, and Aside says from which size on. It needs
// the promise of symmetry, and memory whose allocations the driver knows, since a copy in a graph
// must not go across two of them; without that, and for what would take many passes, it does what
// twoshot does, and all other operations by packets. Each of its meetings is an operation with an
// epoch of its own; between the first and the last all tiles of the board, both halves, are its
// scratch memory. Copies cannot be ended: where the group breaks, those that are queued still run.
//
// # Fewer blocks
//
// Alone an operation is the fastest with nearly all multiprocessors, but each block keeps its own,
// or a part of one, until it ends. What computes meanwhile takes longer: a matrix product whose
// blocks are one wave of the GPU has two. Config.MaxCTAs bounds the blocks of every launch, which
// costs an operation little where they have 512 threads each. The bits are the same. Which engine
// does an operation was decided without a bound: where it counts, force one, or measure a table
// with the bound (symgrad tune).
//
// # What comes again, and what begins early
//
// A launch costs the host 3 to 5 us. A program that repeats its steps repeats their operations, so
// a group keeps the launches of those that come for the second time, as far as they find a place
// among 512, as graphs of one kernel, which a driver for CUDA 13.0 takes 1.8 us for. The graphs are
// made with the group, since to make one may wait for what runs, and get other kernels and
// arguments later. From the third time on Kept finds one by the operation alone, so that nothing of
// it is worked out once more. Operations of several launches or more than 2 MiB, of all ranks
// together where they gather or scatter, of streams that are captured, and of those of other
// libraries, are not kept; a slab that is registered or unregistered, and Force, have all
// forgotten.
//
// In a graph, or where launches are not kept, an operation may begin when all blocks of the one in
// front of it have ended, before the device has made sure of what these wrote, which the kernel
// waits for itself: one of 8 MiB takes 0.99 of its time so in a graph, and queued 0.96 of what it
// takes when it is kept. One of few blocks and bytes lets the one behind it begin even before it
// ends, if that is another such, so that the device has done by then what it does before a kernel's
// first instruction: 0.3 us of 3.3. With Config.MaxCTAs none does.
//
// # All kernels are there before the first operation
//
// The driver loads code, and makes room for the local memory of threads, behind the kernels that
// run. One of them may wait for a peer, and the peer for this rank: so no Enqueue may load
// anything. Make compiles, loads, and launches without work, every kernel of the group's number of
// ranks: for each type and reduction a module with all ways. Ranks share out what is in no cache;
// one by one, all of it takes a core about a minute. Integers with and without a sign share what
// gives them the same bits. Parts of a group with as many ranks use what is loaded.
//
// # One rank
//
// In a group of one all engines do the same: nothing in place, and a copy of the driver's
// elsewhere. Only a premulsum has a kernel, which waits for nobody, so that its blocks fill the
// GPU; it reads and writes the data once. A factor of exactly 1 in place ends it at once: all
// numbers, denormal ones and -0 too, keep the bits that the product would give them. A NaN then
// keeps its bits as well, where the product would be a NaN that the GPU chooses; which one, package
// internal/reduce does not specify either. Such a group compiles those kernels only, and its board
// has no scratch memory.
//
// # How ranks keep in step
//
// Every operation has a number, its epoch, which the kernel counts in device memory: a launch
// carries nothing that changes, and so can be captured in a graph and replayed. Words by which
// ranks meet carry the epoch; none is ever reset. Scratch memory has two halves, of which an
// operation uses the one of its epoch's parity: a rank ends operation e+1 only after it had
// something of e+1 from every other rank, which was therefore done with e, so that e+2 may use the
// half of e again. That saves the closing barrier of all engines but twoshot and copy, whose peers
// read and write the buffers themselves.
//
// Where a rank's buffers lie it tells in the words by which it opens an operation: the number of a
// registered slab and an offset. Ranks may have them in a slab or elsewhere as they like; what lies
// elsewhere the kernel copies to the board, in pieces where it is large. Engines that send packets
// read and write the buffers of their own rank only.
//
// A kernel that waits looks at a word of the host now and then, which Abort sets: a peer that is
// dead never hangs a GPU. The blocks of a launch wait for those of other GPUs, so all of them must
// run at once: there are fewer than multiprocessors.
//
// # Arithmetic
//
// The bits are those of package internal/reduce, but for which NaN a NaN is, whatever the engine,
// the shape of the launch and the place of the buffers: elements combine from rank 0 upwards, f16
// and bf16 in f32, rounded once at the end; a product is rounded before it is added (kernels are
// compiled with -fmad=false, and written with __fmul_rn and __fadd_rn); denormal numbers are kept;
// integers wrap; minimum and maximum of a NaN are NaN, and -0 is below +0.
//
// # What is relied on
//
// The memory model of PTX, and for ll128 what NCCL's LL128 relies on as well: 128 bytes that a warp
// stores with one instruction arrive as a whole over NVLink. Words of ll carry 32 bits of the
// epoch: one that was last written exactly 2^32 - 2 operations ago would be taken for new.
//
// Sources: NCCL 2.28 (prims_ll.h, prims_ll128.h), PTX ISA 8.8 (memory consistency model), the
// custom allreduce of vLLM and TensorRT-LLM (flag barriers per block).
package direct
