package launch

import (
	"context"
	"time"
)

// lingerTimeout is the time for final messages when a store ends. Rank 0 waits that long for ranks
// that have not left, and a rank that gives up may ask that long for the missing ranks.
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
	s, err := Listen(ServerConfig{
		Address: p.address, Job: p.job, Size: size, Once: true, files: p.files, TLS: p.tls, patience: patienceOfBeat(p.beat),
	})
	if err != nil {
		return nil, err
	}
	if p.tls != nil {
		if err := checkReachable(p.address, s.Address()); err != nil {
			_ = s.Close() // err has the cause
			return nil, err
		}
	}
	m, err := s.roster.join(0)
	if err != nil {
		_ = s.Close() // err has the cause
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
