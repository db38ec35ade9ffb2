package gpu

import (
	"fmt"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/cuda"
)

// Builder is an Engine whose library has code for the device, which kernels of users call.
type Builder interface {
	// Link is src compiled and linked with that code. It takes seconds. Any goroutine.
	Link(src cuda.Source) ([]byte, error)
	// Load is what Link has made, with the library's state in it. The device has nothing to do: to
	// load code waits for that. Returns: the code, and what the caller calls before it closes that.
	Load(image []byte) (*cuda.Module, func() error, error)
}

// Build is src with the device code of the library behind an engine of the group that s belongs to:
// see Builder. It waits for what is queued on the device.
//
// Errors: ErrUnsupported for a stream of no group, and where it has no such engine; ErrInvalid
// while a stream of the group is captured; ErrClosed; what breaks the group; those of the engine.
func (s *Stream) Build(engine string, src cuda.Source) (*cuda.Module, func() error, error) {
	t := s.from
	if t == nil {
		return nil, nil, fmt.Errorf("%w: the stream is no group's own, so that nobody has %s for it", dist.ErrUnsupported, engine)
	}
	for _, e := range t.engines {
		if b, ok := e.(Builder); ok && e.Name() == engine {
			image, err := b.Link(src)
			if err != nil {
				return nil, nil, err
			}
			return t.load(b, image)
		}
	}
	return nil, nil, fmt.Errorf("%w: no engine %s in the group, but %v", dist.ErrUnsupported, engine, t.Engines())
}

// load is Builder.Load between operations.
func (t *Transport) load(b Builder, image []byte) (*cuda.Module, func() error, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed.Load() {
		return nil, nil, dist.ErrClosed
	}
	if err := t.idle(); err != nil {
		return nil, nil, err
	}
	return b.Load(image)
}
