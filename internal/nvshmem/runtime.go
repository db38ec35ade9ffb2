package nvshmem

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/cuda"
	"github.com/symgrad/symgrad/internal/dl"
	"github.com/symgrad/symgrad/internal/gpu"
)

// Runtime is NVSHMEM started on the ranks of one group, each with a GPU of its own. A process has
// one at a time.
//
// Its methods may be called from several goroutines, but calls that are collective come in one
// order on all ranks, and while one of them waits for its peers the other calls of the rank wait
// with it: the library takes one at a time.
type Runtime struct {
	lib    *Library
	member *gpu.Member
	dev    *cuda.Device
	libc   *libc
	scale  *scaler // nil where avg and premulsum cannot be had
	why    error   // why scale is nil

	heap  heap
	pool  region // of the staging areas
	teams teamTable

	failure atomic.Pointer[error] // the first thing that went wrong in the library or on the device
	touched bool                  // the start has called the library
	remains remains
	end     ending

	mu      sync.Mutex // around every call of the library, and of what follows
	driver  *driver
	scratch *scratch // C memory
	args    [8]uintptr
}

// process is the library's state in this process, of which there is only one.
var process struct {
	sync.Mutex
	runtime  *Runtime
	broken   error  // why the library must not be called again
	settings uint64 // hash of those that the library has read, which it does once; 0 before
}

// Start starts the library on the ranks of p, which become NVSHMEM's world in their order.
//
// Collective: all ranks of p. Returns: when all have started. Owns: the caller closes the runtime,
// and leaves p.Control open until then. Errors, on all ranks alike: dist.ErrInvalid when this
// process has a runtime, dist.ErrDevice when two ranks have one GPU; dist.ErrMismatch when ranks
// have different libraries or settings; dist.ErrUnsupported where GPUs cannot address each other's
// memory; *Error and those of p.Control.
func Start(l *Library, p *gpu.Member) (*Runtime, error) {
	rt := &Runtime{lib: l, member: p, dev: p.Device}
	if err := p.Agree(claim(rt)); err != nil {
		release(rt)
		return nil, err
	}
	if err := rt.start(); err != nil {
		if rt.touched {
			rt.leave(fmt.Errorf("nvshmem: an earlier start in this process failed: %w", err))
		}
		release(rt)
		return nil, err
	}
	return rt, nil
}

// claim makes rt the runtime of the process.
func claim(rt *Runtime) error {
	process.Lock()
	defer process.Unlock()
	switch {
	case process.broken != nil:
		return fmt.Errorf("nvshmem: %w: it cannot be started again in this process: %w", dist.ErrInvalid, process.broken)
	case process.runtime != nil:
		return fmt.Errorf("nvshmem: %w: this process has a runtime already: close it before another is started", dist.ErrInvalid)
	case process.settings != 0 && process.settings != rt.lib.cfg.hash():
		return fmt.Errorf("nvshmem: %w: the library has read other settings in this process, and reads them only once: start with the same", dist.ErrInvalid)
	case rt.lib.front.status() != 0:
		return fmt.Errorf("nvshmem: %w: something else in this process has started %v", dist.ErrInvalid, rt.lib)
	}
	process.runtime = rt
	return nil
}

// release lets another runtime be started, if rt was the one.
func release(rt *Runtime) {
	process.Lock()
	defer process.Unlock()
	if process.runtime == rt {
		process.runtime = nil
	}
}

// start is Start once the process is claimed.
func (rt *Runtime) start() error {
	if err := rt.compare(); err != nil {
		return err
	}
	if err := rt.member.Agree(rt.prepare()); err != nil {
		return err
	}
	if err := rt.dev.Enter(); err != nil {
		return rt.member.Agree(err) // meets the others at the first agreement of initialize
	}
	defer rt.dev.Leave()
	if err := rt.initialize(); err != nil {
		return err
	}
	if err := rt.openPool(); err != nil {
		return err
	}
	return rt.openScale()
}

// identityBytes is how much of itself a rank tells the others: the device's id, versions, a hash of
// the settings.
const identityBytes = 16 + 3*4 + 4 + 8

// identity is what ranks compare before the library is started.
func (rt *Runtime) identity() []byte {
	id := rt.dev.UUID()
	b := bytes.Clone(id[:])
	for _, v := range rt.lib.version {
		b = binary.LittleEndian.AppendUint32(b, uint32(v))
	}
	code := int32(0)
	if rt.lib.nccl != nil {
		code = rt.lib.nccl.code
	}
	b = binary.LittleEndian.AppendUint32(b, uint32(code))
	return binary.LittleEndian.AppendUint64(b, rt.lib.cfg.hash())
}

// hash is a number for the settings that all ranks must have alike.
func (c Config) hash() uint64 {
	h := fnv.New64a()
	fmt.Fprint(h, c.DisableNCCL, c.Interface, c.RemoteTransport, c.MaxTeams, c.HeapBytes, c.GranularityBytes, c.StagingBytes,
		c.TeamStagingBytes)
	return h.Sum64()
}

// compare is nil when every rank has a GPU of its own, and all have the same libraries and
// settings.
func (rt *Runtime) compare() error {
	all, err := rt.member.Exchange(rt.identity())
	if err != nil {
		return err
	}
	return compareIdentities(all)
}

func compareIdentities(all [][]byte) error {
	for r, id := range all {
		for q := range r {
			if bytes.Equal(id[:16], all[q][:16]) {
				return fmt.Errorf("nvshmem: %w: ranks %d and %d both have GPU %x: give each rank one of its own", dist.ErrDevice, q, r, id[:16])
			}
		}
		if !bytes.Equal(id[16:], all[0][16:]) {
			return fmt.Errorf("nvshmem: %w: %s", dist.ErrMismatch, difference(r, id[16:], all[0][16:]))
		}
	}
	return nil
}

// difference says what rank has otherwise than rank 0.
func difference(rank int, a, b []byte) string {
	at := func(b []byte, i int) uint32 { return binary.LittleEndian.Uint32(b[4*i:]) }
	for i := range 3 {
		if at(a, i) != at(b, i) {
			return fmt.Sprintf("rank 0 has NVSHMEM %d.%d.%d, rank %d has %d.%d.%d", at(b, 0), at(b, 1), at(b, 2), rank, at(a, 0), at(a, 1), at(a, 2))
		}
	}
	if at(a, 3) != at(b, 3) {
		return fmt.Sprintf("NVSHMEM of rank 0 uses NCCL %d, that of rank %d uses %d (0 is none)", at(b, 3), rank, at(a, 3))
	}
	return fmt.Sprintf("rank %d has other settings than rank 0", rank)
}

// prepare is what each rank can do without the others, before the library is started.
func (rt *Runtime) prepare() (err error) {
	if rt.libc, err = openC(); err != nil {
		return err
	}
	if rt.driver, err = openDriver(); err != nil {
		return err
	}
	if rt.scratch = (*scratch)(rt.libc.calloc(1, unsafe.Sizeof(scratch{}))); rt.scratch == nil {
		return errors.New("nvshmem: out of host memory")
	}
	free, _, err := rt.dev.Memory()
	if err != nil {
		return err
	}
	// The library allocates its own tables, one step of the heap, and what its NCCL takes.
	if need := 2*rt.lib.cfg.GranularityBytes + rt.lib.cfg.poolBytes(); free < need {
		return refused("start", dist.ErrUnsupported, "%s has %d B free, about %d B are needed: lower GranularityBytes, MaxTeams or the sizes of staging",
			rt.dev.Name(), free, need)
	}
	return nil
}

// initialize meets the other ranks and starts the library. The context is current.
func (rt *Runtime) initialize() error {
	l, p := rt.lib, rt.member
	// The library keeps the addresses of both until it has started: C memory.
	mem := rt.libc.calloc(1, unsafe.Sizeof(initAttr{})+unsafe.Sizeof(uniqueID{}))
	if err := p.Agree(noMemory(mem)); err != nil {
		return err
	}
	defer rt.libc.free(mem)
	attr := (*initAttr)(mem)
	id := (*uniqueID)(unsafe.Add(mem, unsafe.Sizeof(initAttr{})))
	*attr, *id = newInitAttr(), newUniqueID()

	rt.touch()
	var err error
	if p.Rank == 0 {
		err = rt.setup(&l.t.uniqueID, "nvshmemx_get_uniqueid", uintptr(unsafe.Pointer(id)))
	}
	if err := p.Agree(err); err != nil {
		return err
	}
	if err := p.Share(unsafe.Slice((*byte)(unsafe.Pointer(id)), unsafe.Sizeof(uniqueID{})), 0); err != nil {
		return err
	}
	err = rt.setup(&l.t.setID, "nvshmemx_set_attr_uniqueid_args", uintptr(p.Rank), uintptr(p.Size), uintptr(unsafe.Pointer(id)),
		uintptr(unsafe.Pointer(attr)))
	if err := p.Agree(err); err != nil {
		return err
	}
	err = rt.setup(&l.t.start, "nvshmemx_hostlib_init_attr", initUniqueID, uintptr(unsafe.Pointer(attr)))
	if err == nil {
		err = rt.started()
	}
	return p.Agree(err)
}

// touch notes that the library is called from here on, and reads its settings.
func (rt *Runtime) touch() {
	rt.touched = true
	process.Lock()
	defer process.Unlock()
	process.settings = rt.lib.cfg.hash()
}

func noMemory(p unsafe.Pointer) error {
	if p == nil {
		return errors.New("nvshmem: out of host memory")
	}
	return nil
}

// started checks what init has left behind: it answers 0 even where most of it failed, and the next
// call of any kind would then try again and end the process (nvshmemi_try_common_init in init.cu).
func (rt *Runtime) started() error {
	l := rt.lib
	switch status := l.front.status(); {
	case status == statusShared:
		return refused("start", dist.ErrInvalid, "several ranks share a GPU: give each rank one of its own")
	case status < statusReady:
		return refused("start", dist.ErrUnsupported,
			"%v did not come up (status %d): ranks meet on interface %s, transport between hosts is %s; set Debug to INFO to see why", l,
			status, l.cfg.Interface, l.cfg.RemoteTransport)
	}
	if pe, n := l.t.myPE(), l.t.nPEs(); int(pe) != rt.member.Rank || int(n) != rt.member.Size {
		return refused("start", dist.ErrInvalid, "%v says this is rank %d of %d, and it is %d of %d", l, pe, n, rt.member.Rank, rt.member.Size)
	}
	return nil
}

// setup calls a function that returns a code. It is not for the hot path. The context is current.
//
//go:uintptrescapes
func (rt *Runtime) setup(p *dl.Proc, name string, args ...uintptr) error {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	r, err := p.Call(args...)
	if err != nil {
		return unsupported(name, p)
	}
	return rt.code(name, r)
}

// code is the error of a function that returned r.
func (rt *Runtime) code(name string, r uintptr) error {
	if int32(r) == 0 {
		return nil
	}
	return &Error{Call: name, Code: int32(r), Library: rt.lib.String()}
}

// fail notes the first thing that went wrong. From then on the library is not called.
func (rt *Runtime) fail(err error) { rt.failure.CompareAndSwap(nil, &err) }

// Failed is what went wrong in the library or on the device; nil while nothing did.
func (rt *Runtime) Failed() error {
	if e := rt.failure.Load(); e != nil {
		return *e
	}
	return nil
}

// open is nil while the library can be called.
func (rt *Runtime) open(call string) error {
	if rt.end.closed.Load() {
		return refused(call, dist.ErrClosed, "the runtime is closed")
	}
	return rt.Failed()
}

// Library is what the runtime was started with.
func (rt *Runtime) Library() *Library { return rt.lib }
