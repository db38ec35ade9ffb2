package gpu

import (
	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/cuda"
)

// Engine is one way to do the operations of one group of GPUs: an NCCL communicator, an NVSHMEM
// team, kernels of our own. The ranks of a group have the same engines in the same order, and take
// the same one for the same operation.
type Engine interface {
	// Name is what tables and settings call the engine, such as "nccl", "nvshmem" or "twoshot".
	Name() string
	// Can is nil when the engine can do op; else it matches dist.ErrUnsupported and says why. It
	// depends on nothing but what all ranks have alike: kind, dtype, reduction (but not where its
	// scalar is), count, root, Symmetric and the group.
	Can(op *dist.Op) error
	// Enqueue queues op on s and returns; it never waits for a peer, and allocates nothing on the
	// Go heap, but for the second of equal operations, of which a Keeper keeps something. Calls
	// come one at a time, in one order on all ranks, with the device's context current on a locked
	// thread. Arguments were checked, and Can was nil. Operations without elements do not come
	// here.
	Enqueue(op *dist.Op, s *cuda.Stream) error
	// Failed is what went wrong in the library behind the calls; nil while nothing did. Any
	// goroutine may ask.
	Failed() error
	// Abort makes queued operations end soon, as far as the library can, and later ones fail. Any
	// goroutine; idempotent.
	Abort()
	// Split is the engine of the subgroup that sub describes, nil where this rank is in none (sub
	// is nil there as well). Collective: all ranks of the engine's group. Errors: ErrUnsupported on
	// all ranks alike.
	Split(sub *Member) (Engine, error)
	// Close frees the engine; its stream is idle, or was aborted. Idempotent. Unless it was aborted
	// before, all ranks call it.
	Close() error
}

// Batcher is an Engine that sends and receives, several messages at once: those of one group call
// come to Enqueue between BeginBatch and EndBatch, on one locked thread. Calls as for Enqueue.
type Batcher interface {
	// BeginBatch opens the batch that s will run.
	BeginBatch(s *cuda.Stream) error
	// EndBatch queues what came since BeginBatch. It is called after a failed Enqueue as well, to
	// leave no batch open.
	EndBatch(s *cuda.Stream) error
}

// Registrar is an Engine that must know symmetric memory before operations touch it. Calls are
// collective and in one order on all ranks.
type Registrar interface {
	// Register makes s known. Errors: may differ between ranks; those that succeeded then get
	// Unregister.
	Register(s *Slab) error
	// Unregister forgets s, before it is freed.
	Unregister(s *Slab) error
}

// Aside is an Engine that does some operations beside other work of its device, without taking
// multiprocessors away from it for longer than they have something to add up.
type Aside interface {
	// Aside reports whether op is done so. It depends on nothing but what Can depends on.
	Aside(op *dist.Op) bool
}

// Native is an Engine that does some operations in the way of another engine of its group: a table
// has no times for those.
type Native interface {
	// Native reports whether operations of a kind have a way of their own.
	Native(kind dist.Kind) bool
}

// Keeper is an Engine that keeps something for operations that come again, for each of them. Calls
// come one at a time, with those of Enqueue.
type Keeper interface {
	// Kept is what the engine has kept for op on s, which is not captured: to launch it there,
	// before the next call of the engine, is to queue op. Calls as for Enqueue, but on any thread,
	// whatever context it has. Returns: nil for nothing, and op goes to Enqueue, as it does where
	// the launch fails.
	Kept(op *dist.Op, s *cuda.Stream) *cuda.Kept
	// Forget gives up what is kept.
	Forget()
}

// LeastAside is the bytes of a vector, as Size counts, from which on engines are worth while that
// are Aside: below, an operation takes much longer by copy engines than by multiprocessors.
const LeastAside = 32 << 20

// Maker makes the engines of the world's group, in the order of its table's columns.
//
// Collective: all ranks of p. Errors: on all ranks alike.
type Maker func(p *Member) ([]Engine, error)

// Allocator makes symmetric memory for a group.
type Allocator interface {
	// Name is "nvshmem", "nccl", "ipc".
	Name() string
	// Alloc is bytes bytes on every rank of p, zeroed, aligned to symmetric.MaxAlignment on each.
	// Collective: all ranks of p, same size. Errors: on all ranks alike; ErrUnsupported where the
	// allocator cannot serve p.
	Alloc(p *Member, bytes int64) (*Slab, error)
}

// Slab is symmetric memory: Bytes bytes on every rank.
type Slab struct {
	Bytes int64
	Base  []uintptr    // of rank r's part, as this rank addresses it; 0 where it cannot
	Free  func() error // collective, in one order on all ranks; after a death it may leave the memory to the process's end
}
