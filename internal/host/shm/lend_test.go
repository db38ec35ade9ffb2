package shm

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

// blindLink is a link whose peers have no process that this rank could read.
type blindLink struct{ link }

func (blindLink) pid(int) int { return 0 }

// pairOf is two ranks whose chunks have 1 KiB.
func pairOf(t *testing.T) (a, b *Transport) {
	t.Helper()
	ends, err := Local(2, memoryOfTests(), Config{ChunkBytes: 1 << 10})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(ends[0].Close(), ends[1].Close()); err != nil {
			t.Error(err)
		}
	})
	return ends[0].(*worldTransport).Transport, ends[1].(*worldTransport).Transport
}

// swap lets both ranks send n bytes, and receive them, at once.
func swap(ranks [2]*Transport, src, dst [2]tensor.Buffer) error {
	var errs [2]error
	var wg sync.WaitGroup
	for r, tr := range ranks {
		wg.Go(func() {
			n := src[r].Len()
			errs[r] = tr.messages.exchange([]dist.Op{
				{Kind: dist.KindSend, Peer: 1 - r, Count: n, Src: src[r]},
				{Kind: dist.KindRecv, Peer: 1 - r, Count: n, Dst: dst[r]},
			})
			tr.wakeAll()
		})
	}
	wg.Wait()
	return errors.Join(errs[:]...)
}

// pattern is n bytes that differ from rank to rank and from call to call.
func patternOf(n, salt int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + i>>8 + salt)
	}
	return b
}

// A message that the ring cannot hold is one chunk of it, whatever memory it is in; a smaller one
// is copied through it.
func TestLargeMessagesAreReadFromTheirSource(t *testing.T) {
	a, b := pairOf(t)
	ranks := [2]*Transport{a, b}
	ring := a.ctl.ring
	var heaps [2]*Heap
	var errs [2]error
	var wg sync.WaitGroup
	for r, tr := range ranks {
		wg.Go(func() {
			h, err := tr.Heap(4 << 20)
			if errs[r] = err; err == nil {
				heaps[r] = h.(*Heap)
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		t.Fatal(err)
	}
	defer func() {
		for _, h := range heaps {
			if err := h.Close(); err != nil {
				t.Error(err)
			}
		}
	}()
	for _, c := range []struct{ bytes, chunks int }{
		{0, 1}, {1, 1}, {ring, 1}, {2 * ring, 2}, {2*ring + 1, 1}, {lentPiece + 13, 1}, {2*lentPiece + 5, 1},
	} {
		for _, private := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d B, private %v", c.bytes, private), func(t *testing.T) {
				var src, dst [2]tensor.Buffer
				for r := range ranks {
					from, to := make([]byte, c.bytes), make([]byte, c.bytes)
					if !private {
						from = heaps[r].parts[r][:c.bytes]
					}
					copy(from, patternOf(c.bytes, r))
					src[r], dst[r] = tensor.Of(from), tensor.Of(to)
				}
				before := atomic.LoadUint64(a.ctl.wrote(0, 1))
				if err := swap(ranks, src, dst); err != nil {
					t.Fatal(err)
				}
				if got := int(atomic.LoadUint64(a.ctl.wrote(0, 1)) - before); got != c.chunks {
					t.Errorf("%d chunks, want %d", got, c.chunks)
				}
				for r := range ranks {
					if string(dst[r].Raw()) != string(patternOf(c.bytes, 1-r)) {
						t.Errorf("rank %d received something else than rank %d sent", r, 1-r)
					}
				}
			})
		}
	}
}

// A receiver that cannot read the sender's memory gets chunks, and is not asked again.
func TestReceiverThatCannotReadTheSourceGetsChunks(t *testing.T) {
	a, b := pairOf(t)
	b.node.link = blindLink{b.node.link}
	n := 5*a.ctl.ring + 3
	for i, want := range []uint64{1 + 6, 6} { // one that is refused, and the chunks
		before := atomic.LoadUint64(a.ctl.wrote(0, 1))
		dst := [2]tensor.Buffer{tensor.Of(make([]byte, n)), tensor.Of(make([]byte, n))}
		src := [2]tensor.Buffer{tensor.Of(patternOf(n, i)), tensor.Of(patternOf(n, i+9))}
		if err := swap([2]*Transport{a, b}, src, dst); err != nil {
			t.Fatal(err)
		}
		if got := atomic.LoadUint64(a.ctl.wrote(0, 1)) - before; got != want {
			t.Errorf("message %d: %d chunks, want %d", i, got, want)
		}
		for r := range 2 {
			if string(dst[r].Raw()) != string(src[1-r].Raw()) {
				t.Errorf("message %d: rank %d received something else", i, r)
			}
		}
	}
	if !a.messages.refuses[1] || b.messages.refuses[0] {
		t.Errorf("rank 0 knows of refusals %v, rank 1 of %v", a.messages.refuses, b.messages.refuses)
	}
}

// Of a group that breaks while a message is read, its receiver has an error: the sender may have
// gone on.
func TestBrokenGroupDoesNotReceiveALentMessage(t *testing.T) {
	a, b := pairOf(t)
	n := 5 * a.ctl.ring
	send := dist.Op{Kind: dist.KindSend, Peer: 1, Count: n, Src: tensor.Of(make([]byte, n))}
	if !a.messages.push(&message{op: &send}) {
		t.Fatal("no room for a message")
	}
	a.ctl.fail(abortUser, 0, "enough")
	recv := dist.Op{Kind: dist.KindRecv, Peer: 0, Count: n, Dst: tensor.Of(make([]byte, n))}
	m := message{op: &recv}
	if _, err := b.messages.pop(&m); !errors.Is(err, dist.ErrAborted) || m.done() {
		t.Errorf("received, with %v", err)
	}
}

// A lent message that the receiver expects otherwise is an error of both, before any element moves.
func TestLentMessageOfAnotherLengthIsAnError(t *testing.T) {
	a, b := pairOf(t)
	n := 5 * a.ctl.ring
	send := dist.Op{Kind: dist.KindSend, Peer: 1, Count: n, Src: tensor.Of(patternOf(n, 1))}
	if !a.messages.push(&message{op: &send}) {
		t.Fatal("no room for a message")
	}
	got := make([]byte, n+1)
	recv := dist.Op{Kind: dist.KindRecv, Peer: 0, Count: n + 1, Dst: tensor.Of(got)}
	if _, err := b.messages.pop(&message{op: &recv}); !errors.Is(err, dist.ErrMismatch) {
		t.Errorf("received, with %v", err)
	}
	if string(got) != string(make([]byte, n+1)) {
		t.Error("elements have moved")
	}
	if err := a.ctl.aborted(); !errors.Is(err, dist.ErrMismatch) {
		t.Errorf("the sender has %v", err)
	}
}
