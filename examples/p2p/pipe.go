package main

import (
	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

// signalBytes is the size of a signal, an unsigned 64-bit number.
const signalBytes = 8

// pipe is the memory of a pair: a sender (an even rank) and its receiver (the next rank). Symmetric
// memory exists on both at the same offsets, though each uses only its side.
type pipe struct {
	settings
	w        *dist.World
	heap     symmetric.Heap
	data     symmetric.Region // the receiver's slots
	news     symmetric.Region // a signal per slot: number of messages sent, including the newest one in it
	acks     symmetric.Region // the sender's signal: number of messages that the receiver has finished
	slot     [][]uint64       // the receiver's slots, as words
	made     []uint64         // the sender's current message, in private memory
	sum      uint64           // of message 0
	distinct bool             // all messages differ; else all are message 0
}

// heapBytes returns the heap size that a pipe needs.
func (s *settings) heapBytes() int64 {
	return s.bytes*int64(s.slots) + signalBytes*int64(s.slots) + 4*symmetric.Alignment
}

// newPipe allocates a pipe; its memory is zero.
//
// Collective: all ranks. Owns: the caller calls free.
func newPipe(w *dist.World, heap symmetric.Heap, s settings, distinct bool) (*pipe, error) {
	p := &pipe{settings: s, w: w, heap: heap, distinct: distinct, made: make([]uint64, s.bytes/wordBytes)}
	for _, x := range []struct {
		region *symmetric.Region
		bytes  int64
	}{{&p.data, s.bytes * int64(s.slots)}, {&p.news, signalBytes * int64(s.slots)}, {&p.acks, signalBytes}} {
		var err error
		if *x.region, err = heap.Alloc(x.bytes); err != nil {
			return nil, err
		}
	}
	words, err := symmetric.View[uint64](p.data)
	if err != nil {
		return nil, err
	}
	for i := range s.slots {
		p.slot = append(p.slot, words[i*len(p.made):][:len(p.made)])
	}
	fill(p.made, 0)
	p.sum = sum(p.made)
	return p, nil
}

// free frees the memory.
//
// Collective: all ranks.
func (p *pipe) free() error {
	for _, r := range []symmetric.Region{p.acks, p.news, p.data} {
		if err := p.heap.Free(r); err != nil {
			return err
		}
	}
	return nil
}

// sends reports whether this rank is the sender of its pair.
func (p *pipe) sends() bool { return p.w.Rank()%2 == 0 }

// peer returns the other rank of the pair.
func (p *pipe) peer() int { return p.w.Rank() ^ 1 }

// message returns message m, for the sender. The next call overwrites it.
func (p *pipe) message(m int) tensor.Buffer {
	if p.distinct {
		fill(p.made, m)
	}
	return tensor.Of(p.made)
}

// place returns the slot of message m and its offset in data.
func (p *pipe) place(m int) (slot int, at int64) {
	slot = m % p.slots
	return slot, int64(slot) * p.bytes
}

// arrived returns how many words of message m are wrong; m must be the newest in its slot. If all
// messages are the same, it compares only the sum, so that the time is that of the memory and not
// of computing word.
func (p *pipe) arrived(m int) int {
	slot, _ := p.place(m)
	if p.distinct {
		return differences(p.slot[slot], m)
	}
	if sum(p.slot[slot]) != p.sum {
		return len(p.slot[slot])
	}
	return 0
}
