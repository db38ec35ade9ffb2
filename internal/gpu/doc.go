// Package gpu is the one transport for groups of GPUs, whatever moves the bytes: order, agreement, deaths, streams and heaps
// are written once, and an Engine (a communicator of NCCL, a team of NVSHMEM, kernels of our own) only queues operations.
//
// # Control group
//
// A group of GPUs has a control group, a host group of the same ranks, through which they exchange handles, agree on
// errors, compare operations and learn of deaths. The transport owns it.
//
// # Order
//
// The operations of a group run in the order in which they were started, on whatever streams: a stream waits, by an event,
// for the one that ran the operation before. A Send and its Recv stand between the same collectives on both ranks; a
// program for which that is not so could hang, and is told so (ErrMismatch). A rank can be 1024 operations ahead of
// another; then Start waits, as the driver does when its queue is full.
//
// # Agreement
//
// While checking is on, each rank announces an operation in memory that all share before it queues it, and looks at what
// the others have announced. Of two ranks that differ at least one sees it, does not queue, and breaks the group; the
// pending and later operations of all ranks get ErrMismatch with the first field that differs. A Work is done when the
// device is past it and all ranks have announced it, so that nobody is told that an operation went well which others never
// issued. Operations of views that promise symmetric buffers are compared by the places of these buffers, too.
//
// # Deaths and aborts
//
// A goroutine of each group waits for news in the control group and asks the engines for errors of their libraries. When
// the group is broken it aborts the engines, and works end with the cause. No wait on the device is unbounded: NVSHMEM's
// kernels cannot be ended, so a wait asks for an event again and again and gives up when the group is broken. What such
// kernels use is left to the end of the process.
//
// # What engines lack
//
// An operation that an engine cannot do goes to the next one in the order of the table. What none can do as it is may be
// put to one in another form; else it is ErrUnsupported, with what each engine has against it.
//
//	operation                              lacking in         here
//	barrier, sync                          NCCL               allreduce of one word
//	copies of i16, u16                     NCCL               copies of twice as many bytes
//	reductions of i16, u16                 NCCL               ErrUnsupported
//	avg, all but f16 and bf16              NVSHMEM            sum, then a kernel that divides
//	premulsum by allreduce, likewise       NVSHMEM            a kernel that multiplies to dst, then sum in place
//	premulsum by reduce, reducescatter     NVSHMEM            ErrUnsupported
//	avg, premulsum of f16, bf16            NVSHMEM            ErrUnsupported: it rounds the sum before the division
//	reduce, gather, scatter, messages      NVSHMEM            ErrUnsupported
//	anything without the promise           nccl-window        ErrUnsupported
//	several messages in a group call       no Batcher         ErrUnsupported
//	messages of a rank to itself           all                a copy, within one group call
//	all in a group of one                  -                  a copy, times the factor of a premulsum
//
// A group call runs its collectives first, one after the other, because one may need the result of another, and then its
// messages together, between BeginBatch and EndBatch of their engine. The libraries' own grouping of collectives is not used:
// NCCL promises no order within a group.
//
// # Waiting
//
// A Work is a ticket of its Stream; see there for what it costs to wait precisely.
package gpu
