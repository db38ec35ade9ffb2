package shm

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/asym"
	"github.com/symgrad/symgrad/internal/ticks"
	"golang.org/x/sys/unix"
)

// A wait spins, then yields the core, then sleeps on a futex. The counts were found by measurement.
// An oversubscribed rank that spins long keeps the core from the rank it waits for, and an
// operation during a computation keeps it from the computation. A yield takes longer than most
// waits of a caller that has nothing else to do.
const (
	spinsCaller = 40_000 // ranks <= cores, and the operation runs on its caller; about ten microseconds
	spinsAlone  = 2000   // ranks <= cores
	spinsShared = 10
	spinsStaged = 4000 // for the slot that a root on another core is filling
	yields      = 200

	// With more than manyRanks ranks per core, a wait is seldom over within 200 yields, and each
	// yield may run another waiting rank. A token passed around 64 ranks on two cores takes 36
	// context switches per hop with 200 yields, and 6 with few. Every eighth yield is one of the Go
	// scheduler, which wakes idle threads.
	manyRanks  = 4
	yieldsMany = 7
)

// crowded reports whether ranks share cores, according to this rank's count of cores.
func (t *Transport) crowded() bool { return t.spins == spinsShared }

// stalls is called when the running operation has to wait. Other goroutines may then use the group,
// and peers can see its state.
func (t *Transport) stalls() {
	t.op.Blocks()
	t.wakeAll()
	peer := -1
	if t.op.Kind.PointToPoint() {
		peer = t.op.Peer
	}
	t.ctl.busy(t.rank, t.op.Kind, peer, t.op.Seq)
	since, until := t.ctl.worked(t.rank)
	asym.Store(since, uint64(t.resumed))
	asym.Store(until, uint64(ticks.Now()))
}

// sleeper is the state of a wait after its spin.
type sleeper struct {
	turns    int
	since    time.Time
	lastLook time.Time
}

// newSleeper returns the state of a wait after its spin. It yields first, unless other processes
// want the cores.
func (t *Transport) newSleeper() sleeper {
	if t.sleepy == 0 {
		return sleeper{}
	}
	t.sleepy--
	return sleeper{turns: t.node.yields}
}

// patience returns the number of spins of a wait before it yields.
func (t *Transport) patience() int {
	switch {
	case !t.eager:
	case !t.crowded():
		return spinsCaller
	case t.op.Kind == dist.KindBroadcast && t.op.Memo>>planBytes <= stageBroadcast:
		return spinsStaged
	}
	return t.spins
}

// await returns when the count in word, which peer writes, has reached want.
func (t *Transport) await(word *uint64, want uint64, peer int) error {
	for range t.patience() {
		if atomic.LoadUint64(word)&roundMask >= want {
			return nil
		}
	}
	t.stalls()
	t.waitsFor, t.wait.word, t.wait.want = peer, word, want
	defer func() {
		t.retract()
		t.waitsFor, t.wait.word, t.resumed = -1, nil, ticks.Now()
	}()
	s := t.newSleeper()
	for {
		seen := atomic.LoadUint64(word)
		if seen&roundMask >= want {
			return nil
		}
		err := t.rest(&s, word, seen, peer)
		if err != nil && atomic.LoadUint64(word)&roundMask < want {
			return err
		} // else the awaited store came first, and a peer that also has it broke the group later
	}
}

// rest is one turn of a wait on word, which held seen: it yields or sleeps, then checks for reasons
// to give up. peer is the awaited rank, or -1 for several.
func (t *Transport) rest(s *sleeper, word *uint64, seen uint64, peer int) error {
	s.turns++
	switch {
	case s.turns >= t.node.yields:
		futexWait(word, seen, t.node.poll, t.eager && t.node.holds)
	case s.turns%8 == 0:
		runtime.Gosched()
		return nil
	default:
		if t.yieldsLong() {
			s.turns = t.node.yields
		}
		return nil
	}
	if err := t.ctl.aborted(); err != nil {
		return err
	}
	if err := t.closedBy(peer, word, seen); err != nil {
		return err
	}
	now := time.Now()
	if s.since.IsZero() {
		s.since, s.lastLook = now, now
	}
	if now.Sub(s.lastLook) > lookAround {
		s.lastLook = now
		if err := t.deadlock(); err != nil {
			return err
		}
	}
	if d := t.node.cfg.StepTimeout; now.Sub(s.since) > d {
		text := fmt.Sprintf("after %v rank %d still waits: %s", d, t.rank, t.whereabouts())
		t.ctl.fail(abortTimeout, t.rank, text)
		return t.ctl.aborted()
	}
	return nil
}

// yieldsLong yields once, and reports whether that took so long that the next waits should sleep.
// The number of these waits doubles with each repetition, because one long time slice means little.
// If ranks share cores, time in which peers worked does not count.
func (t *Transport) yieldsLong() bool {
	away := yield()
	if away <= longYield+t.tenure() || t.crowded() && t.peersWorked(away) > away/2 {
		if t.calm++; t.calm == calmYields {
			t.dozes = 0
		}
		return false
	}
	t.calm = 0
	t.dozes = min(max(2*t.dozes, fewDozes), t.node.sleepy)
	t.sleepy = t.dozes
	return true
}

// peersWorked returns the sum, over the other ranks, of their working time within the last ticks.
func (t *Transport) peersWorked(last int64) int64 {
	end, total := ticks.Now(), int64(0)
	begin := end - last
	for r := range t.size {
		if r != t.rank {
			since, until := t.ctl.worked(r)
			total += max(0, min(int64(atomic.LoadUint64(until)), end)-max(int64(atomic.LoadUint64(since)), begin))
		}
	}
	return total
}

// yield yields the core and returns the ticks until it ran again. A process that keeps the core for
// a time slice would do so at the next yield too, while a woken sleeper soon gets a core.
func yield() int64 {
	begin := ticks.Now()
	_, _, _ = syscall.RawSyscall(syscall.SYS_SCHED_YIELD, 0, 0, 0)
	return ticks.Now() - begin
}

// tenure returns the ticks that a rank may reasonably keep the core for its part of the running
// operation: one per byte.
func (t *Transport) tenure() int64 {
	n := int64(t.op.Memo >> planBytes)
	if t.op.Kind == dist.KindAllGather || t.op.Kind == dist.KindGather {
		n *= int64(t.size)
	}
	return n
}

// Number of waits that skip yields after a long one. Sleeping goroutine ranks delay the other ranks
// of their process for a while.
const (
	sleepyWaits  = 200
	sleepyInside = 30
	fewDozes     = 16
	calmYields   = 20 // short yields in a row, after which a long one counts as the first
)

// longYield is some hundreds of microseconds in ticks. Ranks that wait for each other release the
// core within a few, or after their part of a large operation.
const longYield = 500_000

// closedBy returns an error if peer has closed its end and word still holds seen; peer changes word
// before it closes.
func (t *Transport) closedBy(peer int, word *uint64, seen uint64) error {
	if peer < 0 || peer == t.rank || atomic.LoadUint64(t.ctl.left(peer)) == 0 || atomic.LoadUint64(word) != seen {
		return nil
	}
	if err := t.ctl.aborted(); err != nil {
		return err // the peer left because of the abort
	}
	err := fmt.Errorf("rank %d has closed its end: %w", peer, dist.ErrClosed)
	t.ctl.fail(abortClosed, peer, err.Error())
	return err
}

// missing reports whether this rank waits for rank p in a collective.
func (t *Transport) missing(p int) bool { return !t.ctl.announced(p, t.round) }

// whereabouts describes the ranks that this one waits for: the peers of unfinished messages, or
// else the ranks that have not arrived.
func (t *Transport) whereabouts() string {
	messages := slices.ContainsFunc(t.moves, func(m message) bool { return !m.done() })
	var parts []string
	for p := range t.size {
		switch {
		case messages && p == t.rank && t.stuckOn(p):
			parts = append(parts, "its message to itself has only one half")
		case messages && t.stuckOn(p), !messages && p != t.rank && (t.missing(p) || p == t.waitsFor):
			parts = append(parts, fmt.Sprintf("rank %d is in %s", p, t.ctl.describe(p)))
		}
	}
	if len(parts) == 0 {
		return "all ranks have arrived"
	}
	return strings.Join(parts, ", ")
}

// publish stores a word of this rank that others wait for, and wakes its sleepers.
func (t *Transport) publish(word *uint64, v uint64) {
	asym.Store(word, v)
	if t.sleepy > 0 || t.crowded() {
		t.fence.Add(1) // peers are mostly asleep: the check for sleepers must not precede the store
		wake(word)
		return
	}
	wake(word)
	if t.published == len(t.loose) {
		t.wakeAll()
	}
	t.loose[t.published] = word
	t.published++
}

// wakeAll checks again for sleepers on the words published since the last call. A rank that went to
// sleep during the store may have seen the old value, while this rank saw no sleeper yet; hence the
// full fence. An operation on its caller leaves this to the next operation, or to the sleeper, who
// checks now and then.
func (t *Transport) wakeAll() {
	t.fence.Add(1)
	t.wakeAgain()
}

func (t *Transport) wakeAgain() {
	for _, w := range t.loose[:t.published] {
		wake(w)
	}
	t.published = 0
}

func wake(word *uint64) {
	if atomic.LoadUint64(waiters(word)) != 0 {
		futexWake(word)
	}
}

func futexWake(word *uint64) {
	const wake = 1
	_, _, _ = syscall.RawSyscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), wake, 1<<30, 0, 0, 0)
}

// futexWait sleeps until word no longer holds seen, a writer wakes it, or limit is over.
//
// No wake-up is lost. The sleeper adds itself to the count, which is a full fence, and then loads
// the word. The writer stores the word, fences, and then loads the count. So either the sleeper
// sees the new value, or the writer sees the sleeper and calls the kernel. The kernel compares the
// word again with its queue locked: it queues the sleeper before that wake-up or returns at once.
//
// Most sleepers release their processor of the Go scheduler, which makes the runtime's monitor
// thread check on them: about ten context switches per sleep. With holds, for a caller that has
// nothing else to do, the processor is kept. Other goroutines use the remaining ones. The runtime's
// preemption signal ends the sleep: at a garbage collection, or after 10 ms.
func futexWait(word *uint64, seen uint64, limit time.Duration, holds bool) {
	n := waiters(word)
	atomic.AddUint64(n, 1)
	if atomic.LoadUint64(word) == seen {
		ts := unix.NsecToTimespec(int64(limit))
		call := syscall.Syscall6
		if holds {
			call = syscall.RawSyscall6
		}
		_, _, _ = call(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), 0, uintptr(uint32(seen)), uintptr(unsafe.Pointer(&ts)), 0, 0)
	}
	atomic.AddUint64(n, ^uint64(0))
}
