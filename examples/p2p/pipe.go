package main

import (
	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

// signalBytes is the size of a signal, an unsigned 64-bit number.
const signalBytes = 8

// pipe is the memory of one pair, a sender (an even rank) and its receiver (the next one).
// Symmetric memory is on both, and on both at the same place, though each uses only its side of it.
type pipe struct {
	settings
	w        *dist.World
	heap     symmetric.Heap
	data     symmetric.Region // the receiver's slots
	news     symmetric.Region // a signal for each slot: how many messages had been sent with the newest one in it
	acks     symmetric.Region // the sender's signal: how many messages the receiver is done with
	slot     [][]uint64       // the receiver's slots, as words
	made     []uint64         // the message that the sender sends, in private memory
	sum      uint64           // of message 0
	distinct bool             // all messages differ; else all are message 0
}

// heapBytes is the size of a heap that has room for a pipe.
func (s *settings) heapBytes() int64 {
	return s.bytes*int64(s.slots) + signalBytes*int64(s.slots) + 4*symmetric.Alignment
}

// newPipe allocates a pipe; its memory is all 0.
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

// free gives the memory back.
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

// peer is the other rank of the pair.
func (p *pipe) peer() int { return p.w.Rank() ^ 1 }

// message is message m, for the sender. The next call overwrites it.
func (p *pipe) message(m int) tensor.Buffer {
	if p.distinct {
		fill(p.made, m)
	}
	return tensor.Of(p.made)
}

// place is where message m goes: its slot, and where that begins in data.
func (p *pipe) place(m int) (slot int, at int64) {
	slot = m % p.slots
	return slot, int64(slot) * p.bytes
}

// arrived is how many words of message m are wrong, when it has just arrived. The sum of a message
// that is always the same stands for its words: then the clock shows the memory, and not the
// arithmetic of word.
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
