package launch

import (
	"context"
	"time"
)

// lingerTimeout is how long the ranks of a store that ends have for last words: rank 0 keeps one
// that it serves as long for ranks that have not left yet, and a rank that gives up may ask as long
// who is missing.
const lingerTimeout = 2 * time.Second

// single is the store of a job of one rank.
type single struct{ *table }

// Close ends the store.
func (s *single) Close() error {
	s.fail(errStoreClosed)
	return nil
}

// host is rank 0's end of the store that it serves itself.
type host struct {
	*meeting
	server *Server
}

func newHost(p place, size int) (*host, error) {
	s, err := Listen(ServerConfig{Address: p.address, Job: p.job, Size: size, Once: true, files: p.files})
	if err != nil {
		return nil, err
	}
	m, err := s.roster.join(0)
	if err != nil {
		_ = s.Close() // the error at hand says why
		return nil, err
	}
	return &host{meeting: m, server: s}, nil
}

func (h *host) meet(ctx context.Context) error { return h.wait(ctx) }

func (h *host) missing(context.Context) ([]int, error) {
	return h.server.roster.missing(h.meeting), nil
}

// Close ends the store when the other ranks have left it, or after a short while.
func (h *host) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), lingerTimeout)
	defer cancel()
	h.server.drain(ctx)
	return h.server.Close()
}
