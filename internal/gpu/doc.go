// Package gpu implements dist.Transport for groups of GPUs. The transport keeps the order of
// operations, compares them between ranks, detects dead ranks, and owns streams and symmetric
// heaps. An Engine (an NCCL communicator, an NVSHMEM team, kernels of package direct) only queues
// operations.
//
// Main types, and their files:
//
//	Transport        open, close, Start, Split   transport.go, start.go, split.go, heap.go
//	core, tools      its constants, and objects  core.go, tools.go
//	engineSet        engines of a group          engines.go, batch.go
//	streamSet        streams of a group          streams.go, room.go
//	heapSet          heaps of a group            heaps.go
//	Engine           moves the bytes             engine.go, compose.go, build.go
//	dispatcher       chooses an engine           dispatcher.go, table.go, builtin.go, tune.go
//	ledger           operations of all ranks     ledger.go, ledger_memory.go, entry.go, abort.go
//	Stream           CUDA stream and its Works   stream.go, await.go, join.go, capture.go
//	Heap             symmetric memory            heap.go, alloc.go
//	Region           access to it                region.go, move.go, words.go, onstream.go
//	Member, Memory   a rank's place and slabs    member.go
//	far, hierarchy   ranks of several hosts      far.go, closing.go, hierarchy.go
//
// # Control group
//
// A group of GPUs has a control group: a host group of the same ranks. The ranks use it to exchange
// handles, agree on errors, compare operations and detect dead ranks. The transport owns it.
//
// # Several hosts
//
// If the control group is over several hosts, each host has a ledger, with copies of the parts of
// other hosts' ranks: see far. Engines that address the memory of peers serve groups of one host
// only. A group with as many ranks on each host also has the engine Hierarchical. A part that Split
// makes of a group over hosts calls the Maker, and may have engines that the group has not.
//
// # Order
//
// The operations of a group run in the order in which they were started, on any streams. A stream
// waits, by an event, for the stream that ran the previous operation. A Send and its Recv must come
// between the same collectives on both ranks; otherwise they could hang, and fail with ErrMismatch.
// A rank can be 1024 operations ahead of another, or 128 if one of them belongs to an Unending
// engine. Then Start waits, as the driver does when its queue is full.
//
// # Agreement
//
// While checking is on, each rank announces an operation in shared memory before it queues it. Then
// it reads the announcements of the others. If two ranks differ, at least one of them sees it, does
// not queue, and breaks the group. The pending and later operations of all ranks then fail with
// ErrMismatch and the first field that differs.
//
// A Work is done when the device has passed it and all ranks have announced it, so no rank reports
// success for an operation that others never issued. A receive without elements is done when its
// send was compared with it. The comparison includes the flags of an operation, and the buffers'
// offsets if Op.Symmetric is set.
//
// # Deaths and aborts
//
// A goroutine of each group watches the control group and asks the engines for errors of their
// libraries. When the group is broken, it aborts the engines, and Works end with the cause. No wait
// on the device is unbounded. NVSHMEM's kernels cannot be ended, so a wait polls an event and gives
// up when the group is broken. Memory that such kernels use is not freed before the process ends.
//
// # Operations that cannot be ended
//
// Operations of an Unending engine stay on the device of a rank whose peer has died. If the
// driver's queue of a stream is full, a call that queues more never returns. So at most mostBehind
// operations are queued on a stream with one of them, and each makes only a few library calls at a
// time. Later calls wait for room while the group is whole.
//
// Other work that waits for such an operation is not counted: kernels and copies of users, replays
// of graphs, long messages of NVSHMEM in many pieces, streams that wait for this one. Wait for a
// Work now and then. A group that breaks reports this to its device (cuda.Device.Doubt), which
// frees no memory until its work has ended.
//
// # Compositions
//
// An operation that an engine cannot do goes to the next engine in the order of the table. If no
// engine can do it, one engine may get it in another form. Otherwise it is ErrUnsupported, with the
// reason of each engine. The engines of the libraries compose most operations themselves, so this
// table serves groups without them:
//
//	operation that no engine has           here
//	barrier, sync                          allreduce of one word
//	copies of a type                       copies of as many bytes
//	avg, except f16 and bf16               sum, then a kernel that divides
//	premulsum by allreduce, likewise       a kernel that multiplies to dst, then sum in place
//	premulsum by reduce, reducescatter     ErrUnsupported: no memory for the products
//	avg, premulsum of f16, bf16            ErrUnsupported: values may overflow f16, and round twice
//	several messages in a group call       ErrUnsupported, unless the engine is a Batcher
//	messages of a rank to itself           a copy, within one group call
//	all in a group of one                  a copy, times the factor of a premulsum
//
// A group call runs its collectives first, one after the other, because one may need the result of
// another. Its messages follow together, between BeginBatch and EndBatch of their engine. The
// libraries' own grouping of collectives is not used: NCCL promises no order within a group.
//
// # Heaps and parts
//
// All ranks free a heap together. Heap.Close ends one rank's use of it. The memory is freed at the
// group's next collective call that is not an operation, or with the group. Heap.Free waits for the
// pending transfers of all ranks, except those of Region.OnStream: wait for these first.
//
// A part that Split makes knows the heaps that the group has at that moment, and keeps their memory
// until the part is closed. A later heap of the group is private memory to the part, so a promise
// of symmetric buffers in it is ErrInvalid. Make heaps before Split, or in the part. The reason:
// engines register memory by a collective call of their group, and the part may run operations at
// that time.
//
// # Waiting
//
// A Work is a ticket of its Stream, done when a later event of the stream is. Recording an event
// costs a driver call, so most operations have none. Waiting for the newest operation records an
// event and is exact. Waiting for an older small operation may wait for up to 255 later ones too.
//
// Config.Precise records an event after every operation. Use it if a program queues many small
// operations and waits for each in turn while later ones run. Examples are buckets of less than 1
// MiB, pipeline stages, and requests that are answered one by one. It also helps to join a stream
// to an operation in the middle of such a series. Otherwise it gains nothing: for a wait on the
// last operation, for a wait after each, for messages, and for operations of 1 MiB or more.
package gpu
