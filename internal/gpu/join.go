package gpu

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
)

// streamOf returns the stream and the ticket of w; nil for Work of no GPU stream.
func streamOf(w dist.Work) (*Stream, uint64) {
	q, n := w.Ticket()
	s, _ := q.(*Stream)
	return s, n
}

// Join implements dist.Stream. Work of a GPU is joined by an event on the devices. For Work of the
// host the stream waits for a word of mapped memory. A goroutine of the stream sets the word when w
// is done.
//
// Errors: ErrClosed; those of the driver. An error of w is not reported: its owner gets it.
func (s *Stream) Join(w dist.Work) error {
	if err := s.usable(); err != nil {
		return err
	}
	other, n := streamOf(w)
	switch {
	case other == s:
		return nil
	case other != nil:
		return other.precede(s, n)
	case w.Done():
		return nil
	}
	return s.joinHost(w)
}

// precede makes later work on stream later wait for ticket n of s.
func (s *Stream) precede(later *Stream, n uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n <= s.done || s.closed.Load() || s.at(n).err != nil {
		return nil
	}
	k := 0
	for k < len(s.marks) && s.marks[k].ticket < n {
		k++
	}
	if k == len(s.marks) {
		if err := s.mark(s.last); err != nil {
			return err
		}
		k = len(s.marks) - 1
	}
	if err := later.dev.Enter(); err != nil {
		return err
	}
	defer later.dev.Leave()
	return later.cu.Wait(s.marks[k].event) // the lock prevents a new record of the event before this
}

// after makes later work on s wait, by ev, for all work on before. It needs no locks.
func (s *Stream) after(before *Stream, ev *cuda.Event) error {
	if before.closed.Load() {
		return nil // Close has waited for its work
	}
	return errors.Join(before.cu.Record(ev), s.cu.Wait(ev))
}

// joiner is the host's part of joins: works in order, and the word that counts those that are done.
type joiner struct {
	memory *cuda.HostMemory
	word   *uint64

	mu     sync.Mutex
	added  sync.Cond
	works  []dist.Work
	count  uint64 // added so far
	ended  bool
	exited chan struct{}
}

func (s *Stream) joinHost(w dist.Work) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(); err != nil {
		return err
	}
	if err := s.dev.Enter(); err != nil {
		return err
	}
	defer s.dev.Leave()
	if s.joins == nil {
		memory, err := s.dev.AllocHost(64)
		if err != nil {
			return fmt.Errorf("join on %v: %w", s.Device(), err)
		}
		j := &joiner{memory: memory, word: (*uint64)(unsafe.Pointer(unsafe.SliceData(memory.Bytes()))), exited: make(chan struct{})}
		j.added.L = &j.mu
		*j.word = 0
		s.joins = j
		go j.work()
	}
	return s.joins.add(s.cu, w)
}

// add queues the wait for w on cu before the goroutine gets w, so that the stream waits only for a
// count that will be reached.
func (j *joiner) add(cu *cuda.Stream, w dist.Work) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := cu.Wait64(j.memory.Device(), j.count+1); err != nil {
		return err
	}
	j.count++
	j.works = append(j.works, w)
	j.added.Signal()
	return nil
}

func (j *joiner) work() {
	defer close(j.exited)
	var done uint64
	j.mu.Lock()
	defer j.mu.Unlock()
	for {
		for len(j.works) == 0 {
			if j.ended {
				return
			}
			j.added.Wait()
		}
		w := j.works[0]
		j.works = j.works[1:]
		j.mu.Unlock()
		_ = w.Wait() // its owner reports the error
		done++
		atomic.StoreUint64(j.word, done)
		j.mu.Lock()
	}
}

// close waits for the joined works and frees the word, unless a stuck stream still uses it.
func (j *joiner) close(stuck bool) error {
	j.mu.Lock()
	j.ended = true
	j.added.Signal()
	j.mu.Unlock()
	<-j.exited
	if stuck {
		return nil
	}
	return j.memory.Close()
}
