package dist

import (
	"context"

	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

// Transport is one rank's end of one group, the interface of backends. A Group checks every
// argument first, so a Transport gets only valid Ops, in one order, from one goroutine at a time.
type Transport interface {
	// Info returns this rank's place in the group and the backend.
	Info() Info
	// Start queues op on s, in order. It never waits for peers; Work.Wait returns the outcome. The
	// group's lock is held.
	Start(op Op, s Stream) (Work, error)
	// Split returns the transport of the ranks that pass the same color, ordered by key, then by
	// rank here; nil for a negative color. Collective over the group.
	Split(color, key int) (Transport, error)
	// Heap returns a new symmetric heap of bytes bytes on every rank. Collective. Errors:
	// ErrUnsupported.
	Heap(bytes int64) (symmetric.Heap, error)
	// Abort makes all pending and later operations of the group fail, on every rank, with cause.
	Abort(cause error) error
	// Close ends this rank's part. Pending operations have been waited for. Idempotent, not
	// collective.
	Close() error
}

// Info describes a transport.
type Info struct {
	Rank    int           // this rank in the group
	Size    int           // ranks in the group
	Device  tensor.Device // of buffers
	Backend string        // "shm", "sim"
	Ranks   []int         // number in the world of each rank of the group
	Timing  bool          // time every operation, as Group.Timed does
}

// Store is a small key-value store shared by the ranks of a job, for the rendezvous before any
// transport exists.
type Store interface {
	// Set stores value under key, replacing an earlier one.
	Set(ctx context.Context, key string, value []byte) error
	// Get returns the value under key, and waits until it is set. Errors: ctx's, or the death of a
	// rank.
	Get(ctx context.Context, key string) ([]byte, error)
	// Add adds delta to the counter under key, which starts at 0, and returns the sum.
	Add(ctx context.Context, key string, delta int64) (int64, error)
}
