package gpu

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

type ledgerLayout struct{ ring, messages, bytes int }

func layoutFor(n int) ledgerLayout {
	var l ledgerLayout
	l.ring = (countersAt + n*counterBytes + 511) &^ 511
	l.messages = l.ring + ringDepth*entryBytes
	l.bytes = l.messages + 2*n*messageDepth*messageBytes
	return l
}

// newLedger allocates the region.
//
// Collective: all ranks of control. Errors: those of its Heap and Alloc.
func newLedger(control *dist.Group, compare bool, limit time.Duration) (*ledger, error) {
	n := control.Size()
	p := &ledger{
		control: control, rank: control.Rank(), size: n, compare: compare, limit: limit, layout: layoutFor(n),
		sent: make([]uint64, n), received: make([]uint64, n), parts: make([]unsafe.Pointer, n),
	}
	member := MemberOf(control, nil)
	for r := range n {
		if member.Near(r) {
			p.near = append(p.near, r)
		}
	}
	p.home = p.near[0]
	p.host = control
	if member.Hosts != nil {
		var err error
		if p.host, err = control.Split(member.Hosts[p.rank], p.rank); err != nil {
			return nil, fmt.Errorf("ledger: ranks of this host: %w", err)
		}
		p.far = newFar(p, control.Notifier(), member.Hosts)
	}
	if err := p.allocate(); err != nil {
		return nil, fmt.Errorf("ledger: %w", err)
	}
	if p.far != nil {
		p.far.notes.OnNote(p.far.deposit)
	}
	if err := finish(control.Blocking().Barrier()); err != nil { // no rank breaks the group before all can see why
		return nil, errors.Join(fmt.Errorf("ledger: %w", err), p.close())
	}
	return p, nil
}

// allocate allocates the region of the ranks of this host. The parts of ranks of
// other hosts are copies, which the ranks of this host keep in turns.
func (p *ledger) allocate() error {
	away := 0
	for r := range p.parts {
		if !slices.Contains(p.near, r) {
			away++
		}
	}
	bytes := int64(p.layout.bytes) * int64(1+(away+len(p.near)-1)/len(p.near))
	var err error
	if p.heap, err = p.host.Heap(bytes + symmetric.MaxAlignment); err != nil {
		return err
	}
	if p.region, err = p.heap.Alloc(bytes); err != nil {
		return errors.Join(err, p.heap.Close())
	}
	bases := make([]unsafe.Pointer, len(p.near))
	for i, r := range p.near {
		b, err := p.region.Peer(i)
		if err == nil && b.Device() != tensor.Host {
			err = fmt.Errorf("%w: the control group is on %v, not on the host", dist.ErrDevice, b.Device())
		}
		if err != nil {
			return errors.Join(err, p.heap.Close())
		}
		bases[i], p.parts[r] = b.Pointer(), b.Pointer()
	}
	away = 0
	for r := range p.parts {
		if p.parts[r] == nil {
			i := away % len(p.near)
			p.parts[r] = unsafe.Add(bases[i], (1+away/len(p.near))*p.layout.bytes)
			away++
		}
	}
	return nil
}

func (p *ledger) word(rank, off int) *uint64 { return (*uint64)(unsafe.Add(p.parts[rank], off)) }

func (p *ledger) load(rank, off int) uint64 { return atomic.LoadUint64(p.word(rank, off)) }

// entry returns the slot in which rank announces round.
func (p *ledger) entry(rank int, round uint64) *[entryBytes / 8]uint64 {
	off := p.layout.ring + int(round%ringDepth)*entryBytes
	return (*[entryBytes / 8]uint64)(unsafe.Add(p.parts[rank], off))
}

// message returns the slot in which rank announces message k of its channel with peer.
func (p *ledger) message(rank, peer int, out bool, k uint64) *[messageBytes / 8]uint64 {
	ring := 2 * peer
	if !out {
		ring++
	}
	off := p.layout.messages + (ring*messageDepth+int(k%messageDepth))*messageBytes
	return (*[messageBytes / 8]uint64)(unsafe.Add(p.parts[rank], off))
}

// counter returns the word in which rank counts the messages it has announced for peer.
func (p *ledger) counter(rank, peer int, out bool) *uint64 {
	off := countersAt + peer*counterBytes + counterRecvd
	if out {
		off = countersAt + peer*counterBytes + counterSent
	}
	return p.word(rank, off)
}
