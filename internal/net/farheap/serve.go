package farheap

import (
	"errors"
	"fmt"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/host/hostheap"
	"github.com/symgrad/symgrad/symmetric"
)

// handle applies a request of process from, and answers it if it has to. It reports false, without
// any effect, if no buffer is free for the answer.
func (s *Service) handle(from int, message []byte) bool {
	m := s.free(&s.replies)
	if m == nil {
		return false
	}
	var q head
	p := &s.peers[from]
	if p.gone != "" || !q.decode(message) {
		return true
	}
	p.handled++
	a := head{verb: verbAnswer, of: q.verb, heap: q.heap, target: q.target, entry: q.entry}
	n, err := s.apply(&q, &a, message[headBytes:], m.data())
	if err == nil && !q.verb.answered() && p.handled-p.told < window/2 {
		return true
	}
	if err != nil {
		var access *symmetric.AccessError
		if errors.As(err, &access) {
			err = access.Err // its ranks are those of the near heap
		}
		a.op, n = verdictOf(err), copy(m.data(), err.Error())
	}
	p.told = p.handled
	a.at, a.count = int64(p.handled), int64(n)
	s.send(&s.replies, m, from, s.tag+1, &a, n)
	return true
}

// apply does a request on the near heap. Returns: the bytes of the answer in out; a value is in a.
func (s *Service) apply(q, a *head, data, out []byte) (int, error) {
	if q.verb == verbFlush {
		return 0, nil
	}
	h := s.heaps[q.heap]
	if h == nil {
		return 0, hostheap.ErrClosed
	}
	if int64(q.target) >= int64(len(h.near)) || h.near[q.target] < 0 {
		return 0, fmt.Errorf("%w: rank %d is not on this host", dist.ErrRank, q.target)
	}
	rank, r := h.near[q.target], h.whole
	switch q.verb {
	case verbWord:
		return 0, r.PutWord(rank, q.at, q.dtype, q.value)
	case verbSignal:
		return 0, r.Signal(rank, q.at, symmetric.SignalOp(q.op), q.value)
	case verbFetch:
		v, err := r.GetWord(rank, q.at, q.dtype)
		a.value = v
		return 0, err
	case verbAtomic:
		v, err := r.Atomic(rank, q.at, q.atomicOf())
		a.value = v
		return 0, err
	case verbGet, verbIGet:
		return h.read(q, rank, out)
	}
	return 0, h.write(q, rank, data)
}

// dense is the strides of a request: its elements are consecutive in the message.
func dense(q *head) symmetric.Strides {
	return symmetric.Strides{Count: int(q.count), Region: int(q.stride), Buffer: 1}
}
