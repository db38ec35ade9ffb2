package ucx

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"
	"unsafe"

	"github.com/symgrad/symgrad/internal/net/wire"
)

// Store is the part of dist.Store that Open needs.
type Store interface {
	// Set stores value under key.
	Set(ctx context.Context, key string, value []byte) error
	// Get returns the value under key, and waits until it is set.
	Get(ctx context.Context, key string) ([]byte, error)
}

// Config has the settings of a Wire. The zero value is usable.
type Config struct {
	// Job distinguishes wires that share a store, such as the generations of a job.
	Job string
	// Interface lists the network devices, separated by commas: UCX_NET_DEVICES. Empty means that
	// variable, or else all.
	Interface string
	// Transports lists UCX's transports, separated by commas: UCX_TLS. Empty means that variable,
	// or else all.
	Transports string
	// OnLost, if not nil, is called once for each process that UCX finds gone, in Progress.
	OnLost func(peer int, how string)
}

// Tags is the number of tags of a Wire. The library's own messages have the tags above.
const Tags = 1 << 31

// Wire is one process's end of a wire over UCX. It implements wire.Wire.
type Wire struct {
	lib   *library
	info  wire.Info
	notes *notes // of the error handler
	call  *callMemory

	closing sync.Once

	mu      sync.Mutex // guards the calls of the library, and the fields below
	context uintptr
	worker  uintptr
	peers   peers
	pending pending
	orphans []orphan
	control uintptr // the receive of control messages
	turn    int
	leaving bool // Close has begun
	closed  bool

	patience time.Duration // of Close, for receives of messages that were sent before
}

// defaultPatience is the longest wait of Close for a peer's receives. A peer that is alive gets its
// messages sooner; a peer that died without news must not delay the end for long.
const defaultPatience = 5 * time.Second

// callMemory has the memory that calls of the library read and write. The library does not keep it.
type callMemory struct {
	send, recv, force requestParam
	info              recvInfo
	nothing           [8]byte // of empty messages
}

// peer is another process, or this one.
type peer struct {
	address  []byte // of its worker
	endpoint uintptr
	lost     *wire.PeerError // nil while the peer is there
	heard    bool            // a receive got one of its messages
	answered bool            // it has answered this wire's goodbye
}

// peers are the processes of a wire, by number.
type peers []peer

// someLost reports whether a peer is lost.
func (ps peers) someLost() bool {
	return slices.ContainsFunc(ps, func(q peer) bool { return q.lost != nil })
}

// connected reports whether p is another process than own that had messages of this one, or that
// sent some.
func (ps peers) connected(p, own int) bool {
	q := &ps[p]
	return p != own && q.lost == nil && (q.endpoint != 0 || q.heard)
}

// allAnswered reports whether all peers of own have answered, or are gone.
func (ps peers) allAnswered(own int) bool {
	for p := range ps {
		if ps.connected(p, own) && !ps[p].answered {
			return false
		}
	}
	return true
}

// pending has the requests that have not ended. Handle[handleIndex] of each is its index.
type pending []*wire.Request

// add makes r pending with the library's request h.
func (ps *pending) add(r *wire.Request, h uintptr, peer int, kind uint64) {
	r.Handle = [4]uint64{uint64(h), uint64(peer), uint64(len(*ps)), kind}
	*ps = append(*ps, r)
}

// remove undoes add.
func (ps *pending) remove(r *wire.Request) {
	all := *ps
	i, last := int(r.Handle[handleIndex]), len(all)-1
	all[i] = all[last]
	all[i].Handle[handleIndex] = uint64(i)
	all[last] = nil
	*ps = all[:last]
}

var _ wire.Wire = (*Wire)(nil)

// Open opens process rank's end of a wire of size processes. They exchange their addresses through
// store, under keys that begin with "ucx/" and Job.
//
// Collective. Errors: of the library, of store, of ctx; dl.ErrNotFound without the library.
func Open(ctx context.Context, rank, size int, store Store, cfg Config) (*Wire, error) {
	if size < 1 || rank < 0 || rank >= size {
		return nil, fmt.Errorf("ucx: rank %d of %d: want 0 <= rank < size", rank, size)
	}
	lib, err := loaded()
	if err != nil {
		return nil, err
	}
	w := &Wire{lib: lib, call: newCallMemory(), peers: make(peers, size), patience: defaultPatience}
	w.info = wire.Info{
		Rank: rank, Size: size, Engine: "ucx", Library: lib.found().String(), Tags: Tags, OnLost: cfg.OnLost,
	}
	if err := keepSignals(func() error { return w.start(cfg) }); err != nil {
		w.stop()
		return nil, err
	}
	if err := w.meet(ctx, store, cfg.Job); err != nil {
		w.stop()
		return nil, err
	}
	w.notes = register()
	w.listen()
	return w, nil
}

func newCallMemory() *callMemory {
	return &callMemory{
		recv:  requestParam{mask: opNoImmediateEnd}, // else the sender is lost: 1.13 does not set recvInfo
		force: requestParam{mask: opFlags, flags: closeForce},
	}
}

// start makes context and worker.
func (w *Wire) start(cfg Config) error {
	l, size := w.lib, len(w.peers)
	config := new(uintptr)
	r, err := l.configRead.Call(0, 0, uintptr(unsafe.Pointer(config)))
	if err := l.failed("ucp_config_read", r, err); err != nil {
		return err
	}
	defer func() { _, _ = l.configRelease.CallWords(*config) }()
	for _, o := range [][2]string{{"NET_DEVICES", cfg.Interface}, {"TLS", cfg.Transports}} {
		if o[1] == "" {
			continue
		}
		name, value := append([]byte(o[0]), 0), append([]byte(o[1]), 0)
		r, err := l.configModify.Call(*config, uintptr(unsafe.Pointer(&name[0])), uintptr(unsafe.Pointer(&value[0])))
		if err := l.failed(fmt.Sprintf("UCX_%s=%s", o[0], o[1]), r, err); err != nil {
			return err
		}
	}
	cp := &contextParams{
		mask:     paramFeatures | paramTagSenderMask | paramEstimatedEPs,
		features: featureTag, tagSenderMask: senderMask, estimatedEPs: uint64(size),
	}
	r, err = l.initVersion.Call(apiMajor, apiMinor, uintptr(unsafe.Pointer(cp)), *config, uintptr(unsafe.Pointer(&w.context)))
	if err := l.failed("ucp_init", r, err); err != nil {
		return fmt.Errorf("%w: no transport works with the interface %q and the transports %q", err, cfg.Interface, cfg.Transports)
	}
	wp := &workerParams{mask: workerThreadMode, threadMode: threadSerialized}
	r, err = l.workerCreate.Call(w.context, uintptr(unsafe.Pointer(wp)), uintptr(unsafe.Pointer(&w.worker)))
	return l.failed("ucp_worker_create", r, err)
}

// stop ends worker and context. The library uses none of the requests' memory afterwards.
func (w *Wire) stop() {
	if w.worker != 0 {
		_, _ = w.lib.workerDestroy.CallWords(w.worker)
	}
	if w.context != 0 {
		_, _ = w.lib.cleanup.CallWords(w.context)
	}
	w.worker, w.context = 0, 0
}

// meet exchanges the addresses. Rank 0 collects them, so that the store answers one request of each
// other rank.
func (w *Wire) meet(ctx context.Context, store Store, job string) error {
	own, err := w.address()
	if err != nil {
		return err
	}
	key := func(name any) string { return fmt.Sprintf("ucx/%s/%v", job, name) }
	rank, size := w.info.Rank, w.info.Size
	var all []byte
	if rank != 0 {
		if err := store.Set(ctx, key(rank), own); err != nil {
			return fmt.Errorf("ucx: announce the address of rank %d: %w", rank, err)
		}
		if all, err = store.Get(ctx, key("all")); err != nil {
			return fmt.Errorf("ucx: rank %d waits for the addresses: %w", rank, err)
		}
		return w.peers.setAddresses(all)
	}
	all = appendBytes(all, own)
	for p := 1; p < size; p++ {
		a, err := store.Get(ctx, key(p))
		if err != nil {
			return fmt.Errorf("ucx: wait for the address of rank %d: %w", p, err)
		}
		all = appendBytes(all, a)
	}
	if err := store.Set(ctx, key("all"), all); err != nil {
		return fmt.Errorf("ucx: announce the addresses: %w", err)
	}
	return w.peers.setAddresses(all)
}

// address returns the address of this process's worker.
func (w *Wire) address() ([]byte, error) {
	at, n := new(*byte), new(uint64)
	r, err := w.lib.getAddress.Call(w.worker, uintptr(unsafe.Pointer(at)), uintptr(unsafe.Pointer(n)))
	if err := w.lib.failed("ucp_worker_get_address", r, err); err != nil {
		return nil, err
	}
	own := append([]byte(nil), unsafe.Slice(*at, *n)...)
	_, err = w.lib.releaseAddress.CallWords(w.worker, uintptr(unsafe.Pointer(*at)))
	return own, err
}

// appendBytes appends the length of b and b.
func appendBytes(all, b []byte) []byte {
	return append(binary.LittleEndian.AppendUint32(all, uint32(len(b))), b...)
}

// setAddresses splits the list that rank 0 made by appendBytes.
func (ps peers) setAddresses(all []byte) error {
	for p := range ps {
		if len(all) < 4 || uint64(len(all)-4) < uint64(binary.LittleEndian.Uint32(all)) {
			return errors.New("ucx: the list of addresses is cut: do the ranks agree on the size?")
		}
		n := 4 + int(binary.LittleEndian.Uint32(all))
		ps[p].address, all = all[4:n:n], all[n:]
	}
	if len(all) > 0 {
		return errors.New("ucx: the list of addresses is too long: do the ranks agree on the size?")
	}
	return nil
}

// Info implements wire.Wire.
func (w *Wire) Info() wire.Info { return w.info }

// endpoint returns the endpoint to a peer that is not lost, and makes it at the first call.
//
// Errors: *wire.PeerError for a peer that cannot be reached, which Progress then loses.
func (w *Wire) endpoint(p int) (uintptr, error) {
	q := &w.peers[p]
	if q.endpoint != 0 {
		return q.endpoint, nil
	}
	params := &endpointParams{
		mask:    endpointAddress | endpointErrMode | endpointHandler,
		address: uintptr(unsafe.Pointer(&q.address[0])), errMode: errModePeer,
		errHandler: w.lib.onError, errArg: w.notes.arg(p),
	}
	r, err := w.lib.epCreate.Call(w.worker, uintptr(unsafe.Pointer(params)), uintptr(unsafe.Pointer(&q.endpoint)))
	runtime.KeepAlive(q.address)
	if err = w.lib.failed("ucp_ep_create", r, err); err == nil {
		return q.endpoint, nil
	}
	q.endpoint = 0
	s := status(r)
	if s.local() {
		return 0, fmt.Errorf("%w: to process %d", err, p)
	}
	w.notes.add(p, s) // TCP connects here, and a process that has ended refuses
	return 0, &wire.PeerError{Peer: p, How: w.lib.text(s) + ": it has ended, or has no network interface in common"}
}
