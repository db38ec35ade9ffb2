package shm

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/symgrad/symgrad/dist"
	"golang.org/x/sys/unix"
)

// Open returns this rank's transport of the world of size ranks. They find each other through
// store. All ranks must run on one host, in one network namespace and as one user.
//
// Collective: all ranks, each with its own rank. Errors: ErrUnsupported of dist if ranks are on
// different hosts; ErrTimeout if ranks are missing after InitTimeout, or at ctx's deadline; ctx's
// error if it is cancelled; ErrRoot for a rank outside 0 to size-1; ErrMismatch if ChunkBytes
// differ; the system's if shared memory is unavailable.
func Open(ctx context.Context, rank, size int, store dist.Store, cfg Config) (dist.Transport, error) {
	if size < 1 || rank < 0 || rank >= size {
		return nil, fmt.Errorf("shm: rank %d of %d: %w", rank, size, dist.ErrRoot)
	}
	cfg = cfg.withDefaults()
	within, cancel := context.WithTimeout(ctx, cfg.InitTimeout)
	defer cancel()
	t, err := open(within, rank, size, store, cfg)
	if err != nil {
		switch late := errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded); {
		case late && ctx.Err() == nil:
			err = fmt.Errorf("%w after %v: %w", dist.ErrTimeout, cfg.InitTimeout, err)
		case late: // the caller's deadline came first
			err = fmt.Errorf("%w: %w", dist.ErrTimeout, err)
		}
		return nil, fmt.Errorf("shm: open rank %d/%d: %w", rank, size, err)
	}
	return t, nil
}

func open(ctx context.Context, rank, size int, store dist.Store, cfg Config) (*worldTransport, error) {
	conns, err := meet(ctx, rank, size, store, cfg.ChunkBytes)
	if err != nil {
		return nil, err
	}
	var mk maker = memfdMaker{}
	if cfg.Dir != "" {
		mk = fileMaker{cfg.Dir}
	}
	nd := newNode(cfg, rank, size, mk, nil)
	nd.link = newSocketLink(conns, nd.gone)
	return enter(ctx, nd)
}

// worldTransport is the transport of a world. Its Close also ends the connections.
type worldTransport struct{ *Transport }

// Close implements dist.Transport.
func (w *worldTransport) Close() error { return errors.Join(w.Transport.Close(), w.node.link.close()) }

// worldID is the id of the world's control segment.
const worldID = 1

// enter makes the control segment of the world on rank 0, and receives it on the others.
func enter(ctx context.Context, nd *node) (*worldTransport, error) {
	ranks := make([]int, nd.size)
	for r := range ranks {
		ranks[r] = r
	}
	l := newLayout(nd.size, nd.cfg.ChunkBytes)
	alive := func() error {
		nd.mu.Lock()
		defer nd.mu.Unlock()
		if how, dead := nd.dead[0]; dead {
			return &dist.RankError{Rank: 0, How: how}
		}
		return ctx.Err()
	}
	var seg segment
	var err error
	if nd.rank != 0 {
		var o offer
		if o, err = nd.link.take(0, worldID, alive); err == nil {
			seg = o.seg
		}
	} else {
		o := offer{id: worldID, size: l.size}
		if seg, err = nd.maker.make("a group", l.size); err != nil {
			o.err = err.Error()
		}
		o.seg = seg
		for r := 1; r < nd.size; r++ {
			// An unreachable rank has died. The reader of its connection reports it when the world
			// runs.
			_ = nd.link.offer(r, o)
		}
	}
	if err != nil {
		return nil, errors.Join(err, nd.link.close())
	}
	return &worldTransport{newTransport(nd, ranks, seg, l)}, nil
}

// contact is the data that a rank publishes before ranks connect.
type contact struct {
	Host  string // machine, boot and network namespace
	Name  string // of its socket, in the abstract namespace
	Token string // proves that the dialer has read this contact
	PID   int
	Chunk int // Config.ChunkBytes, which determines the layout
}

// meet connects every pair of ranks by a unix socket: each listens, and dials the lower ranks.
func meet(ctx context.Context, rank, size int, store dist.Store, chunk int) (_ []*net.UnixConn, err error) {
	conns := make([]*net.UnixConn, size)
	if size == 1 {
		return conns, nil
	}
	defer func() {
		if err != nil {
			closeAll(conns)
		}
	}()
	instance, err := store.Add(ctx, fmt.Sprintf("shm/worlds/%d", rank), 1)
	if err != nil {
		return nil, err
	}
	own, err := newContact(chunk)
	if err != nil {
		return nil, err
	}
	ln, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: own.Name, Net: "unixpacket"})
	if err != nil {
		return nil, err
	}
	defer ln.Close()
	contacts, err := trade(ctx, rank, size, instance, own, store)
	if err != nil {
		return nil, err
	}
	for r := range rank {
		if conns[r], err = dial(ctx, contacts[r], rank); otherEndGone(err) {
			return nil, fmt.Errorf("%w: %w", &dist.RankError{Rank: r, How: connectionClosed}, err)
		} else if err != nil {
			return nil, fmt.Errorf("connect to rank %d: %w", r, err)
		}
	}
	return conns, accept(ctx, ln, conns, rank, own)
}

func newContact(chunk int) (contact, error) {
	var nonce [24]byte
	if _, err := rand.Read(nonce[:]); err != nil {
		return contact{}, err
	}
	host, err := HostID()
	return contact{
		Host: host, PID: os.Getpid(), Chunk: chunk, Token: hex.EncodeToString(nonce[8:]),
		Name: fmt.Sprintf("@symgrad-%d-%s", os.Getuid(), hex.EncodeToString(nonce[:8])),
	}, err
}

// HostID identifies the machine and the network namespace, which abstract sockets do not cross.
// Ranks with one HostID can share memory.
func HostID() (string, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("identify this host: %w", err)
	}
	ns, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		return "", fmt.Errorf("identify this host: %w", err)
	}
	return strings.TrimSpace(string(boot)) + " " + ns, nil
}

// trade publishes the own contact in the store and reads the others.
func trade(ctx context.Context, rank, size int, instance int64, own contact, store dist.Store) ([]contact, error) {
	key := func(r int) string { return fmt.Sprintf("shm/%d/card/%d", instance, r) }
	raw, err := json.Marshal(own)
	if err != nil {
		return nil, err
	}
	if err := store.Set(ctx, key(rank), raw); err != nil {
		return nil, err
	}
	contacts := make([]contact, size)
	for r := range contacts {
		raw, err := store.Get(ctx, key(r))
		if err != nil {
			return nil, fmt.Errorf("wait for rank %d: %w", r, err)
		}
		if err := json.Unmarshal(raw, &contacts[r]); err != nil {
			return nil, fmt.Errorf("contact of rank %d: %w", r, err)
		}
		if contacts[r].Host != own.Host {
			return nil, fmt.Errorf("%w: shared memory needs all ranks on one host, but rank %d is on another (%s, here %s)",
				dist.ErrUnsupported, r, contacts[r].Host, own.Host)
		}
		if contacts[r].Chunk != own.Chunk {
			return nil, fmt.Errorf("%w on ChunkBytes: rank %d has %d, rank %d has %d", dist.ErrMismatch, r, contacts[r].Chunk, rank, own.Chunk)
		}
	}
	return contacts, nil
}

func dial(ctx context.Context, to contact, rank int) (*net.UnixConn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "unixpacket", to.Name)
	if err != nil {
		return nil, err
	}
	uc := c.(*net.UnixConn)
	if err := sameUser(uc); err != nil {
		return nil, errors.Join(err, uc.Close())
	}
	hello := append([]byte(to.Token), byte(rank), byte(rank>>8))
	if _, err := uc.Write(hello); err != nil {
		return nil, errors.Join(err, uc.Close())
	}
	return uc, nil
}

// accept waits for the higher ranks. It drops connections of other users, or without the token.
func accept(ctx context.Context, ln *net.UnixListener, conns []*net.UnixConn, rank int, own contact) error {
	stop := context.AfterFunc(ctx, func() { _ = ln.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	for missing := len(conns) - 1 - rank; missing > 0; {
		c, err := ln.AcceptUnix()
		if err != nil {
			if ctx.Err() != nil {
				err = context.Cause(ctx) // not the timeout of the listener, which only stops it
			}
			var names []string
			for r := rank + 1; r < len(conns); r++ {
				if conns[r] == nil {
					names = append(names, fmt.Sprint(r))
				}
			}
			return fmt.Errorf("wait for the connections of ranks %s: %w", strings.Join(names, ", "), err)
		}
		peer, err := greet(ctx, c, own.Token)
		if err != nil || peer <= rank || peer >= len(conns) || conns[peer] != nil {
			_ = c.Close()
			continue
		}
		conns[peer] = c
		missing--
	}
	return nil
}

// greet reads a dialer's hello and returns its rank.
func greet(ctx context.Context, c *net.UnixConn, token string) (int, error) {
	if err := sameUser(c); err != nil {
		return 0, err
	}
	stop := context.AfterFunc(ctx, func() { _ = c.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	hello := make([]byte, len(token)+2)
	n, err := c.Read(hello)
	if err != nil {
		return 0, err
	}
	if n != len(hello) || !bytes.Equal(hello[:len(token)], []byte(token)) {
		return 0, errors.New("wrong token")
	}
	if !stop() {
		return 0, context.Cause(ctx)
	}
	return int(hello[n-2]) | int(hello[n-1])<<8, nil
}

// sameUser rejects a connection to a process of another user.
func sameUser(c *net.UnixConn) error {
	cred, err := credentials(c)
	if err != nil {
		return err
	}
	if int(cred.Uid) != os.Getuid() {
		return fmt.Errorf("the peer runs as user %d, this rank as %d", cred.Uid, os.Getuid())
	}
	return nil
}

// credentials returns process and user of the peer of c, from the kernel.
func credentials(c *net.UnixConn) (*unix.Ucred, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return nil, err
	}
	return cred, credErr
}

func closeAll(conns []*net.UnixConn) {
	for _, c := range conns {
		if c != nil {
			_ = c.Close()
		}
	}
}
