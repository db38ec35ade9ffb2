package launch

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/symgrad/symgrad/dist"
)

// Client is one rank's end of a Server: a dist.Store, and the connection that shows that this rank
// lives. Any number of goroutines may use it.
type Client struct {
	cfg  DialConfig
	conn net.Conn

	write sync.Mutex // held to send a frame

	mu      sync.Mutex
	last    uint32                // id of the newest request
	pending map[uint32]chan frame // requests without a reply yet
	err     error                 // why requests fail
	closing bool
	late    bool          // this rank leaves because others did not join in time
	closed  chan struct{} // closed by Close, at its end

	ended chan struct{} // closed when the reader has ended; err is set
	quiet chan struct{} // closed when no heartbeats are sent any more
}

// newClient takes over conn, on which the hello was accepted.
func newClient(cfg DialConfig, conn net.Conn, r *bufio.Reader) *Client {
	c := &Client{
		cfg: cfg, conn: conn, pending: map[uint32]chan frame{}, closed: make(chan struct{}), ended: make(chan struct{}),
		quiet: make(chan struct{}),
	}
	go c.read(r)
	if cfg.beat > 0 {
		go c.ping()
	} else {
		close(c.quiet)
	}
	return c
}

// ping sends a heartbeat until the connection ends.
func (c *Client) ping() {
	defer close(c.quiet)
	tick := time.NewTicker(c.cfg.beat)
	defer tick.Stop()
	for {
		select {
		case <-c.ended:
			return
		case <-tick.C:
			c.send(frame{kind: opPing, id: pingID})
		}
	}
}

// read passes replies to their callers, until the connection ends.
func (c *Client) read(r *bufio.Reader) {
	defer close(c.ended)
	for {
		err := c.expect()
		var f frame
		if err == nil {
			f, err = readFrame(r, maxFrameBytes)
		}
		if err == nil && f.kind == replyClosed && f.id == goodbyeID {
			err = errStoreClosed
		}
		c.mu.Lock()
		if err != nil {
			c.err = c.lost(err)
			c.mu.Unlock()
			_ = c.conn.Close() // nothing more comes
			return
		}
		reply := c.pending[f.id]
		delete(c.pending, f.id)
		c.mu.Unlock()
		if reply != nil { // else the request was given up
			reply <- f
		}
	}
}

// expect bounds the wait for the next frame, if there are heartbeats.
func (c *Client) expect() error {
	if c.cfg.beat == 0 {
		return nil
	}
	return c.conn.SetReadDeadline(time.Now().Add(patienceOfBeat(c.cfg.beat)))
}

// lost returns the error for a connection that ended with err. c.mu is held.
func (c *Client) lost(err error) error {
	far := c.cfg.beat > 0 && !c.cfg.ByRank0
	switch {
	case c.closing:
		return errStoreClosed
	case far && c.cfg.Job != launchersJob: // rank 0 is on the host of the store
		return &dist.RankError{Rank: 0, How: fmt.Sprintf("the launcher of its host at %s is lost: %s", c.cfg.Address, describeLoss(err))}
	case errors.Is(err, errStoreClosed):
		return errStoreClosed
	case c.cfg.ByRank0:
		return &dist.RankError{Rank: 0, How: "its store: " + describeLoss(err)}
	case far:
		return fmt.Errorf("the launcher of node 0 at %s is lost: %s: %w", c.cfg.Address, describeLoss(err), dist.ErrAborted)
	default:
		return fmt.Errorf("the launcher is gone: %s: %w", describeLoss(err), dist.ErrAborted)
	}
}

// Set implements dist.Store.
func (c *Client) Set(ctx context.Context, key string, value []byte) error {
	if err := checkSet(ctx, key, value); err != nil {
		return err
	}
	_, err := c.call(ctx, frame{kind: opSet, key: key, value: value}, "set")
	return err
}

// Get implements dist.Store.
func (c *Client) Get(ctx context.Context, key string) ([]byte, error) {
	if err := checkGet(ctx, key); err != nil {
		return nil, err
	}
	return c.call(ctx, frame{kind: opGet, key: key}, "get")
}

// Add implements dist.Store.
func (c *Client) Add(ctx context.Context, key string, delta int64) (int64, error) {
	if err := checkGet(ctx, key); err != nil {
		return 0, err
	}
	sum, err := c.call(ctx, frame{kind: opAdd, key: key, value: binary.BigEndian.AppendUint64(nil, uint64(delta))}, "add")
	if err != nil {
		return 0, err
	}
	if len(sum) != 8 {
		return 0, fmt.Errorf("store add %q: reply of %d B", key, len(sum))
	}
	return int64(binary.BigEndian.Uint64(sum)), nil
}

// meet waits until all ranks have joined.
func (c *Client) meet(ctx context.Context) error {
	_, err := c.call(ctx, frame{kind: opMeet}, "meet")
	return err
}

// missing returns the ranks that have not joined.
func (c *Client) missing(ctx context.Context) ([]int, error) {
	ranks, err := c.call(ctx, frame{kind: opMissing}, "missing")
	return decodeRanks(ranks), err
}

// giveUp is Close for a rank whose peers did not join in time. They are to blame for the failure.
func (c *Client) giveUp() error {
	c.mu.Lock()
	c.late = true
	c.mu.Unlock()
	return c.Close()
}

// Close says goodbye and ends the connection, so that other ranks do not take the end of this one
// for a death. Waiting requests fail with dist.ErrClosed. Idempotent.
func (c *Client) Close() error {
	c.mu.Lock()
	if c.closing {
		c.mu.Unlock()
		<-c.closed
		return nil
	}
	c.closing = true
	lost := c.err
	bye := frame{kind: opGoodbye, id: goodbyeID}
	if c.late {
		bye.value = []byte("late")
	}
	c.mu.Unlock()
	defer close(c.closed)
	if lost == nil {
		ctx, cancel := context.WithTimeout(context.Background(), byeTimeout)
		defer cancel()
		// A server that does not answer is gone, or counts this rank as dead. Neither matters to a
		// rank that leaves.
		_, _ = c.roundTrip(ctx, bye)
	}
	_ = c.conn.Close() // the reader may have closed it first
	<-c.ended
	<-c.quiet
	return nil
}

// call sends f and waits for the reply. Its errors name the operation and the key.
func (c *Client) call(ctx context.Context, f frame, verb string) ([]byte, error) {
	action := "store " + verb
	if f.key != "" {
		action = fmt.Sprintf("store %s %q", verb, f.key)
	}
	c.mu.Lock()
	c.last++
	for c.last == goodbyeID || c.last == pingID {
		c.last++
	}
	f.id = c.last
	closing := c.closing
	c.mu.Unlock()
	if closing {
		return nil, fmt.Errorf("%s: %w", action, dist.ErrClosed)
	}
	reply, err := c.roundTrip(ctx, f)
	if err == nil {
		err = reply.asError()
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", action, err)
	}
	return reply.value, nil
}

// roundTrip sends f and waits for the frame with its id.
func (c *Client) roundTrip(ctx context.Context, f frame) (frame, error) {
	reply := make(chan frame, 1)
	c.mu.Lock()
	if c.err != nil {
		defer c.mu.Unlock()
		return frame{}, c.err
	}
	c.pending[f.id] = reply
	c.mu.Unlock()
	c.send(f)
	select {
	case r := <-reply:
		return r, nil
	case <-c.ended:
		select {
		case r := <-reply: // it came just before the end
			return r, nil
		default:
			return frame{}, c.err
		}
	case <-ctx.Done():
		c.mu.Lock()
		delete(c.pending, f.id)
		c.mu.Unlock()
		c.send(frame{kind: opCancel, id: f.id})
		return frame{}, context.Cause(ctx)
	}
}

// send writes f. If the server does not read it in time, the reader reports the connection as lost.
func (c *Client) send(f frame) {
	c.write.Lock()
	defer c.write.Unlock()
	err := c.conn.SetWriteDeadline(time.Now().Add(writeTimeout))
	if err == nil {
		_, err = c.conn.Write(appendFrame(nil, f))
	}
	if err != nil {
		_ = c.conn.Close() // the reader sees it
	}
}

// asError returns the error that a reply encodes.
func (f frame) asError() error {
	switch f.kind {
	case replyOK:
		return nil
	case replyDied:
		if ranks := decodeRanks(f.value[:min(4, len(f.value))]); len(ranks) == 1 {
			return &dist.RankError{Rank: ranks[0], How: string(f.value[4:])}
		}
	case replyInvalid:
		return &refusal{string(f.value), dist.ErrInvalid}
	case replyTaken:
		return &refusal{string(f.value), errTaken}
	case replyTimeout:
		return &refusal{string(f.value), dist.ErrTimeout}
	case replyRetry:
		return errOver
	case replyClosed:
		return errStoreClosed
	}
	return fmt.Errorf("malformed reply: kind %d, %d B", f.kind, len(f.value))
}

// refusal is the server's error for a request. Its text names the sentinel that it matches.
type refusal struct {
	text     string
	sentinel error
}

func (r *refusal) Error() string { return r.text }
func (r *refusal) Unwrap() error { return r.sentinel }
