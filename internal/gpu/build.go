package gpu

import (
	"fmt"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
)

// Builder is an Engine whose library has device code that kernels of users call.
type Builder interface {
	// Link compiles src and links it with that code. It takes seconds. Any goroutine.
	Link(src cuda.Source) ([]byte, error)
	// Load loads the image of Link with the library's state. The device must be idle, because
	// loading code waits for that. Returns: the code, and a function to call before the code is
	// closed.
	Load(image []byte) (*cuda.Module, func() error, error)
}

// Build compiles src with the device code of an engine's library in the group of s: see Builder. It
// waits for the work queued on the device.
//
// Errors: ErrUnsupported for a stream of no group, and for a group without such an engine;
// ErrInvalid while a stream of the group is captured; ErrClosed; the error of a broken group; those
// of the engine.
func (s *Stream) Build(engine string, src cuda.Source) (*cuda.Module, func() error, error) {
	t := s.from
	if t == nil {
		return nil, nil, fmt.Errorf("%w: the stream belongs to no group, so it has no engine %s: use a stream of a group", dist.ErrUnsupported, engine)
	}
	for _, e := range t.engines.list {
		if b, ok := e.(Builder); ok && e.Name() == engine {
			image, err := b.Link(src)
			if err != nil {
				return nil, nil, err
			}
			return t.load(b, image)
		}
	}
	return nil, nil, fmt.Errorf("%w: the group has no engine %s for kernels: it has %v", dist.ErrUnsupported, engine, t.Engines())
}
