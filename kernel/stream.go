package kernel

import (
	"fmt"
	"time"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/gpu"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
)

// NewStream returns an empty stream on the device of s, of the least priority, so that the group's
// stream comes first. Only Mark and Join order streams among each other.
//
// Owns: the caller closes it. Errors: ErrUnsupported if s is not a stream of a GPU; ErrClosed if
// its world is closed; the driver's.
func NewStream(s dist.Stream) (dist.Stream, error) {
	g, err := gpuStream(s)
	if err != nil {
		return nil, fmt.Errorf("new stream: %w", err)
	}
	n, err := gpu.NewStream(g.CUDA().Device())
	if err != nil {
		return nil, fmt.Errorf("new stream: %w", kindOf(err))
	}
	return n, nil
}

// Mark returns a Work that is done when all work queued on s so far is: kernels, copies and
// collectives. Another stream waits for it with Join.
//
// Errors: ErrUnsupported if s is not a stream of a GPU; ErrClosed; the driver's.
func Mark(s dist.Stream) (dist.Work, error) {
	g, err := gpuStream(s)
	if err != nil {
		return dist.Work{}, fmt.Errorf("mark: %w", err)
	}
	w, err := g.Mark()
	return w, kindOf(err)
}

// Elapsed returns the time of w in milliseconds: dist.Work.Elapsed, in the unit of NVSHMEM4Py's
// enable_timing. It waits for w.
//
// Errors: w's; ErrUnsupported for work that was not timed, by backend.Config.Timing or
// dist.Group.Timed, for a group call between GPUs, and for work older than the last thousand of its
// stream.
func Elapsed(w dist.Work) (milliseconds float64, err error) {
	d, err := w.Elapsed()
	if err != nil {
		return 0, fmt.Errorf("elapsed: %w", kindOf(err))
	}
	return float64(d) / float64(time.Millisecond), nil
}

// gpuStream returns s, if it is a stream of a GPU.
//
// Errors: ErrUnsupported for a stream of the host.
func gpuStream(s dist.Stream) (*gpu.Stream, error) {
	if s == nil {
		return nil, fmt.Errorf("%w: no stream", dist.ErrInvalid)
	}
	g, ok := s.(*gpu.Stream)
	if !ok {
		return nil, fmt.Errorf("%w: the stream is on %v, and kernels run on GPUs: open the world on a backend that uses them",
			dist.ErrUnsupported, s.Device())
	}
	return g, nil
}

// streamOf returns the CUDA stream of a GPU's stream.
//
// Errors: those of gpuStream.
func streamOf(s dist.Stream) (*cuda.Stream, error) {
	g, err := gpuStream(s)
	if err != nil {
		return nil, err
	}
	return g.CUDA(), nil
}
