package launch

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/symgrad/symgrad/dist"
)

// serverConn is the server's end of one client.
type serverConn struct {
	s    *Server
	conn net.Conn
	raw  net.Conn // conn without TLS
	r    *bufio.Reader
	rank int // or the node, of a launcher
	m    *meeting
	of   *roster       // of ranks or launchers
	desk *nodeDesk     // nil for a rank
	most time.Duration // its longest silence; 0 means no limit
	late bool          // it leaves because others did not join in time

	write sync.Mutex

	mu       sync.Mutex
	admitted bool
	pending  map[uint32]context.CancelFunc // requests that wait
	waiters  sync.WaitGroup
}

func newServerConn(s *Server, conn, raw net.Conn) *serverConn {
	return &serverConn{s: s, conn: conn, raw: raw, r: bufio.NewReader(conn), pending: map[uint32]context.CancelFunc{}}
}

// run serves the client until it leaves, and reports its death if it does not say goodbye.
func (c *serverConn) run() {
	defer c.conn.Close()
	if err := c.admit(); err != nil {
		return // an unknown peer: no rank of the job is lost
	}
	ctx, cancel := context.WithCancel(c.s.ctx)
	err := c.serve(ctx)
	switch {
	case c.desk != nil && ctx.Err() == nil:
		c.desk.end(c.rank, err)
	case err != nil && ctx.Err() == nil:
		c.s.lose(c.rank, err)
	}
	cancel()
	c.waiters.Wait()
	if err == nil {
		if c.late {
			c.of.giveUp(c.rank, c.m)
		} else {
			c.of.leave(c.rank, c.m)
		}
		c.reply(goodbyeID, nil, nil)
	}
}

// describeLoss describes the end of a connection to a user.
func describeLoss(err error) string {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Sprintf("no heartbeat for %v", patienceOfBeat(heartbeat))
	}
	for _, end := range []error{io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET} { // TLS and a full pipe report it differently
		if errors.Is(err, end) {
			return "connection closed"
		}
	}
	return fmt.Sprintf("connection broken: %v", err)
}

// admit reads the client's hello and joins it.
func (c *serverConn) admit() error {
	if err := c.conn.SetDeadline(time.Now().Add(helloTimeout)); err != nil {
		return err
	}
	if err := checkPeer(c.conn); err != nil {
		return err
	}
	f, err := readFrame(c.r, maxHelloBytes)
	if err != nil {
		return err
	}
	if err = c.join(f); err != nil {
		c.reply(f.id, nil, err)
		return err
	}
	if err := c.conn.SetDeadline(time.Time{}); err != nil {
		return err
	}
	c.mu.Lock()
	c.admitted = true
	c.mu.Unlock()
	c.s.know(c)
	c.reply(f.id, nil, nil)
	return nil
}

// join checks the client's hello and adds the client to its meeting, of ranks or of launchers.
func (c *serverConn) join(f frame) error {
	h, err := decodeHello(f)
	if err != nil {
		return err
	}
	want, name, noun := c.s.cfg.Job, rankName(h.rank), "rank"
	roster, size := c.s.ranks()
	c.most = c.s.cfg.patience
	if desk := c.s.cfg.nodes; desk != nil && h.job == launchersJob {
		want, name, noun = launchersJob, nodeName(h.rank), "node"
		roster, size, c.desk, c.most = desk.roster, desk.size, desk, desk.patience
	}
	switch {
	case h.job != want:
		return fmt.Errorf("store of job %q at %s: not of job %q: %w", want, c.s.Address(), h.job, dist.ErrInvalid)
	case roster == nil || h.size != size || h.rank < 0 || h.rank >= h.size:
		return fmt.Errorf("store of %d %ss: not for %s %d of %d: %w", size, noun, noun, h.rank, h.size, dist.ErrInvalid)
	}
	if conn, ok := c.conn.(*tls.Conn); ok {
		if cert := conn.ConnectionState().PeerCertificates[0].Subject.CommonName; cert != name {
			return fmt.Errorf("%s %d with the certificate of %s: %w", noun, h.rank, cert, dist.ErrInvalid)
		}
	}
	if c.m, err = roster.join(h.rank); err != nil {
		return err
	}
	c.rank, c.of = h.rank, roster
	return nil
}

// serve answers requests. It returns nil when the client said goodbye.
func (c *serverConn) serve(ctx context.Context) error {
	for {
		if c.most > 0 {
			if ctx.Err() != nil {
				return ctx.Err() // the server closes, and its deadline must stay
			}
			if err := c.conn.SetReadDeadline(time.Now().Add(c.most)); err != nil {
				return err
			}
		}
		f, err := readFrame(c.r, maxFrameBytes)
		if err != nil {
			return err
		}
		switch f.kind {
		case opPing:
			c.reply(f.id, nil, nil)
		case opReport:
			if c.desk == nil {
				return fmt.Errorf("malformed frame: a report of a rank: %w", dist.ErrInvalid)
			}
			c.reply(f.id, nil, c.desk.take(c.rank, f.value))
		case opGoodbye:
			c.late = len(f.value) > 0
			return nil
		case opSet:
			c.reply(f.id, nil, c.m.Set(ctx, f.key, f.value))
		case opAdd:
			value, err := c.add(ctx, f)
			c.reply(f.id, value, err)
		case opMissing:
			c.reply(f.id, encodeRanks(c.of.missing(c.m)), nil)
		case opGet:
			c.wait(ctx, f.id, func(ctx context.Context) ([]byte, error) { return c.m.Get(ctx, f.key) })
		case opMeet:
			c.wait(ctx, f.id, func(ctx context.Context) ([]byte, error) { return nil, c.m.wait(ctx) })
		case opCancel:
			c.cancel(f.id)
		default:
			return fmt.Errorf("malformed frame: kind %d: %w", f.kind, dist.ErrInvalid)
		}
	}
}

func (c *serverConn) add(ctx context.Context, f frame) ([]byte, error) {
	if len(f.value) != 8 {
		return nil, fmt.Errorf("store add %q: delta of %d B: %w", f.key, len(f.value), dist.ErrInvalid)
	}
	sum, err := c.m.Add(ctx, f.key, int64(binary.BigEndian.Uint64(f.value)))
	return binary.BigEndian.AppendUint64(nil, uint64(sum)), err
}

// wait replies to request id with do's result, when do returns.
func (c *serverConn) wait(ctx context.Context, id uint32, do func(context.Context) ([]byte, error)) {
	ctx, cancel := context.WithCancel(ctx)
	if !c.enter(id, cancel) {
		cancel()
		c.reply(id, nil, fmt.Errorf("request %d: its id is in use, or %d others wait: %w", id, pendingMax, dist.ErrInvalid))
		return
	}
	c.waiters.Go(func() {
		defer c.cancel(id)
		value, err := do(ctx)
		if ctx.Err() == nil { // else the client has stopped waiting
			c.reply(id, value, err)
		}
	})
}

func (c *serverConn) enter(id uint32, cancel context.CancelFunc) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pending[id] != nil || len(c.pending) == pendingMax {
		return false
	}
	c.pending[id] = cancel
	return true
}

// cancel ends the wait of request id.
func (c *serverConn) cancel(id uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if cancel := c.pending[id]; cancel != nil {
		cancel()
		delete(c.pending, id)
	}
}

// reply sends value, or err.
func (c *serverConn) reply(id uint32, value []byte, err error) {
	f := frame{kind: replyOK, id: id, value: value}
	var dead *dist.RankError
	switch {
	case err == nil:
	case errors.As(err, &dead):
		f.kind, f.value = replyDied, append(encodeRanks([]int{dead.Rank}), dead.How...)
	case errors.Is(err, errOver):
		f.kind, f.value = replyRetry, []byte(err.Error())
	case errors.Is(err, dist.ErrClosed):
		f.kind, f.value = replyClosed, nil
	case errors.Is(err, errTaken):
		f.kind, f.value = replyTaken, []byte(err.Error())
	case errors.Is(err, dist.ErrTimeout):
		f.kind, f.value = replyTimeout, []byte(err.Error())
	default:
		f.kind, f.value = replyInvalid, []byte(err.Error())
	}
	c.send(f, writeTimeout)
}

// send writes f. A client that does not read it loses its connection, which the reader detects.
func (c *serverConn) send(f frame, timeout time.Duration) {
	c.write.Lock()
	defer c.write.Unlock()
	err := c.conn.SetWriteDeadline(time.Now().Add(timeout))
	if err == nil {
		_, err = c.conn.Write(appendFrame(nil, f))
	}
	if err != nil {
		_ = c.conn.Close() // it is broken already
	}
}

// bye notifies the client that the server ends. The client then closes its end, and the reader
// ends; closing here could discard the notice.
func (c *serverConn) bye() {
	c.mu.Lock()
	admitted := c.admitted
	c.mu.Unlock()
	end := time.Now().Add(byeTimeout)
	if !admitted || c.conn.SetDeadline(end) != nil { // also ends a write that is stuck
		_ = c.conn.Close() // the client may have closed it first
		return
	}
	c.send(frame{kind: replyClosed}, byeTimeout)
	if c.conn.SetReadDeadline(end) != nil {
		_ = c.conn.Close()
	}
}
