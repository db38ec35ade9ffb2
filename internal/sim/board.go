package sim

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

// killed is the cause of a rank's death by script.
const killed = "killed by script"

// board is the meeting place of the ranks of one group. The universe's lock guards it.
type board struct {
	u        *universe
	ranks    []int     // world rank of each rank of the group
	scripted bool      // faults apply: this is the world's group
	changed  sync.Cond // broadcast when a wait may be over
	broken   error     // permanent error of the group, or nil
	ends     []end     // by rank
	arrived  int       // ranks in the open meeting
	round    uint64    // meetings closed so far

	sigs    []dist.Signature // scratch of the meeting that closes
	scalars []uint64
	srcs    []tensor.Buffer
	path    []int  // scratch of the search for cycles
	seen    []bool // by rank, also for that search
}

// end is one rank's state on a board.
type end struct {
	now     activity
	last    uint64 // number of the newest finished operation
	closed  bool
	waiting wait
	expires time.Time   // end of the current wait
	timer   *time.Timer // calls board.expire

	arrived bool // in the open meeting
	round   uint64
	deposit deposit
	result  result
	err     error // of the meeting, if the group is not broken

	posts []post // of the current exchange
	left  int    // posts not done
	after []int  // ranks that a delay waits for
}

// activity is the current call of a rank; the zero activity is none.
type activity struct {
	kind    dist.Kind
	peer    int // of a send or receive, else -1
	seq     uint64
	batched bool   // a collective in group call seq
	note    string // effect of the script
}

// deposit is a rank's contribution to a meeting.
type deposit struct {
	op         *dist.Op // nil for a call without an Op
	sig        dist.Signature
	scalar     uint64  // of premulsum
	color, key int     // of split
	mem        *memory // of alloc and free
}

// result is a rank's result of a meeting without an Op.
type result struct {
	board *board // of split; nil for no color
	rank  int
	mem   *memory // of heap
	off   int64   // of alloc
}

// newBoard returns the board of the given world ranks. The lock is held, or no rank runs yet.
func (u *universe) newBoard(ranks []int) *board {
	n := len(ranks)
	b := &board{
		u: u, ranks: ranks, ends: make([]end, n),
		sigs: make([]dist.Signature, n), scalars: make([]uint64, n), srcs: make([]tensor.Buffer, n), path: make([]int, 0, n), seen: make([]bool, n),
	}
	b.changed.L = &u.mu
	u.boards = append(u.boards, b)
	return b
}

// fail breaks the group for good, unless it is already broken.
func (b *board) fail(err error) {
	if b.broken == nil {
		b.broken = err
	}
	b.changed.Broadcast()
}

// bury breaks the group if the dead world rank is in it.
func (b *board) bury(world int) {
	if r := slices.Index(b.ranks, world); r >= 0 {
		b.fail(&dist.RankError{Rank: r, How: killed})
	}
}

// abort breaks the group.
func (b *board) abort(rank int, cause error) {
	b.fail(fmt.Errorf("%w by rank %d: %w", dist.ErrAborted, rank, cause))
}

// leave records that a rank has closed its end; the last one removes the board.
func (b *board) leave(rank int) {
	b.ends[rank].closed = true
	b.changed.Broadcast()
	if slices.ContainsFunc(b.ends, func(e end) bool { return !e.closed }) {
		return
	}
	b.u.boards = slices.DeleteFunc(b.u.boards, func(o *board) bool { return o == b })
}

// begin records the next activity of a rank.
//
// Errors: the group is broken, or the rank has closed its end.
func (b *board) begin(rank int, now activity) error {
	if b.broken != nil {
		return b.broken
	}
	if b.ends[rank].closed {
		return dist.ErrClosed
	}
	b.ends[rank].now = now
	if b.scripted && len(b.u.faults) > 0 {
		b.u.begun[b.ranks[rank]] = max(now.seq, b.u.begun[b.ranks[rank]])
		b.changed.Broadcast() // for ranks that a delay holds
	}
	return nil
}

// finished records the end of a rank's activity; seq is 0 for a call without an Op.
func (b *board) finished(rank int, seq uint64) {
	e := &b.ends[rank]
	e.now = activity{}
	if seq > 0 {
		e.last = seq
	}
}

// meet adds a rank's deposit to the open meeting and waits until all ranks have arrived. The last
// one does the work for all.
func (b *board) meet(rank int, now activity, d deposit) (result, error) {
	e := &b.ends[rank]
	if err := b.begin(rank, now); err != nil {
		return result{}, err
	}
	e.deposit, e.result, e.err = d, result{}, nil
	e.arrived, e.round = true, b.round
	b.arrived++
	if b.arrived == len(b.ends) {
		b.closeMeeting()
	} else if err := b.await(rank, forMeeting); err != nil {
		return result{}, err
	}
	if e.round == b.round { // the meeting could not close
		return result{}, b.broken
	}
	e.deposit = deposit{} // drop the references
	return e.result, e.err
}

// closeMeeting compares the deposits, does the work and releases the ranks.
func (b *board) closeMeeting() {
	kind := b.ends[0].deposit.sig.Kind
	if err := b.compare(); err != nil {
		b.fail(err)
		return
	}
	if err := b.conclude(kind); err != nil {
		b.fail(fmt.Errorf("%w: %v: %w", dist.ErrAborted, kind, err))
		return
	}
	b.arrived = 0
	b.round++
	for r := range b.ends {
		b.ends[r].arrived = false
	}
	b.changed.Broadcast()
}

// conclude does the work of a meeting. A returned error breaks the group; an error that does not is
// stored in the ends.
func (b *board) conclude(kind dist.Kind) error {
	switch kind {
	case dist.KindSplit:
		b.split()
	case dist.KindHeap:
		return b.makeHeap()
	case dist.KindAlloc:
		b.alloc()
	case dist.KindFree:
		b.free()
	default:
		return b.move(kind)
	}
	return nil
}

// compare returns dist.ErrMismatch if the deposits of the ranks differ.
func (b *board) compare() error {
	for r := range b.ends {
		b.sigs[r] = b.ends[r].deposit.sig
	}
	if b.u.cfg.Unchecked && b.sigs[0].Kind < dist.KindSplit {
		return nil
	}
	if err := dist.Compare(b.sigs); err != nil {
		return err
	}
	first := b.ends[0].deposit.mem
	for r := range b.ends {
		if m := b.ends[r].deposit.mem; m != first {
			return fmt.Errorf("%w on the heap: rank 0 has %v in heap %d, rank %d in heap %d",
				dist.ErrMismatch, b.sigs[0].Kind, first.number, r, m.number)
		}
	}
	return nil
}

// split makes the boards of all colors, in ascending order, and gives every rank its own.
func (b *board) split() {
	members := make([]int, 0, len(b.ends))
	for r := range b.ends {
		if b.ends[r].deposit.color >= 0 {
			members = append(members, r)
		}
	}
	at := func(r int) *deposit { return &b.ends[r].deposit }
	slices.SortStableFunc(members, func(x, y int) int {
		return cmp.Or(cmp.Compare(at(x).color, at(y).color), cmp.Compare(at(x).key, at(y).key))
	})
	for len(members) > 0 {
		n := 1
		for n < len(members) && at(members[n]).color == at(members[0]).color {
			n++
		}
		world := make([]int, n)
		for i, r := range members[:n] {
			world[i] = b.ranks[r]
		}
		c := b.u.newBoard(world)
		for i, r := range members[:n] {
			b.ends[r].result = result{board: c, rank: i}
		}
		members = members[n:]
	}
}
