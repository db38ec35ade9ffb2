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
	"github.com/symgrad/symgrad/internal/host/asym"
	"github.com/symgrad/symgrad/internal/host/ticks"
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

// stalls is called when the running operation has to wait. Other goroutines may then use the group,
// and peers can see its state.
func (w *waiter) stalls() {
	w.op.Blocks()
	w.wakeAll()
	peer := -1
	if w.op.Kind.PointToPoint() {
		peer = w.op.Peer
	}
	w.ctl.busy(w.rank, w.op.Kind, peer, w.op.Seq)
	since, until := w.ctl.worked(w.rank)
	asym.Store(since, uint64(w.resumed))
	asym.Store(until, uint64(ticks.Now()))
}

// waiter is a rank's waits for other ranks in the operation that it runs, and its wake-ups of ranks
// that wait for it.
type waiter struct {
	member
	op        *dist.Op   // running, or last run
	round     uint64     // rounds entered
	eager     bool       // op runs on its caller, and need not wait for ranks that give no data
	sleepy    int        // number of coming waits that sleep without yielding, because other processes want the cores
	published int        // of loose
	loose     [8]*uint64 // words published since the last full fence
	fence     atomic.Uint64
	dozes     int       // last value that sleepy was set to
	calm      int       // short yields since then
	resumed   int64     // end of the last wait, in ticks
	waitsFor  int       // awaited rank in a long wait; -1 for none
	wait      posted    // the present long wait
	moves     []message // sends and receives of the running exchange
}

// sleeper is the state of a wait after its spin.
type sleeper struct {
	turns    int
	since    time.Time
	lastLook time.Time
}

// newSleeper returns the state of a wait after its spin. It yields first, unless other processes
// want the cores.
func (w *waiter) newSleeper() sleeper {
	if w.sleepy == 0 {
		return sleeper{}
	}
	w.sleepy--
	return sleeper{turns: w.node.yields}
}

// patience returns the number of spins of a wait before it yields.
func (w *waiter) patience() int {
	switch {
	case !w.eager:
	case !w.crowded():
		return spinsCaller
	case w.op.Kind == dist.KindBroadcast && w.op.Memo>>planBytes <= stageBroadcast:
		return spinsStaged
	}
	return w.spins
}

// await returns when the count in word, which peer writes, has reached want.
func (w *waiter) await(word *uint64, want uint64, peer int) error {
	for range w.patience() {
		if atomic.LoadUint64(word)&roundMask >= want {
			return nil
		}
	}
	w.stalls()
	w.waitsFor, w.wait.word, w.wait.want = peer, word, want
	defer func() {
		w.retract()
		w.waitsFor, w.wait.word, w.resumed = -1, nil, ticks.Now()
	}()
	s := w.newSleeper()
	for {
		seen := atomic.LoadUint64(word)
		if seen&roundMask >= want {
			return nil
		}
		err := w.rest(&s, word, seen, peer)
		if err != nil && atomic.LoadUint64(word)&roundMask < want {
			return err
		} // else the awaited store came first, and a peer that also has it broke the group later
	}
}

// rest is one turn of a wait on word, which held seen: it yields or sleeps, then checks for reasons
// to give up. peer is the awaited rank, or -1 for several.
func (w *waiter) rest(s *sleeper, word *uint64, seen uint64, peer int) error {
	s.turns++
	switch {
	case s.turns >= w.node.yields:
		futexWait(word, seen, w.node.poll, w.eager && w.node.holds)
	case s.turns%8 == 0:
		runtime.Gosched()
		return nil
	default:
		if w.yieldsLong() {
			s.turns = w.node.yields
		}
		return nil
	}
	if err := w.ctl.aborted(); err != nil {
		return err
	}
	if err := w.closedBy(peer, word, seen); err != nil {
		return err
	}
	now := time.Now()
	if s.since.IsZero() {
		s.since, s.lastLook = now, now
	}
	if now.Sub(s.lastLook) > lookAround {
		s.lastLook = now
		if err := w.deadlock(); err != nil {
			return err
		}
	}
	if d := w.node.cfg.StepTimeout; now.Sub(s.since) > d {
		text := fmt.Sprintf("after %v rank %d still waits: %s", d, w.rank, w.whereabouts())
		w.ctl.fail(abortTimeout, w.rank, text)
		return w.ctl.aborted()
	}
	return nil
}

// yieldsLong yields once, and reports whether that took so long that the next waits should sleep.
// The number of these waits doubles with each repetition, because one long time slice means little.
// If ranks share cores, time in which peers worked does not count.
func (w *waiter) yieldsLong() bool {
	away := yield()
	if away <= longYield+w.tenure() || w.crowded() && w.peersWorked(away) > away/2 {
		if w.calm++; w.calm == calmYields {
			w.dozes = 0
		}
		return false
	}
	w.calm = 0
	w.dozes = min(max(2*w.dozes, fewDozes), w.node.sleepy)
	w.sleepy = w.dozes
	return true
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
func (w *waiter) tenure() int64 {
	n := int64(w.op.Memo >> planBytes)
	if w.op.Kind == dist.KindAllGather || w.op.Kind == dist.KindGather {
		n *= int64(w.size)
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
func (w *waiter) closedBy(peer int, word *uint64, seen uint64) error {
	if peer < 0 || peer == w.rank || atomic.LoadUint64(w.ctl.left(peer)) == 0 || atomic.LoadUint64(word) != seen {
		return nil
	}
	if err := w.ctl.aborted(); err != nil {
		return err // the peer left because of the abort
	}
	err := fmt.Errorf("rank %d has closed its end: %w", peer, dist.ErrClosed)
	w.ctl.fail(abortClosed, peer, err.Error())
	return err
}

// missing reports whether this rank waits for rank p in a collective.
func (w *waiter) missing(p int) bool { return !w.ctl.announced(p, w.round) }

// whereabouts describes the ranks that this one waits for: the peers of unfinished messages, or
// else the ranks that have not arrived.
func (w *waiter) whereabouts() string {
	messages := slices.ContainsFunc(w.moves, func(m message) bool { return !m.done() })
	var parts []string
	for p := range w.size {
		switch {
		case messages && p == w.rank && w.stuckOn(p):
			parts = append(parts, "its message to itself has only one half")
		case messages && w.stuckOn(p), !messages && p != w.rank && (w.missing(p) || p == w.waitsFor):
			parts = append(parts, fmt.Sprintf("rank %d is in %s", p, w.ctl.describe(p)))
		}
	}
	if len(parts) == 0 {
		return "all ranks have arrived"
	}
	return strings.Join(parts, ", ")
}

// publish stores a word of this rank that others wait for, and wakes its sleepers.
func (w *waiter) publish(word *uint64, v uint64) {
	asym.Store(word, v)
	if w.sleepy > 0 || w.crowded() {
		w.fence.Add(1) // peers are mostly asleep: the check for sleepers must not precede the store
		wake(word)
		return
	}
	wake(word)
	if w.published == len(w.loose) {
		w.wakeAll()
	}
	w.loose[w.published] = word
	w.published++
}

// wakeAll checks again for sleepers on the words published since the last call. A rank that went to
// sleep during the store may have seen the old value, while this rank saw no sleeper yet; hence the
// full fence. An operation on its caller leaves this to the next operation, or to the sleeper, who
// checks now and then.
func (w *waiter) wakeAll() {
	w.fence.Add(1)
	w.wakeAgain()
}

func (w *waiter) wakeAgain() {
	for _, word := range w.loose[:w.published] {
		wake(word)
	}
	w.published = 0
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

// stuckOn reports whether a message of the running exchange waits for peer.
func (w *waiter) stuckOn(peer int) bool {
	for i := range w.moves {
		if m := &w.moves[i]; !m.done() && m.op.Peer == peer {
			return true
		}
	}
	return false
}
