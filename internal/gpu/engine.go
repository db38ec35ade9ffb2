package gpu

import (
	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
)

// Engine does the operations of one group of GPUs: an NCCL communicator, an NVSHMEM team, or
// kernels of package direct. The ranks of a group have the same engines in the same order, and
// choose the same engine for an operation.
type Engine interface {
	// Name returns the engine's name in tables and settings, such as "nccl", "nvshmem" or
	// "twoshot".
	Name() string
	// Can returns nil if the engine can do op, else an error that matches dist.ErrUnsupported and
	// gives the reason. It depends only on values that are equal on all ranks: kind, dtype,
	// reduction (but not the location of its scalar), count, root, Symmetric and the group.
	Can(op *dist.Op) error
	// Enqueue queues op on s and returns. It never waits for a peer. It allocates nothing on the Go
	// heap, except when a Keeper caches the second of equal operations. Calls come one at a time,
	// in one order on all ranks, with the device's context current on a locked thread. The
	// arguments were checked, and Can returned nil. Operations without elements are not passed.
	Enqueue(op *dist.Op, s *cuda.Stream) error
	// Failed returns the error of the library, or nil. Any goroutine may call it.
	Failed() error
	// Abort ends queued operations soon, if the library can, and makes later ones fail. Any
	// goroutine; idempotent.
	Abort()
	// Split returns the engine of the subgroup sub. It returns nil if sub is nil: this rank is in
	// no part. Collective: all ranks of the engine's group. Errors: ErrUnsupported on all ranks.
	Split(sub *Member) (Engine, error)
	// Close frees the engine. Its stream is idle, or the engine was aborted. Idempotent. Collective
	// unless the engine was aborted.
	Close() error
}

// Batcher is an Engine that runs several messages at once. The messages of one group call come to
// Enqueue between BeginBatch and EndBatch, on one locked thread. Calls follow the rules of Enqueue.
type Batcher interface {
	// BeginBatch opens the batch that s will run.
	BeginBatch(s *cuda.Stream) error
	// EndBatch queues the operations since BeginBatch. It is also called after a failed Enqueue, so
	// that no batch stays open.
	EndBatch(s *cuda.Stream) error
}

// Registrar is an Engine that must know symmetric memory before operations use it. Calls are
// collective and in one order on all ranks.
type Registrar interface {
	// Register makes s known. Errors: may differ between ranks; ranks that succeeded then call
	// Unregister.
	Register(s *Slab) error
	// Unregister forgets s, before it is freed.
	Unregister(s *Slab) error
}

// Aside is an Engine that does some operations while the device computes, mostly by copy engines.
// It needs multiprocessors only to add.
type Aside interface {
	// Aside reports whether op is done this way. It depends on the same values as Can.
	Aside(op *dist.Op) bool
}

// Native is an Engine that does some operations with the algorithm of another engine of its group.
// Tables have no times for those.
type Native interface {
	// Native reports whether the engine has its own algorithm for operations of a kind.
	Native(kind dist.Kind) bool
}

// Keeper is an Engine that caches a launch for each repeated operation. Calls come one at a time,
// never during Enqueue.
type Keeper interface {
	// Kept returns the cached launch of op on s, which is not being captured. Launching it before
	// the next call of the engine queues op. Calls follow the rules of Enqueue, but come on any
	// thread, with any context. Returns: nil if no launch is cached. Then, or if the launch fails,
	// op goes to Enqueue.
	Kept(op *dist.Op, s *cuda.Stream) *cuda.Kept
	// Forget drops all cached launches.
	Forget()
}

// LeastAside is the least size of a vector, as Size counts, for which Aside engines are preferred.
// Smaller operations take much longer by copy engines than by multiprocessors.
const LeastAside = 32 << 20

// Maker makes the engines of the world's group, in the order of its table's columns.
//
// Collective: all ranks of p. Errors: on all ranks.
type Maker func(p *Member) ([]Engine, error)

// Allocator makes symmetric memory for a group.
type Allocator interface {
	// Name returns "nvshmem", "nccl" or "ipc".
	Name() string
	// Alloc allocates bytes bytes on every rank of p, zeroed and aligned to symmetric.MaxAlignment.
	// Collective: all ranks of p, same size. Errors: on all ranks; ErrUnsupported if the allocator
	// cannot serve p.
	Alloc(p *Member, bytes int64) (*Slab, error)
}

// Slab is symmetric memory: Bytes bytes on every rank.
type Slab struct {
	Bytes int64
	Base  []uintptr    // by rank: address of its part on this rank; 0 if not addressable
	Free  func() error // collective, same order on all ranks; after a death it may leave the memory until the process ends
}
