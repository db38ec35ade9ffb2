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

// Memory is memory of devices, as the suite needs it: a place for operations to work on, that the
// suite itself reaches by copies only. Calls come from several goroutines, and copy at once: what
// they are to see has been waited for.
type Memory interface {
	// Alloc is bytes bytes (u8) on dev, at an address that suits every element type. What they hold
	// is undefined.
	Alloc(dev tensor.Device, bytes int64) (tensor.Buffer, error)
	// Free gives b back, as Alloc gave it. No operation uses it any more.
	Free(b tensor.Buffer) error
	// Write copies src to the beginning of b, which is as long at least, and may lie anywhere in
	// memory of b's device.
	Write(b tensor.Buffer, src []byte) error
	// Read copies the beginning of b to dst. Parts of peers, as symmetric.Region.Peer addresses
	// them, are read too.
	Read(dst []byte, b tensor.Buffer) error
}

// space is where the buffers of a suite lie that are in no heap: fresh Go memory on the host;
// blocks of a Memory, taken from one after the other, on a device. A failure is kept, so that calls
// need no error: it is the part's in the end.
type space struct {
	mem Memory // nil on the host
	dev tensor.Device

	mu     sync.Mutex
	blocks []tensor.Buffer
	block  int   // that is taken from
	used   int64 // of it
	err    error // the first
}

const (
	blockBytes = 4 << 20
	takenBytes = 256 // multiples of which are taken, as device allocators do
)

// fail keeps err.
func (p *space) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil {
		p.err = err
	}
}

// failed is the error that was kept.
func (p *space) failed() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// take is fresh memory for n elements of dt; the zero Buffer, which no operation accepts, after a
// failure.
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

// floats is n float32 that nobody looks at.
func (p *space) floats(n int) tensor.Buffer { return p.take(tensor.F32, n) }

// raw is bytes bytes of a block.
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

// reset takes everything back: nothing that was taken is in use any more.
func (p *space) reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.block, p.used = 0, 0
}

// close frees the blocks.
// Errors: those that were kept, and of the memory.
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

// load is the bytes of b: those themselves on the host, a copy of them on a device. It may be a
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

// store sets the bytes of b. raw may be what load gave.
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

// set makes all bytes of b v.
func (p *space) set(b tensor.Buffer, v byte) {
	raw := p.load(b)
	for i := range raw {
		raw[i] = v
	}
	p.store(b, raw)
}

// fill sets the elements of b to f.
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

// holds reports the first of the n elements at the start of b that is not f.
func (p *space) holds(b tensor.Buffer, n int, f func(i int) uint64) error {
	raw, dt := p.load(b), b.DType()
	for i := range n {
		if err := differs(dt, i, get(raw, dt, i), f(i)); err != nil {
			return err
		}
	}
	return nil
}

// equals reports the first element at the start of b that is not that of want, whose pieces follow
// each other.
func (p *space) equals(b tensor.Buffer, want ...[]byte) error {
	raw, dt, first := p.load(b), b.DType(), 0
	for _, piece := range want {
		n := len(piece) / dt.Size()
		got := raw[first*dt.Size():][:len(piece)]
		if !bytes.Equal(got, piece) { // else there is no need to look at the elements, of which NaNs are the same in other bits
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

// differs is an error unless element i is what it should be.
func differs(dt tensor.DType, i int, got, want uint64) error {
	if sameBits(dt, got, want) {
		return nil
	}
	return fmt.Errorf("element %d is %s, want %s", i, format(dt, got), format(dt, want))
}

// word is the element of a region at offset at. The rest of the region, where peers may be writing,
// is left alone.
func (p *space) word(r symmetric.Region, dt tensor.DType, at int64) uint64 {
	b, err := r.Local().Slice(int(at), int(at)+dt.Size())
	if err != nil {
		p.fail(err)
		return 0
	}
	raw := make([]byte, dt.Size()) // also where load, after a failure, gives nothing
	copy(raw, p.load(b))
	return get(raw, dt, 0)
}

// array is a few values of this rank: here, where the suite looks at them, and where operations do,
// which is the same place on the host.
type array[T tensor.Element] struct {
	x   []T
	buf tensor.Buffer
	p   *space
}

// of is an array of values.
func of[T tensor.Element](p *space, values ...T) array[T] {
	if p.mem == nil {
		return array[T]{values, tensor.Of(values), p}
	}
	a := array[T]{values, p.take(tensor.TypeOf[T](), len(values)), p}
	a.push()
	return a
}

// zeros is an array of n zeros.
func zeros[T tensor.Element](p *space, n int) array[T] { return of(p, make([]T, n)...) }

// push makes the operations' values those of x.
func (a array[T]) push() {
	if a.p.mem != nil && !a.buf.IsZero() {
		a.p.store(a.buf, tensor.Of(a.x).Raw())
	}
}

// pull makes x what operations have left.
func (a array[T]) pull() []T {
	if a.p.mem != nil && !a.buf.IsZero() {
		copy(tensor.Of(a.x).Raw(), a.p.load(a.buf))
	}
	return a.x
}

// set makes one value v, in both places.
func (a array[T]) set(i int, v T) {
	a.x[i] = v
	a.push()
}

// window is a buffer with free elements around it, all of which hold the canary until somebody
// writes them.
type window struct {
	whole tensor.Buffer
	buf   tensor.Buffer
	p     *space
}

const canary = 0xa5a5a5a5a5a5a5a5

// pad is the elements kept free on either side of a buffer, to see what is written there.
const pad = 4

// window is a window of n elements in region, or in fresh private memory when region is nil.
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

// intact reports the first element of the window outside elements 0 to n of its buffer that is no
// canary.
func (w window) intact(n int) error {
	dt, raw := w.whole.DType(), w.p.load(w.whole)
	for i := range w.whole.Len() {
		if (i < pad || i >= pad+n) && get(raw, dt, i) != canary&mask(dt) {
			return fmt.Errorf("element %d, outside of the result, was written", i-pad)
		}
	}
	return nil
}

// foreign is b as if it were memory of a device that is not dev.
func foreign(b tensor.Buffer, dev tensor.Device) (tensor.Buffer, error) {
	other := tensor.CUDA(0)
	if dev.Kind == tensor.CUDAKind {
		other = tensor.CUDA(dev.Index + 1)
	}
	return tensor.FromPointer(b.Pointer(), b.Len(), b.DType(), other)
}
