package direct

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/gpu"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
	"github.com/symgrad/symgrad/tensor"
)

// dtypes and reds are the lengths of tables by tensor.DType and dist.RedKind.
const (
	dtypes = int(tensor.U64) + 1
	reds   = int(redNone) + 1
)

// state is shared by the engines of one group: the board, the epochs, the kernels. Operations of
// all engines have one sequence of epochs, so a group may mix them.
type state struct {
	p     *gpu.Member
	cfg   Config
	n     int
	most  int // blocks that run at once on every rank
	board board
	slab  *gpu.Slab
	local uintptr
	stop  stopWord
	args  *cuda.Args
	mover copyMover // of the operation that is being queued
	adder adder
	seams seams
	kept  kept

	shelf   *shelf
	kernels *kernels
	slabs   atomic.Pointer[[]known]

	aborted atomic.Bool
	failed  atomic.Pointer[error]
	engines atomic.Int32 // number of open engines

	division division
}

// stopWord is a word of the host that ends waits.
type stopWord struct {
	host *cuda.HostMemory
	at   uintptr // its address for kernels
}

// division is the last Split of a state. Engines share the state of its part.
type division struct {
	of   *gpu.Member // its argument
	part *state
}

// known is a registered slab.
type known struct {
	slab  *gpu.Slab
	base  uintptr // of this rank
	row   int     // index in the table; 0 if a rank cannot address the slab
	plain bool    // every rank knows where its allocations end, and can address the slab
	seams []uintptr
	count int // number of registrations
}

var errAborted = fmt.Errorf("direct: %w", dist.ErrAborted)

// newState returns the state of the group of p.
//
// Collective: all ranks of p. Errors: on all ranks.
func newState(p *gpu.Member, cfg Config, kernels *shelf) (*state, error) {
	if p.Size > MaxRanks {
		return nil, fmt.Errorf("direct: %w: %d ranks, the kernels serve %d at most", dist.ErrUnsupported, p.Size, MaxRanks)
	}
	if n := p.HostCount(); n > 1 {
		return nil, fmt.Errorf("direct: %w: the ranks are on %d hosts, and the kernels address the memory of peers: use engine nccl or %s",
			dist.ErrUnsupported, n, gpu.Hierarchical)
	}
	s := &state{p: p, cfg: cfg, n: p.Size, board: newBoard(&cfg), shelf: kernels}
	s.kept.on = p.Device.Driver().Version() >= keptSince
	if p.Size == 1 {
		s.board = board{bytes: headerBytes} // no rank sends anything
	}
	err := cfg.Validate()
	if err == nil && cfg.Shapes == nil {
		s.cfg.Shapes, err = builtinRules()
	}
	if err == nil {
		if s.args, err = cuda.NewArgs(arguments); err == nil {
			if _, err = p.Device.Driver().Compiler(); err != nil {
				err = fmt.Errorf("direct: %w: kernels are compiled on the machine that runs them: %w", dist.ErrUnsupported, err)
			}
		}
	}
	if err = p.Agree(err); err != nil {
		return nil, err
	}
	if err = s.agree(); err != nil {
		return nil, err
	}
	var memory gpu.Allocator = IPC{}
	if cfg.Memory != nil {
		memory = cfg.Memory
	}
	if s.kernels, err = kernels.open(p); err != nil {
		return nil, err
	}
	if s.slab, err = memory.Alloc(p, s.board.bytes); err != nil {
		return nil, errors.Join(fmt.Errorf("direct: board: %w", err), kernels.drop(s.kernels))
	}
	if err = p.Agree(s.prepare()); err != nil {
		return nil, errors.Join(err, s.free())
	}
	return s, nil
}

// agree compares the configurations and finds the smallest GPU. Collective.
func (s *state) agree() error {
	all, err := s.p.Exchange(s.report(s.p.Device.SMs()))
	if err == nil {
		s.most, err = s.judge(all)
	}
	return err
}

// settings returns the settings that must be equal on all ranks, as text.
func (s *state) settings() string {
	return fmt.Sprintf("at most %d blocks, %+v %+v", s.cfg.mostBlocks(), s.board, s.cfg.Shapes)
}

// report returns a rank's message to the others: a hash of the settings, and its multiprocessors.
func (s *state) report(sms int) []byte {
	sum := sha256.Sum256([]byte(s.settings()))
	return binary.LittleEndian.AppendUint32(sum[:], uint32(sms))
}

// judge returns the number of blocks that run at once on every rank, from the messages of all.
// Errors: dist.ErrMismatch.
func (s *state) judge(all [][]byte) (int, error) {
	most := MaxBlocks
	for r, b := range all {
		if [32]byte(b) != [32]byte(all[0]) {
			return 0, fmt.Errorf("direct: %w: the configuration of rank %d differs from rank 0; here it is %s", dist.ErrMismatch, r, s.settings())
		}
		sms := int(binary.LittleEndian.Uint32(b[32:]))
		most = min(most, max(sms-sms/8, 1))
	}
	return most, nil
}

// prepare allocates this rank's own memory and objects.
func (s *state) prepare() error {
	v := s.p.Device
	var err error
	for r, base := range s.slab.Base {
		if base == 0 {
			return fmt.Errorf("direct: %w: rank %d cannot address the board of rank %d", dist.ErrUnsupported, s.p.Rank, r)
		}
	}
	if s.local, err = v.Alloc(localBytes); err != nil {
		return err
	}
	if err = v.Fill(s.local, 0, localBytes); err != nil {
		return err
	}
	var epochs [MaxBlocks]uint64 // the first one, for each block
	for i := range epochs {
		epochs[i] = 1
	}
	if err = v.CopyFromHost(s.local+epochsAt, unsafe.Pointer(&epochs), int64(unsafe.Sizeof(epochs))); err != nil {
		return err
	}
	if s.stop.host, err = v.AllocHost(64); err != nil {
		return err
	}
	s.stop.at = s.stop.host.Device()
	if s.kept.on {
		if err = s.kept.open(v, s.kernels.any()); err != nil {
			return err
		}
	}
	if s.n == 1 {
		return nil
	}
	return s.adder.open(v)
}

// register makes slab known to the kernels. It gets the lowest free row, which is equal on all
// ranks.
//
// Collective: all ranks.
func (s *state) register(slab *gpu.Slab) error {
	s.kept.forget()
	all := s.registered()
	for i := range all {
		if all[i].slab == slab {
			all[i].count++
			s.slabs.Store(&all)
			return nil
		}
	}
	seams, reachable, plain := s.reach(slab)
	everywhere, err := s.p.Exchange([]byte{reachable, plain})
	if err != nil {
		return err
	}
	k := known{slab: slab, base: slab.Base[s.p.Rank], row: freeRow(all), plain: true, seams: seams, count: 1}
	for _, b := range everywhere {
		if b[0] == 0 {
			k.row = 0
		}
		k.plain = k.plain && b[1] != 0 && k.row > 0
	}
	if k.row > 0 {
		var row [MaxRanks]uint64
		for r, b := range slab.Base {
			row[r] = uint64(b)
		}
		if err := s.p.Device.CopyFromHost(s.local+tableAt+uintptr(k.row)*MaxRanks*8, unsafe.Pointer(&row), int64(unsafe.Sizeof(row))); err != nil {
			return fmt.Errorf("direct: register slab of %d B rank %d/%d: %w", slab.Bytes, s.p.Rank, s.n, err)
		}
	}
	all = append(all, k)
	s.slabs.Store(&all)
	s.seams.note(all)
	return nil
}

// reach returns whether this rank can address slab on all ranks, and the borders of allocations in
// it, if the driver knows them.
func (s *state) reach(slab *gpu.Slab) (seams []uintptr, reachable, plain byte) {
	if slices.Contains(slab.Base, 0) {
		return nil, 0, 0
	}
	reachable, plain = 1, 1
	for _, b := range slab.Base {
		for p, end := b, b+uintptr(slab.Bytes); p < end; {
			base, bytes, err := s.p.Device.Range(p)
			if err != nil || base+uintptr(bytes) <= p {
				return nil, reachable, 0
			}
			if p = base + uintptr(bytes); p < end {
				seams = append(seams, p)
			}
		}
	}
	return seams, reachable, plain
}

// freeRow returns the lowest free row of the table, or 0. Data of a slab in row 0 are staged.
func freeRow(all []known) int {
	var used [maxSlabs + 1]bool
	for _, k := range all {
		used[k.row] = true
	}
	for row := 1; row <= maxSlabs; row++ {
		if !used[row] {
			return row
		}
	}
	return 0
}

// registered returns a copy of the registered slabs.
func (s *state) registered() []known {
	var all []known
	if old := s.slabs.Load(); old != nil {
		all = append(all, *old...)
	}
	return all
}

// unregister forgets slab.
func (s *state) unregister(slab *gpu.Slab) {
	s.kept.forget()
	var kept []known
	for _, k := range s.registered() {
		if k.slab == slab {
			k.count--
		}
		if k.count > 0 {
			kept = append(kept, k)
		}
	}
	s.slabs.Store(&kept)
	s.seams.note(kept)
}

// placeOf returns the location for other ranks of the bytes bytes at addr; 0 for data in no slab.
func (s *state) placeOf(addr uintptr, bytes uint64) uint64 {
	if k := s.slabOf(addr, bytes); k != nil {
		return place(k.row, uint64(addr-k.base))
	}
	return 0
}

// slabOf returns the slab with a row that contains the bytes bytes at addr, or nil.
func (s *state) slabOf(addr uintptr, bytes uint64) *known {
	all := s.slabs.Load()
	if all == nil {
		return nil
	}
	for i := range *all {
		k := &(*all)[i]
		if off := uint64(addr - k.base); k.row > 0 && addr >= k.base && off <= uint64(k.slab.Bytes) && bytes <= uint64(k.slab.Bytes)-off {
			return k
		}
	}
	return nil
}

// abort ends the waits of kernels, now and later.
func (s *state) abort() {
	if !s.aborted.Swap(true) {
		atomic.StoreUint64((*uint64)(s.stop.host.Pointer()), 1)
	}
}

// leave closes an engine; the last one frees the state. An aborted state stays until the process
// ends: a kernel, here or on a peer, may still use it.
func (s *state) leave() error {
	if s.engines.Add(-1) > 0 || s.aborted.Load() {
		return nil
	}
	return s.free()
}

// free frees everything. Collective, because of the slab.
func (s *state) free() error {
	var errs []error
	errs = append(errs, s.kept.close(), s.adder.close(), s.shelf.drop(s.kernels), s.p.Device.Free(s.local))
	s.local = 0
	if s.stop.host != nil {
		errs = append(errs, s.stop.host.Close())
	}
	return errors.Join(append(errs, s.slab.Free())...)
}
