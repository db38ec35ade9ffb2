// Package gpu is the one transport for groups of GPUs, whatever moves the bytes: order, agreement,
// deaths, streams and heaps are written once, and an Engine (a communicator of NCCL, a team of
// NVSHMEM, kernels of our own) only queues operations.
//
// # Control group
//
// A group of GPUs has a control group, a host group of the same ranks, through which they exchange
// handles, agree on errors, compare operations and learn of deaths. The transport owns it.
//
// # Order
//
// The operations of a group run in the order in which they were started, on whatever streams: a
// stream waits, by an event, for the one that ran the operation before. A Send and its Recv stand
// between the same collectives on both ranks; a program for which that is not so could hang, and is
// told so (ErrMismatch). A rank can be 1024 operations ahead of another, and 128 where one of them
// is of an engine that cannot end it; then Start waits, as the driver does when its queue is full.
//
// # Agreement
//
// While checking is on, each rank announces an operation in memory that all share before it queues
// it, and looks at what the others have announced. Of two ranks that differ at least one sees it,
// does not queue, and breaks the group; the pending and later operations of all ranks get
// ErrMismatch with the first field that differs. A Work is done when the device is past it and all
// ranks have announced it, so that nobody is told that an operation went well which others never
// issued; a receive without elements is done when its send was compared with it. Operations of
// views that promise symmetric buffers are compared by the places of these buffers, too, and all by
// whether they run beside other work.
//
// # Deaths and aborts
//
// A goroutine of each group waits for news in the control group and asks the engines for errors of
// their libraries. When the group is broken it aborts the engines, and works end with the cause. No
// wait on the device is unbounded: NVSHMEM's kernels cannot be ended, so a wait asks for an event
// again and again and gives up when the group is broken. What such kernels use is left to the end
// of the process.
//
// # Operations that nobody can end
//
// Those of an Unending engine stay on the device of a rank whose peer has died. A driver whose
// stream is full lets who queues more wait for good. So no more than mostBehind operations are
// queued on a stream with one of them, and few calls of the library within one: who comes then
// waits for room, as long as the group is whole. Nobody counts what else waits behind it: kernels
// and copies of users, replays of graphs, long messages of NVSHMEM in many pieces, and streams that
// wait for this one. Wait for a Work now and then. A group that breaks tells its device
// (cuda.Device.Doubt), which frees nothing from then on until it gets on.
//
// # What engines lack
//
// An operation that an engine cannot do goes to the next one in the order of the table. What none
// can do as it is may be put to one in another form; else it is ErrUnsupported, with what each
// engine has against it. The engines of the libraries compose what these lack themselves, so this
// is for groups without them:
//
//	operation that no engine has           here
//	barrier, sync                          allreduce of one word
//	copies of a type                       copies of as many bytes
//	avg, all but f16 and bf16              sum, then a kernel that divides
//	premulsum by allreduce, likewise       a kernel that multiplies to dst, then sum in place
//	premulsum by reduce, reducescatter     ErrUnsupported: there is no room for the products
//	avg, premulsum of f16, bf16            ErrUnsupported: sums and products of f16 may be out of its range, and round twice
//	several messages in a group call       ErrUnsupported, unless the engine is a Batcher
//	messages of a rank to itself           a copy, within one group call
//	all in a group of one                  a copy, times the factor of a premulsum
//
// A group call runs its collectives first, one after the other, because one may need the result of
// another, and then its messages together, between BeginBatch and EndBatch of their engine. The
// libraries' own grouping of collectives is not used: NCCL promises no order within a group.
//
// # Heaps and parts
//
// A heap is freed by all ranks together: Heap.Close ends one rank's use of it, and the memory goes
// with the group's next call that is collective and no operation, or with the group. Heap.Free
// waits for the transfers that the ranks have under way, but for those on streams of their own
// (Region.OnStream): wait for these first.
//
// The parts that Split makes know the heaps that the group has at that moment, and keep their
// memory until they are closed. A heap that the group makes later is unknown to them: its regions
// are private memory there, and to promise that they are symmetric is ErrInvalid. Make heaps before
// Split, or have the part make its own. It is so because engines are told of memory by a collective
// call of their group, which would have to find its place among what the part does meanwhile.
//
// # Waiting
//
// A Work is a ticket of its Stream, done when an event behind it is. An event costs its caller a
// call of the driver, so there is not one behind each: to wait for the newest operation records one
// and is exact, while to wait for an older small one may wait for up to 255 later ones as well.
//
// Config.Precise puts an event behind every operation. It is for programs that queue a train of
// small operations and then wait for each in turn, to use a result while later ones still run:
// buckets of less than 1 MiB, stages of a pipeline, requests that answer one by one. It is also for
// those that join a stream to an operation in the middle of such a train. A program that waits for
// the last one only, or for each before it starts the next, or whose operations are of 1 MiB and
// more or messages, which have an event anyway, gains nothing by it.
package gpu
