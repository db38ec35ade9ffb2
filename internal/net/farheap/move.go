package farheap

import (
	"fmt"
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/host/hostheap"
	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

// Put implements symmetric.Region.
func (r *Region) Put(rank int, at int64, src tensor.Buffer) error { return r.put("put", rank, at, src) }

// PutNBI implements symmetric.Region. src may be changed when it returns.
func (r *Region) PutNBI(rank int, at int64, src tensor.Buffer) error {
	return r.put("put nbi", rank, at, src)
}

func (r *Region) put(call string, rank int, at int64, src tensor.Buffer) error {
	if err := r.enterBuffer(call, rank, at, src); err != nil {
		return err
	}
	h, err := r.heap, error(nil)
	if inner := h.near[rank]; inner >= 0 {
		err = h.whole.Put(inner, r.off+at, src)
	} else if src.Len() > 0 {
		err = h.putFar(rank, r.off+at, src, head{verb: verbPut})
	}
	return r.done(call, rank, at, src.Bytes(), err)
}

// putFar sends src in pieces to offset at of the heap. last is the request of the last piece.
func (h *Heap) putFar(rank int, at int64, src tensor.Buffer, last head) error {
	raw, size := src.Raw(), src.DType().Size()
	per := pieceBytes / size
	for first := 0; ; first += per {
		n := min(per, src.Len()-first)
		m, entry, err := h.reserve(rank, nil)
		if err != nil {
			return err
		}
		q := head{verb: verbPut}
		if first+n == src.Len() {
			q = last
		}
		q.dtype, q.entry, q.at, q.count = src.DType(), entry, at+int64(first*size), int64(n)
		copied := copy(m.data(), raw[first*size:][:n*size])
		h.request(m, rank, q, copied)
		if first+n == src.Len() {
			return nil
		}
	}
}

// Get implements symmetric.Region.
func (r *Region) Get(dst tensor.Buffer, rank int, at int64) error {
	return r.get("get", dst, rank, at, false)
}

// GetNBI implements symmetric.Region.
func (r *Region) GetNBI(dst tensor.Buffer, rank int, at int64) error {
	return r.get("get nbi", dst, rank, at, true)
}

func (r *Region) get(call string, dst tensor.Buffer, rank int, at int64, later bool) error {
	if err := r.enterBuffer(call, rank, at, dst); err != nil {
		return err
	}
	h, err := r.heap, error(nil)
	if inner := h.near[rank]; inner >= 0 {
		err = h.whole.Get(dst, inner, r.off+at)
	} else {
		err = h.getFar(rank, r.off+at, dst, symmetric.Strides{Count: dst.Len(), Region: 1, Buffer: 1}, later)
	}
	return r.done(call, rank, at, dst.Bytes(), err)
}

// getFar fetches elements from offset at of the heap, in pieces.
func (h *Heap) getFar(rank int, at int64, dst tensor.Buffer, s symmetric.Strides, later bool) error {
	b := &h.nbi
	if !later {
		b = h.cfg.Service.takeBatch()
	}
	size := dst.DType().Size()
	per := pieceBytes / size
	q := head{verb: verbGet, dtype: dst.DType(), stride: int64(s.Region)}
	if s.Region > 1 {
		q.verb = verbIGet
	}
	for first := 0; first < s.Count; first += per {
		n := min(per, s.Count-first)
		m, entry, err := h.reserve(rank, b)
		if err != nil {
			if !later {
				h.giveUp(b)
			}
			return err
		}
		e := &h.cfg.Service.entries[entry]
		e.dst = unsafe.Add(dst.Pointer(), first*s.Buffer*size)
		e.step, e.size, e.count = s.Buffer*size, size, n
		q.entry, q.at, q.count = entry, at+int64(first*s.Region*size), int64(n)
		h.request(m, rank, q, 0)
	}
	if later {
		return nil
	}
	_, err := h.finish(b)
	return err
}

// IPut implements symmetric.Region.
func (r *Region) IPut(rank int, at int64, src tensor.Buffer, s symmetric.Strides) error {
	n, err := r.enterStrided("iput", rank, at, src, s)
	if err != nil {
		return err
	}
	h := r.heap
	if inner := h.near[rank]; inner >= 0 {
		err = h.whole.IPut(inner, r.off+at, src, s)
	} else {
		err = h.iputFar(rank, r.off+at, src, s)
	}
	return r.done("iput", rank, at, n, err)
}

// iputFar sends elements in pieces, in which they are consecutive.
func (h *Heap) iputFar(rank int, at int64, src tensor.Buffer, s symmetric.Strides) error {
	size := src.DType().Size()
	per := pieceBytes / size
	for first := 0; first < s.Count; first += per {
		n := min(per, s.Count-first)
		m, entry, err := h.reserve(rank, nil)
		if err != nil {
			return err
		}
		from := unsafe.Add(src.Pointer(), first*s.Buffer*size)
		hostheap.MoveStrided(unsafe.Pointer(unsafe.SliceData(m.data())), size, from, s.Buffer*size, n, size)
		h.request(m, rank, head{
			verb: verbIPut, dtype: src.DType(), entry: entry, at: at + int64(first*s.Region*size), count: int64(n), stride: int64(s.Region),
		}, n*size)
	}
	return nil
}

// IGet implements symmetric.Region.
func (r *Region) IGet(dst tensor.Buffer, rank int, at int64, s symmetric.Strides) error {
	n, err := r.enterStrided("iget", rank, at, dst, s)
	if err != nil {
		return err
	}
	h := r.heap
	if inner := h.near[rank]; inner >= 0 {
		err = h.whole.IGet(dst, inner, r.off+at, s)
	} else {
		err = h.getFar(rank, r.off+at, dst, s, false)
	}
	return r.done("iget", rank, at, n, err)
}

// PutWord implements symmetric.Region.
func (r *Region) PutWord(rank int, at int64, dt tensor.DType, bits uint64) error {
	n := int64(dt.Size())
	if n == 0 {
		return r.wrong("p", rank, at, 0, fmt.Errorf("%w: %v", dist.ErrDType, dt))
	}
	if err := r.enter("p", rank, at, n); err != nil {
		return err
	}
	h, err := r.heap, error(nil)
	if inner := h.near[rank]; inner >= 0 {
		err = h.whole.PutWord(inner, r.off+at, dt, bits)
	} else {
		err = h.tell(rank, head{verb: verbWord, dtype: dt, at: r.off + at, value: bits})
	}
	return r.done("p", rank, at, n, err)
}

// GetWord implements symmetric.Region.
func (r *Region) GetWord(rank int, at int64, dt tensor.DType) (uint64, error) {
	n := int64(dt.Size())
	if n == 0 {
		return 0, r.wrong("g", rank, at, 0, fmt.Errorf("%w: %v", dist.ErrDType, dt))
	}
	if err := r.enter("g", rank, at, n); err != nil {
		return 0, err
	}
	h, err := r.heap, error(nil)
	var bits uint64
	if inner := h.near[rank]; inner >= 0 {
		bits, err = h.whole.GetWord(inner, r.off+at, dt)
	} else {
		bits, err = h.fetch(rank, head{verb: verbFetch, dtype: dt, at: r.off + at})
	}
	return bits, r.done("g", rank, at, n, err)
}

// tell sends a request without data or answer.
func (h *Heap) tell(rank int, q head) error {
	m, entry, err := h.reserve(rank, nil)
	if err != nil {
		return err
	}
	q.entry = entry
	h.request(m, rank, q, 0)
	return nil
}

// fetch sends a request whose answer is a value.
func (h *Heap) fetch(rank int, q head) (uint64, error) {
	b := h.cfg.Service.takeBatch()
	m, entry, err := h.reserve(rank, b)
	if err != nil {
		h.giveUp(b)
		return 0, err
	}
	q.entry = entry
	h.request(m, rank, q, 0)
	return h.finish(b)
}

// giveUp gives a batch back without waiting for its answers.
func (h *Heap) giveUp(b *batch) {
	s := h.cfg.Service
	s.mu.Lock()
	defer s.mu.Unlock()
	s.abandon(b)
	s.batches = append(s.batches, b)
}

// read reads elements of a near part for an answer.
func (h *Heap) read(q *head, rank int, out []byte) (int, error) {
	b, err := elements(out, q.count, q.dtype)
	if err != nil {
		return 0, err
	}
	if q.verb == verbGet {
		return int(b.Bytes()), h.whole.Get(b, rank, q.at)
	}
	return int(b.Bytes()), h.whole.IGet(b, rank, q.at, dense(q))
}

// write writes the elements of a request to a near part.
func (h *Heap) write(q *head, rank int, data []byte) error {
	var b tensor.Buffer
	b, err := elements(data, q.count, q.dtype)
	if err != nil {
		return err
	}
	switch q.verb {
	case verbPut:
		return h.whole.Put(rank, q.at, b)
	case verbIPut:
		return h.whole.IPut(rank, q.at, b, dense(q))
	case verbPutSignal:
		return h.whole.PutSignal(rank, q.at, b, symmetric.Signal{
			In: h.whole, At: q.stride, Op: symmetric.SignalOp(q.op), Value: q.value,
		})
	}
	return fmt.Errorf("%w: unknown %v", dist.ErrInvalid, q.verb)
}
