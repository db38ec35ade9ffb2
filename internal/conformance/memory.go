package conformance

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"unsafe"

	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

// Memory is device memory for operations, which the suite accesses only by copies. Calls are
// concurrent and copy at once: the suite has already waited for the operations.
type Memory interface {
	// Alloc allocates bytes bytes (U8) on dev, aligned for every element type, with undefined
	// content.
	Alloc(dev tensor.Device, bytes int64) (tensor.Buffer, error)
	// Free frees a buffer of Alloc. No operation uses it any more.
	Free(b tensor.Buffer) error
	// Write copies src to the beginning of b, which is at least as long. b may be anywhere in
	// memory of its device.
	Write(b tensor.Buffer, src []byte) error
	// Read copies the beginning of b to dst. b may be a peer's part, from symmetric.Region.Peer.
	Read(dst []byte, b tensor.Buffer) error
}

// space provides buffers outside of heaps: new Go memory on the host; on a device, consecutive
// pieces of blocks of a Memory. It keeps the first failure, so that calls need no error; the part
// returns it at the end.
type space struct {
	mem Memory // nil on the host
	dev tensor.Device

	mu     sync.Mutex
	blocks []tensor.Buffer
	block  int   // index of the current block
	used   int64 // bytes of it
	err    error // first failure
}

const (
	blockBytes = 4 << 20
	takenBytes = 256 // granularity of pieces, as in device allocators
)

// fail keeps err if it is the first.
func (p *space) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil {
		p.err = err
	}
}

// failed returns the first failure.
func (p *space) failed() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// take returns new memory for n elements of dt; after a failure the zero Buffer, which no operation
// accepts.
func (p *space) take(dt tensor.DType, n int) tensor.Buffer {
	bytes := n * dt.Size()
	var at unsafe.Pointer
	if p.mem == nil {
		at = unsafe.Pointer(unsafe.SliceData(make([]uint64, (bytes+7)/8)))
	} else {
		raw, err := p.raw(int64(bytes))
		if err != nil {
			p.fail(err)
			return tensor.Buffer{}
		}
		at = raw.Pointer()
	}
	b, err := tensor.FromPointer(at, n, dt, p.dev)
	if err != nil {
		p.fail(err)
	}
	return b
}

// floats returns n float32 whose values do not matter.
func (p *space) floats(n int) tensor.Buffer { return p.take(tensor.F32, n) }

// raw returns bytes bytes of a block.
func (p *space) raw(bytes int64) (tensor.Buffer, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return tensor.Buffer{}, p.err
	}
	need := max((bytes+takenBytes-1)/takenBytes, 1) * takenBytes
	for p.block < len(p.blocks) && p.used+need > p.blocks[p.block].Bytes() {
		p.block, p.used = p.block+1, 0
	}
	if p.block == len(p.blocks) {
		b, err := p.mem.Alloc(p.dev, max(need, blockBytes))
		if err != nil {
			return tensor.Buffer{}, fmt.Errorf("suite: %d B on %v: %w", max(need, blockBytes), p.dev, err)
		}
		p.blocks, p.used = append(p.blocks, b), 0
	}
	from := p.used
	p.used += need
	return p.blocks[p.block].Slice(int(from), int(p.used))
}

// reset makes all memory available again: none of it is in use any more.
func (p *space) reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.block, p.used = 0, 0
}

// close frees the blocks. Errors: the first failure, and those of the memory.
func (p *space) close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	errs := []error{p.err}
	for _, b := range p.blocks {
		errs = append(errs, p.mem.Free(b))
	}
	p.blocks, p.block, p.used, p.err = nil, 0, 0, nil
	return errors.Join(errs...)
}

// load returns the bytes of b: the memory itself on the host, a copy for a device. b may be a
// peer's part.
func (p *space) load(b tensor.Buffer) []byte {
	if p.mem == nil {
		return b.Raw()
	}
	raw := make([]byte, b.Bytes())
	if len(raw) == 0 {
		return raw
	}
	own, err := tensor.FromPointer(b.Pointer(), b.Len(), b.DType(), p.dev)
	if err == nil {
		err = p.mem.Read(raw, own)
	}
	if err != nil {
		p.fail(fmt.Errorf("suite: copy from %v: %w", b, err))
	}
	return raw
}

// store sets the bytes of b. raw may be a result of load.
func (p *space) store(b tensor.Buffer, raw []byte) {
	switch {
	case p.mem == nil:
		copy(b.Raw(), raw)
	case len(raw) > 0:
		if err := p.mem.Write(b, raw); err != nil {
			p.fail(fmt.Errorf("suite: copy to %v: %w", b, err))
		}
	}
}

// set sets all bytes of b to v.
func (p *space) set(b tensor.Buffer, v byte) {
	raw := p.load(b)
	for i := range raw {
		raw[i] = v
	}
	p.store(b, raw)
}

// fill sets element i of b to f(i).
func (p *space) fill(b tensor.Buffer, f func(i int) uint64) {
	raw, dt := b.Raw(), b.DType()
	if p.mem != nil {
		raw = make([]byte, b.Bytes())
	}
	for i := range b.Len() {
		put(raw, dt, i, f(i))
	}
	p.store(b, raw)
}

// holds reports the first i of n for which element i of b is not f(i).
func (p *space) holds(b tensor.Buffer, n int, f func(i int) uint64) error {
	raw, dt := p.load(b), b.DType()
	for i := range n {
		if err := differs(dt, i, get(raw, dt, i), f(i)); err != nil {
			return err
		}
	}
	return nil
}

// equals reports the first element at the start of b that differs from want, whose pieces are
// consecutive.
func (p *space) equals(b tensor.Buffer, want ...[]byte) error {
	raw, dt, first := p.load(b), b.DType(), 0
	for _, piece := range want {
		n := len(piece) / dt.Size()
		got := raw[first*dt.Size():][:len(piece)]
		if !bytes.Equal(got, piece) { // otherwise check elements: NaNs may have other bits
			for i := range n {
				if err := differs(dt, first+i, get(got, dt, i), get(piece, dt, i)); err != nil {
					return err
				}
			}
		}
		first += n
	}
	return nil
}

// differs returns an error unless got and want are the same element.
func differs(dt tensor.DType, i int, got, want uint64) error {
	if sameBits(dt, got, want) {
		return nil
	}
	return fmt.Errorf("element %d is %s, want %s", i, format(dt, got), format(dt, want))
}

// word returns the element of a region at offset at. It does not read the rest of the region, where
// peers may be writing.
func (p *space) word(r symmetric.Region, dt tensor.DType, at int64) uint64 {
	b, err := r.Local().Slice(int(at), int(at)+dt.Size())
	if err != nil {
		p.fail(err)
		return 0
	}
	raw := make([]byte, dt.Size()) // load returns nothing after a failure
	copy(raw, p.load(b))
	return get(raw, dt, 0)
}

// array holds a few values of this rank twice: x for the suite and buf for operations. On the host
// both are the same memory.
type array[T tensor.Element] struct {
	x   []T
	buf tensor.Buffer
	p   *space
}

// of returns an array of values.
func of[T tensor.Element](p *space, values ...T) array[T] {
	if p.mem == nil {
		return array[T]{values, tensor.Of(values), p}
	}
	a := array[T]{values, p.take(tensor.TypeOf[T](), len(values)), p}
	a.push()
	return a
}

// zeros returns an array of n zeros.
func zeros[T tensor.Element](p *space, n int) array[T] { return of(p, make([]T, n)...) }

// push copies x to buf.
func (a array[T]) push() {
	if a.p.mem != nil && !a.buf.IsZero() {
		a.p.store(a.buf, tensor.Of(a.x).Raw())
	}
}

// pull copies buf to x and returns x.
func (a array[T]) pull() []T {
	if a.p.mem != nil && !a.buf.IsZero() {
		copy(tensor.Of(a.x).Raw(), a.p.load(a.buf))
	}
	return a.x
}

// set sets value i to v in both places.
func (a array[T]) set(i int, v T) {
	a.x[i] = v
	a.push()
}

// window is a buffer with free elements around it. All elements are the canary until they are
// written.
type window struct {
	whole tensor.Buffer
	buf   tensor.Buffer
	p     *space
}

const canary = 0xa5a5a5a5a5a5a5a5

// pad is the number of free elements on either side of a buffer, to detect stray writes.
const pad = 4

// window returns a window of n elements in region, or in new private memory if region is nil.
func (s *suite) window(region symmetric.Region, dt tensor.DType, n int) (window, error) {
	total := n + 2*pad
	var whole tensor.Buffer
	var err error
	if region == nil {
		whole, err = s.take(dt, total), s.failed()
	} else {
		local := region.Local()
		if local.Bytes() < int64(total*dt.Size()) {
			return window{}, fmt.Errorf("suite: a region of %d B for %d elements of %v", local.Bytes(), total, dt)
		}
		whole, err = tensor.FromPointer(local.Pointer(), total, dt, s.dev)
	}
	if err != nil {
		return window{}, err
	}
	s.store(whole, bytes.Repeat([]byte{canary & 0xff}, int(whole.Bytes())))
	buf, err := whole.Slice(pad, pad+n)
	return window{whole, buf, s.space}, err
}

// intact reports the first element of the window, outside of elements 0 to n of its buffer, that is
// not the canary.
func (w window) intact(n int) error {
	dt, raw := w.whole.DType(), w.p.load(w.whole)
	for i := range w.whole.Len() {
		if (i < pad || i >= pad+n) && get(raw, dt, i) != canary&mask(dt) {
			return fmt.Errorf("element %d, outside of the result, was written", i-pad)
		}
	}
	return nil
}

// foreign returns b marked as memory of a device other than dev.
func foreign(b tensor.Buffer, dev tensor.Device) (tensor.Buffer, error) {
	other := tensor.CUDA(0)
	if dev.Kind == tensor.CUDAKind {
		other = tensor.CUDA(dev.Index + 1)
	}
	return tensor.FromPointer(b.Pointer(), b.Len(), b.DType(), other)
}
