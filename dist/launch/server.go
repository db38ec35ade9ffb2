package launch

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/symgrad/symgrad/dist"
)

const (
	// helloTimeout is the longest time between a connection and its hello.
	helloTimeout = 10 * time.Second
	// writeTimeout is the longest time for a peer to read a message; its connection is then broken.
	writeTimeout = 10 * time.Second
	// watchedDelay is the wait after a lost connection for the end of the process, which gives the
	// cause. It is longer than a busy machine takes between the two.
	watchedDelay = 2 * time.Second
	// byeTimeout is the longest wait of either end for the other when it leaves.
	byeTimeout = time.Second
	// pendingMax is the most requests of one connection that may wait.
	pendingMax = 1 << 10
)

var errStoreClosed = fmt.Errorf("store: %w", dist.ErrClosed)

// ServerConfig holds the settings of a Server.
type ServerConfig struct {
	Address string      // host:port; "" means a free port of 127.0.0.1; "@name" is an abstract unix socket (Linux)
	Job     string      // must equal the clients' job
	Size    int         // ranks in the job
	TLS     *tls.Config // clients need it, and a certificate of their rank; nil means no TLS
	Once    bool        // serve a single meeting, and reject ranks that return
	files   []string    // unix sockets in private folders to listen on as well
	Watched bool        // the caller calls Fail or Exit when a rank's process ends, which is preferred over a lost connection

	patience time.Duration // the longest silence of a rank; 0 means no limit
	nodes    *nodeDesk     // serves launchers of several nodes; Size is then that of open, and ranks wait for it
}

// Server is the store of a job: it serves Clients and knows which ranks have joined, left or died.
type Server struct {
	cfg       ServerConfig
	listeners []net.Listener
	stop      context.CancelFunc
	ctx       context.Context // ends with Close
	running   sync.WaitGroup  // the accept loops and the connections

	roster    *roster // of ranks; nil before open
	mu        sync.Mutex
	conns     map[*serverConn]struct{}
	strangers []*serverConn // those that are not admitted yet, in the order of their arrival
	drained   chan struct{} // closed when conns becomes empty; nil unless drain waits
	closed    bool
}

// Listen starts a server. On an abstract unix socket it serves only processes of its own user.
//
// Owns: the caller closes the server. Errors: dist.ErrInvalid, an address in use,
// dist.ErrUnsupported for an abstract socket on other systems than Linux.
func Listen(cfg ServerConfig) (*Server, error) {
	if cfg.nodes == nil && (cfg.Size < 1 || cfg.Size > maxRanks) {
		return nil, fmt.Errorf("store for %d ranks: want 1 to %d: %w", cfg.Size, maxRanks, dist.ErrInvalid)
	}
	listeners, err := listenAll(cfg.Address, cfg.files)
	if err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, listeners: listeners, conns: map[*serverConn]struct{}{}}
	if cfg.nodes == nil {
		s.roster = newRoster(cfg.Size, cfg.Once)
	}
	s.ctx, s.stop = context.WithCancel(context.Background())
	for _, l := range listeners {
		s.running.Go(func() { s.accept(l) })
	}
	return s, nil
}

// open makes a server with launchers ready for ranks, whose number they have agreed on.
func (s *Server) open(size int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cfg.Size, s.roster = size, newRoster(size, s.cfg.Once)
}

// ranks returns the roster of ranks and their number; nil before open.
func (s *Server) ranks() (*roster, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.roster, s.cfg.Size
}

// Address returns the server's address, with the port it chose.
func (s *Server) Address() string { return s.listeners[0].Addr().String() }

// Fail makes every pending and later Get of the job fail with a dist.RankError. The first failure
// is reported.
func (s *Server) Fail(rank int, how string) {
	roster, _ := s.ranks()
	roster.fail(&dist.RankError{Rank: rank, How: how})
}

// Exit records that the process of rank has ended with code 0. Current and later meetings with it
// fail.
func (s *Server) Exit(rank int, how string) {
	roster, _ := s.ranks()
	roster.exit(rank, how)
}

// lose handles the end of rank's connection without a goodbye.
func (s *Server) lose(rank int, err error) {
	if s.cfg.Watched {
		roster, _ := s.ranks()
		select {
		case <-roster.failed:
		case <-s.ctx.Done():
		case <-time.After(watchedDelay):
		}
	}
	s.Fail(rank, describeLoss(err))
}

// hangUp ends the connections of the ranks from first to end-1, whose host is gone: nothing comes
// from them, and they would delay drain.
func (s *Server) hangUp(first, end int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns { // in any order
		c.mu.Lock()
		if c.admitted && c.desk == nil && c.rank >= first && c.rank < end {
			_ = c.raw.Close() // its reader ends
		}
		c.mu.Unlock()
	}
}

// Close notifies the clients and waits for the server's goroutines. Clients get dist.ErrClosed.
// Idempotent.
func (s *Server) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		s.running.Wait()
		return nil
	}
	s.closed = true
	conns := make([]*serverConn, 0, len(s.conns))
	for c := range s.conns { // in any order: each is notified separately
		conns = append(conns, c)
	}
	s.mu.Unlock()

	if r, _ := s.ranks(); r != nil {
		r.close()
	}
	if s.cfg.nodes != nil {
		s.cfg.nodes.roster.close()
	}
	err := closeAll(s.listeners)
	for _, c := range conns {
		c.bye()
	}
	s.stop()
	s.running.Wait()
	if err != nil {
		return fmt.Errorf("store close: %w", err)
	}
	return nil
}

func (s *Server) accept(l net.Listener) {
	for pause := time.Millisecond; ; pause = min(2*pause, time.Second) {
		conn, err := l.Accept()
		if err == nil {
			s.start(conn)
			pause = time.Millisecond
			continue
		}
		if errors.Is(err, net.ErrClosed) {
			return
		}
		// Out of descriptors, or a connection that ended before it was accepted: the listener still
		// works.
		select {
		case <-s.ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// start serves conn, unless the server is closing.
func (s *Server) start(conn net.Conn) {
	raw := conn
	if s.cfg.TLS != nil {
		conn = tls.Server(conn, s.cfg.TLS)
	}
	c := newServerConn(s, conn, raw)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		_ = conn.Close() // nothing was said on it
		return
	}
	s.conns[c] = struct{}{}
	s.makeRoom()
	s.strangers = append(s.strangers, c)
	s.running.Go(func() {
		c.run()
		s.know(c)
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.conns, c)
		if len(s.conns) == 0 && s.drained != nil {
			close(s.drained)
			s.drained = nil
		}
	})
}

// mostStrangers is the number of connections without a hello that a store holds, in addition to one
// for each rank and node of the job.
const mostStrangers = 256

// makeRoom ends a connection without a hello if there are too many: the oldest of the address that
// has most. A flood from one host thus ends its own connections, and a rank, which needs a few
// milliseconds for its hello, is hardly hit. s.mu is held.
func (s *Server) makeRoom() {
	most := mostStrangers + s.cfg.Size
	if s.cfg.nodes != nil {
		most += s.cfg.nodes.size
	}
	if len(s.strangers) < most {
		return
	}
	count := map[string]int{}
	var worst string
	for _, c := range s.strangers {
		from := hostOf(c.conn.RemoteAddr())
		if count[from]++; count[from] > count[worst] {
			worst = from
		}
	}
	i := slices.IndexFunc(s.strangers, func(c *serverConn) bool { return hostOf(c.conn.RemoteAddr()) == worst })
	_ = s.strangers[i].raw.Close() // its reader ends
	s.strangers = slices.Delete(s.strangers, i, i+1)
}

// hostOf returns the address without the port.
func hostOf(a net.Addr) string {
	host, _, err := net.SplitHostPort(a.String())
	if err != nil {
		return a.String()
	}
	return host
}

// know ends c's time as a stranger: it is admitted, or gone.
func (s *Server) know(c *serverConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.strangers, c); i >= 0 {
		s.strangers = slices.Delete(s.strangers, i, i+1)
	}
}

// drain waits until no client is connected, or ctx ends.
func (s *Server) drain(ctx context.Context) {
	s.mu.Lock()
	if len(s.conns) == 0 {
		s.mu.Unlock()
		return
	}
	if s.drained == nil {
		s.drained = make(chan struct{})
	}
	drained := s.drained
	s.mu.Unlock()
	select {
	case <-drained:
	case <-ctx.Done():
	}
}
