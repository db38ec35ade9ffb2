package kernel

import (
	"fmt"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/gpu"
	"github.com/symgrad/symgrad/symmetric"
)

// StreamRegion is a region whose calls are queued on a stream: see OnStream.
type StreamRegion interface {
	symmetric.Region
	// Quiet makes what is queued on the stream later come after all transfers that the region's
	// heap has queued by itself. Those of the view are in the stream's order anyway. Errors:
	// dist.ErrClosed; the driver's.
	Quiet() error
}

// OnStream is a view of region, in the memory of GPUs, whose transfers, signals and waits are
// queued on s, between what is queued there before and after: Put, Get, PutSignal, Signal, Wait and
// their kin of OpenSHMEM, as nvshmemx_putmem_on_stream and nvshmemx_signal_wait_until_on_stream.
// Group.On(s).Barrier is the barrier to them.
//
// Returns: as does each of its calls, when queued. Wait gives the Hit -1 and lets the stream wait;
// should the group break, the stream goes on. Owns: the region stays its heap's; buffers of a call
// are in use until s is past it. The view is used by one goroutine at a time. Errors:
// ErrUnsupported when s is no stream of a GPU, or the region is not in the memory of one; by those
// calls of the view that give a value to the caller, GetWord and Atomic; by PutWord of one or two
// bytes; and, where there is no NVRTC, by words, signals, waits and strides. ErrDevice for streams
// of another device, and for buffers of the host in a call; symmetric.ErrNotAllocated for no
// region; dist.ErrClosed.
func OnStream(region symmetric.Region, s dist.Stream) (StreamRegion, error) {
	stream, err := gpuStream(s)
	if err != nil {
		return nil, fmt.Errorf("region on a stream: %w", err)
	}
	if region == nil {
		return nil, fmt.Errorf("region on a stream: %w", symmetric.ErrNotAllocated)
	}
	r, ok := region.(interface {
		OnStream(s dist.Stream) (*gpu.StreamRegion, error)
	})
	if !ok {
		return nil, fmt.Errorf("region on a stream: %w: it is not in the memory of a GPU, and its heap queues nothing", dist.ErrUnsupported)
	}
	view, err := r.OnStream(stream)
	if err != nil {
		return nil, kindOf(err)
	}
	return view, nil
}
