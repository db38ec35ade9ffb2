package dist

// Hints describe the operations of a view of a group: see Group.With. They never change results.
// The zero value gives no hint.
//
// Collective: all ranks give the same hints, except names, to the same operations. Errors: see the
// fields.
type Hints struct {
	// Name is the tensor's, for errors and traces.
	Name string

	// Symmetric promises buffers at the same offsets of one symmetric heap on every rank; the
	// buckets of training are an example. A backend then need not exchange addresses, and can use
	// algorithms that need this: NCCL's symmetric windows, NVSHMEM's collectives without a copy.
	// Errors: ErrInvalid, and ErrMismatch on all ranks, if a backend detects a broken promise.
	Symmetric bool

	// Overlap says that the device computes during the operations; sums of gradients during the
	// backward pass are an example. On GPUs copy engines then move large operations with symmetric
	// buffers and leave the multiprocessors to the computation. Without computation that may be
	// slower; on the host nothing changes. Copy engines cannot be stopped: if the group breaks,
	// destinations may still change, on all ranks. Errors: ErrMismatch on all ranks of GPUs if
	// ranks give different hints.
	Overlap bool
}
