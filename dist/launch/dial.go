package launch

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	"github.com/symgrad/symgrad/dist"
)

// DialConfig identifies the store and the rank that joins it.
type DialConfig struct {
	Address    string      // as in ServerConfig
	Job        string      // as in ServerConfig
	Rank, Size int         // the rank that joins
	TLS        *tls.Config // nil means no TLS
	files      []string    // unix sockets in private folders, tried before Address
	ByRank0    bool        // rank 0 serves, not the launcher: it may start later, and its loss is the loss of a rank

	beat    time.Duration // between two heartbeats; 0 means none, because the store is on this host
	patient bool          // dial again after errors of the network, until the end of the context
}

// Dial joins the store of a job. With ByRank0 it retries until ctx ends, while no server listens,
// too many ranks dial at once, or the store is that of an earlier meeting.
//
// Owns: the caller closes the client. Errors: ctx's with the last refusal; dist.ErrInvalid when the
// server is of another job or user, or the rank is taken.
func Dial(ctx context.Context, cfg DialConfig) (*Client, error) {
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		c, err := dialOnce(ctx, cfg)
		if err == nil {
			return c, nil
		}
		err = fmt.Errorf("store at %s: %w", cfg.Address, err)
		if ctx.Err() == nil && !(cfg.ByRank0 && passing(err)) && !(cfg.patient && (passing(err) || unreached(err))) {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", context.Cause(ctx), err)
		case <-time.After(pause):
		}
	}
}

// passing reports whether a refusal may end soon: no server listens yet, the listener was closing,
// or more ranks dial at a time than a unix socket queues (EAGAIN of connect(2)).
func passing(err error) bool {
	for _, soon := range []error{
		syscall.ECONNREFUSED, syscall.ECONNRESET, syscall.EAGAIN, errNoAnswer, errOver, errForeign, dist.ErrClosed,
	} {
		if errors.Is(err, soon) {
			return true
		}
	}
	return false
}

// unreached reports whether no connection was made: the host has no name or route yet, or does not
// answer.
func unreached(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// errNoAnswer is the error of a server that ended the connection instead of answering hello.
var errNoAnswer = errors.New("no answer to hello")

func dialOnce(ctx context.Context, cfg DialConfig) (*Client, error) {
	conn, err := reach(ctx, cfg)
	if err != nil {
		if end, ok := ctx.Deadline(); ok && !time.Now().Before(end) {
			<-ctx.Done() // the dialer uses ctx's deadline, and may be ahead of ctx
		}
		return nil, err
	}
	return hail(ctx, cfg, conn)
}

// hail joins the store at the other end of conn, which it owns.
func hail(ctx context.Context, cfg DialConfig, conn net.Conn) (*Client, error) {
	if cfg.TLS != nil {
		conn = tls.Client(conn, cfg.TLS)
	}
	r := bufio.NewReader(conn)
	if err := sayHello(ctx, cfg, conn, r); err != nil {
		_ = conn.Close() // err has the cause
		return nil, err
	}
	return newClient(cfg, conn, r), nil
}

// reach connects to a process of this user at the first address that has one.
func reach(ctx context.Context, cfg DialConfig) (net.Conn, error) {
	var d net.Dialer
	for _, path := range cfg.files {
		conn, err := d.DialContext(ctx, "unix", path)
		if err == nil && checkPeer(conn) == nil {
			return conn, nil
		}
		if err == nil {
			_ = conn.Close() // nothing was said on it
		}
	}
	conn, err := d.DialContext(ctx, network(cfg.Address), cfg.Address)
	if err != nil {
		return nil, err
	}
	if err := checkPeer(conn); err != nil {
		_ = conn.Close()        // nothing was said on it
		if len(cfg.files) > 0 { // rank 0 will listen there
			err = fmt.Errorf("%w: %w", errForeign, err)
		}
		return nil, err
	}
	return conn, nil
}

// sayHello joins the store, or returns why it cannot.
func sayHello(ctx context.Context, cfg DialConfig, conn net.Conn, r *bufio.Reader) error {
	ctx, cancel := context.WithTimeout(ctx, helloTimeout)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	h := hello{rank: cfg.Rank, size: cfg.Size, job: cfg.Job}
	_, err := conn.Write(appendFrame(nil, frame{kind: opHello, id: 1, key: helloKey, value: h.encode()}))
	var reply frame
	if err == nil {
		reply, err = readFrame(r, maxFrameBytes)
	}
	if !stop() {
		return fmt.Errorf("%w: %w", errNoAnswer, context.Cause(ctx))
	}
	if err != nil {
		// TLS 1.3 reports a rejected certificate to the client here, on its first read.
		var refused *tls.CertificateVerificationError
		var alert *net.OpError
		if errors.As(err, &refused) || (errors.As(err, &alert) && alert.Op == "remote error") {
			return fmt.Errorf("the store and this process are not of one job: %w", err)
		}
		return fmt.Errorf("%w: %w", errNoAnswer, err)
	}
	return reply.asError()
}
