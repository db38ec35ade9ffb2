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
	// Quiet makes later work on the stream wait for all transfers of the region's heap itself. The
	// view's own are in the stream's order anyway. Errors: dist.ErrClosed; the driver's.
	Quiet() error
}

// OnStream returns a view of region, in the memory of GPUs, whose transfers, signals and waits are
// queued on s, in the order of its other work. These are Put, Get, PutSignal, Signal, Wait and
// related calls of OpenSHMEM, like nvshmemx_putmem_on_stream and
// nvshmemx_signal_wait_until_on_stream. Group.On(s).Barrier is their barrier.
//
// Returns: when queued, as each call of the view. Wait returns the Hit -1 and makes the stream
// wait; if the group breaks, the stream goes on. Owns: the region stays with its heap; buffers of a
// call are in use until s has passed it. One goroutine at a time may use the view.
//
// Errors: ErrUnsupported if s is not a stream of a GPU, or the region is not in the memory of one.
// Calls of the view also return it if they have a result, like GetWord and Atomic; for PutWord of
// one or two bytes; and, without NVRTC, for words, signals, waits and strides. ErrDevice for
// streams of another device, and for buffers of the host in a call; symmetric.ErrNotAllocated for
// no region; dist.ErrClosed.
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
		return nil, fmt.Errorf("region on a stream: %w: it is not in the memory of a GPU, so its heap has no streams", dist.ErrUnsupported)
	}
	view, err := r.OnStream(stream)
	if err != nil {
		return nil, kindOf(err)
	}
	return view, nil
}
