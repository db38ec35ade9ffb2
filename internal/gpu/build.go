package gpu

import (
	"fmt"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/cuda"
)

// Builder is an Engine whose library has code for the device, which kernels of users call.
type Builder interface {
	// Build is src compiled and linked with that code, loaded, and with the library's state in it.
	// Returns: the code, and what the caller calls before it closes that.
	Build(src cuda.Source) (*cuda.Module, func() error, error)
}

// Build is src with the device code of the library behind an engine of the group that s belongs to: see Builder.
//
// Errors: ErrUnsupported for a stream of no group, and where it has no such engine; ErrClosed; those of the engine.
func (s *Stream) Build(engine string, src cuda.Source) (*cuda.Module, func() error, error) {
	if s.from == nil {
		return nil, nil, fmt.Errorf("%w: the stream is no group's own, so that nobody has %s for it", dist.ErrUnsupported, engine)
	}
	return s.from.build(engine, src)
}

// build is src with the device code of the library behind the engine of that name: see Builder.
//
// Errors: ErrClosed; ErrUnsupported without such an engine, with the engines that there are; those of the engine.
func (t *Transport) build(engine string, src cuda.Source) (*cuda.Module, func() error, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed.Load() {
		return nil, nil, dist.ErrClosed
	}
	for _, e := range t.engines {
		if b, ok := e.(Builder); ok && e.Name() == engine {
			return b.Build(src)
		}
	}
	return nil, nil, fmt.Errorf("%w: no engine %s in the group, but %v", dist.ErrUnsupported, engine, t.Engines())
}
