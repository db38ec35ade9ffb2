package nvshmem

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"sync"
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/gpu"
)

// Runtime is NVSHMEM started on the ranks of one group, each with a GPU of its own. A process has
// one at a time.
//
// Its methods may be called concurrently. Collective calls must have the same order on all ranks.
// The library takes one call at a time: while a collective call waits for peers, the other calls of
// the rank wait too.
type Runtime struct {
	rma
	pool  areaPool // of the staging areas
	split splitter

	libc    *libc
	scale   *scaler // nil if avg and premulsum are unavailable
	why     error   // why scale is nil
	touched bool    // the start has called the library
}

// process is the state of the library, which exists once in a process.
var process struct {
	sync.Mutex
	runtime  *Runtime
	broken   error  // non-nil: why the library must not be called again
	settings uint64 // hash of the settings that the library has read; it reads them once; 0 before that
}

// Start starts the library on the ranks of p, which become NVSHMEM's world in their order.
//
// Collective: all ranks of p. Returns: when all have started. Owns: the caller closes the runtime,
// and keeps p.Control open until then. Errors, the same on all ranks: dist.ErrInvalid if this
// process has a runtime; dist.ErrDevice if two ranks have the same GPU; dist.ErrMismatch if
// libraries or settings differ; dist.ErrUnsupported if GPUs cannot address each other's memory;
// *Error and those of p.Control.
func Start(l *Library, p *gpu.Member) (*Runtime, error) {
	rt := newRuntime(l, p)
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

func newRuntime(l *Library, p *gpu.Member) *Runtime {
	rt := &Runtime{rma: rma{caller: caller{lib: l, member: p, dev: p.Device}}}
	rt.pool.rma = &rt.rma
	rt.split.caller, rt.split.pool = &rt.caller, &rt.pool
	return rt
}

// claim makes rt the runtime of the process.
func claim(rt *Runtime) error {
	process.Lock()
	defer process.Unlock()
	switch {
	case process.broken != nil:
		return fmt.Errorf("nvshmem: %w: it cannot be started again in this process: %w", dist.ErrInvalid, process.broken)
	case process.runtime != nil:
		return fmt.Errorf("nvshmem: %w: this process already has a runtime: close it first", dist.ErrInvalid)
	case process.settings != 0 && process.settings != rt.lib.cfg.hash():
		return fmt.Errorf("nvshmem: %w: the library has read different settings in this process, and reads them only once: use the same settings", dist.ErrInvalid)
	case rt.lib.front.status() != 0:
		return fmt.Errorf("nvshmem: %w: something else in this process has started %v", dist.ErrInvalid, rt.lib)
	}
	process.runtime = rt
	return nil
}

// release lets another runtime start, if rt was that of the process.
func release(rt *Runtime) {
	process.Lock()
	defer process.Unlock()
	if process.runtime == rt {
		process.runtime = nil
	}
}

// start does the work of Start after claim.
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
	if err := rt.pool.open(); err != nil {
		return err
	}
	return rt.openScale()
}

// identityBytes is the size of an identity: UUID of the device, versions, hash of the settings.
const identityBytes = 16 + 3*4 + 4 + 8

// identity encodes the properties that ranks compare before the library is started.
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

// hash hashes the settings that must agree on all ranks.
func (c Config) hash() uint64 {
	h := fnv.New64a()
	fmt.Fprint(h, c.DisableNCCL, c.Interface, c.RemoteTransport, c.MaxTeams, c.HeapBytes, c.GranularityBytes, c.StagingBytes,
		c.TeamStagingBytes)
	return h.Sum64()
}

// compare returns nil if every rank has a GPU of its own and all have equal libraries and settings.
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
				return fmt.Errorf("nvshmem: %w: ranks %d and %d both have GPU %x: give each rank its own GPU", dist.ErrDevice, q, r, id[:16])
			}
		}
		if !bytes.Equal(id[16:], all[0][16:]) {
			return fmt.Errorf("nvshmem: %w: %s", dist.ErrMismatch, difference(r, id[16:], all[0][16:]))
		}
	}
	return nil
}

// difference describes how rank differs from rank 0.
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
	return fmt.Sprintf("settings of rank %d differ from those of rank 0", rank)
}

// prepare does the part of the start that needs no other rank.
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
	// Needed: the library's own tables, one step of the heap, and NCCL's memory.
	if need := 2*rt.lib.cfg.GranularityBytes + rt.lib.cfg.poolBytes(); free < need {
		return refused("start", dist.ErrUnsupported, "%s has %d B free of about %d B needed: lower GranularityBytes, MaxTeams, StagingBytes or TeamStagingBytes",
			rt.dev.Name(), free, need)
	}
	return nil
}

// initialize exchanges the unique id and starts the library. The context is current.
func (rt *Runtime) initialize() error {
	l, p := rt.lib, rt.member
	// C memory: the library keeps both addresses until it has started.
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

// touch records that the library is called from now on, and has read its settings.
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

// started checks the result of init, which returns 0 even after most failures. The next call of any
// kind would then try again and end the process (nvshmemi_try_common_init in init.cu).
func (rt *Runtime) started() error {
	l := rt.lib
	switch status := l.front.status(); {
	case status == statusShared:
		return refused("start", dist.ErrInvalid, "several ranks share a GPU: give each rank its own")
	case status < statusReady:
		return refused("start", dist.ErrUnsupported,
			"%v did not start (status %d) with interface %s and transport %s between hosts: set Debug to INFO for the reason", l,
			status, l.cfg.Interface, l.cfg.RemoteTransport)
	}
	if pe, n := l.t.myPE(), l.t.nPEs(); int(pe) != rt.member.Rank || int(n) != rt.member.Size {
		return refused("start", dist.ErrInvalid, "%v reports rank %d of %d, want %d of %d", l, pe, n, rt.member.Rank, rt.member.Size)
	}
	return nil
}

// openScale compiles the kernels on every rank. The reductions that need them are available on all
// ranks or on none.
func (rt *Runtime) openScale() error {
	if rt.lib.cfg.Compiler == nil {
		rt.why = errors.New("no compiler for CUDA C was given")
	} else {
		rt.scale, rt.why = newScaler(rt.lib.cfg.Compiler, rt.dev)
	}
	failed := rt.why
	if failed != nil {
		failed = fmt.Errorf("%w: %w", dist.ErrUnsupported, failed)
	}
	agreed := rt.member.Agree(failed)
	if agreed == nil {
		return nil
	}
	rt.scale.close()
	rt.scale = nil
	if rt.why == nil {
		rt.why = agreed // another rank's
	}
	if !errors.Is(agreed, dist.ErrUnsupported) {
		return agreed // the agreement itself failed
	}
	return nil
}
