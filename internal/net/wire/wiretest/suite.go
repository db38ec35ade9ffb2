// Package wiretest is the test suite of wires.
package wiretest

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/symgrad/symgrad/internal/net/wire"
)

// Tags of the suite.
const (
	tagReady uint32 = iota + 1
	tagData
	tagBack
	tagAny
	tagOther
)

// patience is the longest wait of a check.
const patience = time.Minute

// Run runs the suite as one process of w, at the same time as all others. It leaves the wire
// usable.
//
// Collective: all processes of w, at least 2. Errors: of the first check that fails on this one.
func Run(w wire.Wire) error {
	fits := fitting{w}
	for _, c := range []struct {
		name string
		run  func(s *suite) error
		w    wire.Wire
	}{
		{"sizes", (*suite).sizes, w},
		{"order", (*suite).order, w},
		{"tags", (*suite).tags, w},
		{"any peer", (*suite).anyPeer, w},
		{"both ways", (*suite).bothWays, w},
		{"truncated", (*suite).truncated, w},
		{"cancel", (*suite).cancel, w},
		{"threads", (*suite).threads, w},
		{"sizes that fit", (*suite).sizes, fits},
		{"order of messages that fit", (*suite).order, fits},
		{"tags of messages that fit", (*suite).tags, fits},
		{"both ways with messages that fit", (*suite).bothWays, fits},
		{"cancel of a receive that fits", (*suite).cancel, fits},
		{"threads with messages that fit", (*suite).threads, fits},
	} {
		s := &suite{w: c.w, rank: w.Info().Rank, size: w.Info().Size}
		if err := s.meet(); err != nil {
			return fmt.Errorf("before %s: %w", c.name, err)
		}
		if err := c.run(s); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
	}
	return (&suite{w: w, rank: w.Info().Rank, size: w.Info().Size}).meet()
}

// fitting is a wire whose messages all fit.
type fitting struct{ wire.Wire }

func (f fitting) Send(r *wire.Request, peer int, tag uint32, data []byte) {
	r.Fits = true
	f.Wire.Send(r, peer, tag, data)
}

func (f fitting) Recv(r *wire.Request, peer int, tag uint32, buf []byte) {
	r.Fits = true
	f.Wire.Recv(r, peer, tag, buf)
}

type suite struct {
	w          wire.Wire
	rank, size int
}

func (s *suite) wait(rs ...*wire.Request) error {
	end := time.Now().Add(patience)
	return wire.Wait(s.w, func() error {
		if time.Now().After(end) {
			return errors.New("timed out")
		}
		return nil
	}, rs...)
}

// meet is a barrier: all processes report to 0, which answers.
func (s *suite) meet() error {
	if s.rank != 0 {
		var out, in wire.Request
		s.w.Recv(&in, 0, tagReady, nil)
		s.w.Send(&out, 0, tagReady, nil)
		return s.wait(&out, &in)
	}
	rs := make([]*wire.Request, 0, 2*s.size)
	for p := 1; p < s.size; p++ {
		r := new(wire.Request)
		s.w.Recv(r, p, tagReady, nil)
		rs = append(rs, r)
	}
	if err := s.wait(rs...); err != nil {
		return err
	}
	for p := 1; p < s.size; p++ {
		r := new(wire.Request)
		s.w.Send(r, p, tagReady, nil)
		rs = append(rs, r)
	}
	return s.wait(rs...)
}

// pattern returns n bytes that differ for each pair and message. They repeat after 64 KiB, from
// where they are copied: the race detector is slow on single bytes.
func pattern(n, from, to, k int) []byte {
	const period = 64 << 10
	b := make([]byte, n)
	for i := range min(n, period) {
		b[i] = byte(i*7 + i>>8 + from*31 + to*57 + k*101)
	}
	for i := period; i < n; i *= 2 {
		copy(b[i:], b[:i])
	}
	return b
}

// sizes sends messages of many sizes around a ring.
func (s *suite) sizes() error {
	next, last := (s.rank+1)%s.size, (s.rank+s.size-1)%s.size
	for k, n := range []int{0, 1, 8, 63, 1 << 10, 8<<10 + 1, 64 << 10, 1<<20 + 3, 9 << 20} {
		out, buf := pattern(n, s.rank, next, k), make([]byte, n+8)
		var a, b wire.Request
		s.w.Recv(&b, last, tagData, buf)
		s.w.Send(&a, next, tagData, out)
		if err := s.wait(&a, &b); err != nil {
			return fmt.Errorf("%d bytes: %w", n, err)
		}
		from, got, _ := b.Result()
		if from != last || got != n || !bytes.Equal(buf[:n], pattern(n, last, s.rank, k)) || !bytes.Equal(buf[n:], make([]byte, 8)) {
			return fmt.Errorf("%d bytes: got %d of process %d, or the wrong ones", n, got, from)
		}
	}
	return nil
}

// order sends messages of alternating sizes with one tag before the receives exist.
func (s *suite) order() error {
	const count = 40
	size := func(k int) int { return []int{3, 20 << 10, 100, 300 << 10}[k%4] }
	next, last := (s.rank+1)%s.size, (s.rank+s.size-1)%s.size
	out := make([]*wire.Request, count)
	for k := range out {
		out[k] = new(wire.Request)
		s.w.Send(out[k], next, tagData, pattern(size(k), s.rank, next, k))
	}
	for k := range count {
		var r wire.Request
		buf := make([]byte, size(k))
		s.w.Recv(&r, last, tagData, buf)
		if err := s.wait(&r); err != nil {
			return err
		}
		if _, n, _ := r.Result(); n != len(buf) || !bytes.Equal(buf, pattern(n, last, s.rank, k)) {
			return fmt.Errorf("message %d is another one of %d bytes", k, n)
		}
	}
	return s.wait(out...)
}

// tags receives messages in another order than they were sent.
func (s *suite) tags() error {
	next, last := (s.rank+1)%s.size, (s.rank+s.size-1)%s.size
	const n = 50 << 10
	high := s.w.Info().Tags - 1
	var a, b, c, d wire.Request
	s.w.Send(&a, next, tagData, pattern(n, s.rank, next, 1))
	s.w.Send(&b, next, high, pattern(n, s.rank, next, 2))
	second, first := make([]byte, n), make([]byte, n)
	s.w.Recv(&c, last, high, second)
	if err := s.wait(&c); err != nil {
		return err
	}
	s.w.Recv(&d, last, tagData, first)
	if err := s.wait(&a, &b, &d); err != nil {
		return err
	}
	if !bytes.Equal(first, pattern(n, last, s.rank, 1)) || !bytes.Equal(second, pattern(n, last, s.rank, 2)) {
		return errors.New("the messages were mixed up")
	}
	return nil
}

// anyPeer receives one message of each process, in any order.
func (s *suite) anyPeer() error {
	for round := range 10 {
		if s.rank != 0 {
			var r wire.Request
			s.w.Send(&r, 0, tagAny, pattern(24, s.rank, 0, round))
			if err := s.wait(&r); err != nil {
				return err
			}
		} else {
			seen := map[int]bool{}
			for range s.size - 1 {
				var r wire.Request
				buf := make([]byte, 24)
				s.w.Recv(&r, wire.AnyPeer, tagAny, buf)
				if err := s.wait(&r); err != nil {
					return err
				}
				from, n, _ := r.Result()
				if seen[from] || n != 24 || !bytes.Equal(buf, pattern(24, from, 0, round)) {
					return fmt.Errorf("round %d: %d bytes of process %d, or the wrong ones", round, n, from)
				}
				seen[from] = true
			}
		}
		if err := s.meet(); err != nil {
			return err
		}
	}
	return nil
}

// bothWays exchanges large messages of every pair at once.
func (s *suite) bothWays() error {
	const n = 3<<20 + 5
	var rs []*wire.Request
	bufs := make([][]byte, s.size)
	for p := range s.size {
		if p == s.rank {
			continue
		}
		in, out := new(wire.Request), new(wire.Request)
		bufs[p] = make([]byte, n)
		s.w.Send(out, p, tagBack, pattern(n, s.rank, p, 0))
		s.w.Recv(in, p, tagBack, bufs[p])
		rs = append(rs, in, out)
	}
	if err := s.wait(rs...); err != nil {
		return err
	}
	for p, b := range bufs {
		if p != s.rank && !bytes.Equal(b, pattern(n, p, s.rank, 0)) {
			return fmt.Errorf("wrong bytes of process %d", p)
		}
	}
	return nil
}

// truncated receives messages that are longer than the buffer, then a right one.
func (s *suite) truncated() error {
	next, last := (s.rank+1)%s.size, (s.rank+s.size-1)%s.size
	for _, n := range []int{100, 200 << 10} {
		var a, b, c, d wire.Request
		s.w.Send(&a, next, tagData, pattern(n, s.rank, next, 0))
		buf := make([]byte, n/2+16)
		s.w.Recv(&b, last, tagData, buf[:n/2])
		if err := s.wait(&b); !errors.Is(err, wire.ErrTruncated) {
			return fmt.Errorf("%d bytes into %d: %v, want ErrTruncated", n, n/2, err)
		}
		if !bytes.Equal(buf[n/2:], make([]byte, 16)) {
			return errors.New("the message was written past its buffer")
		}
		s.w.Send(&c, next, tagOther, pattern(8, s.rank, next, 0))
		s.w.Recv(&d, last, tagOther, buf)
		if err := s.wait(&c, &d); err != nil {
			return err
		}
		end := time.Now().Add(patience) // the long send ends too, with or without an error
		for !a.Done() && time.Now().Before(end) {
			s.w.Progress()
		}
		if !a.Done() {
			return errors.New("the send of a truncated message does not end")
		}
	}
	return nil
}

// cancel cancels a receive, and then receives with the same tag.
func (s *suite) cancel() error {
	next, last := (s.rank+1)%s.size, (s.rank+s.size-1)%s.size
	var r wire.Request
	s.w.Recv(&r, last, tagOther, make([]byte, 64))
	s.w.Cancel(&r)
	if err := s.wait(&r); !errors.Is(err, wire.ErrCanceled) {
		return fmt.Errorf("canceled receive: %v, want ErrCanceled", err)
	}
	if err := s.meet(); err != nil {
		return err
	}
	var a, b wire.Request
	buf := make([]byte, 64)
	s.w.Recv(&b, last, tagOther, buf)
	s.w.Send(&a, next, tagOther, pattern(64, s.rank, next, 9))
	if err := s.wait(&a, &b); err != nil {
		return err
	}
	if !bytes.Equal(buf, pattern(64, last, s.rank, 9)) {
		return errors.New("a message went to a canceled receive")
	}
	return nil
}

// threads uses the wire from several goroutines at once, each with its tag.
func (s *suite) threads() error {
	next, last := (s.rank+1)%s.size, (s.rank+s.size-1)%s.size
	var all sync.WaitGroup
	errs := make([]error, 4)
	for g := range errs {
		all.Go(func() {
			for k := range 25 {
				n := 1 + k*k*37*(g+1)
				buf := make([]byte, n)
				var a, b wire.Request
				s.w.Send(&a, next, 100+uint32(g), pattern(n, s.rank, next, k+g))
				s.w.Recv(&b, last, 100+uint32(g), buf)
				if errs[g] = s.wait(&a, &b); errs[g] != nil {
					return
				}
				if !bytes.Equal(buf, pattern(n, last, s.rank, k+g)) {
					errs[g] = fmt.Errorf("goroutine %d, message %d: wrong bytes", g, k)
					return
				}
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}
