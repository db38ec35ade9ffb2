package dist

import (
	"math/bits"
	"time"

	"github.com/symgrad/symgrad/internal/host/asym"
	"github.com/symgrad/symgrad/internal/host/ticks"
)

// Record is the recorder's entry of one operation. Times are nanoseconds since the recorder was
// made; 0 means not yet. A small operation of a blocking view that did not wait has one time for
// all three.
type Record struct {
	Seq       uint64
	Signature Signature
	Peer      int32 // of Send and Recv, else -1
	Name      string
	Bytes     int64
	Queued    int64
	Started   int64
	Ended     int64
	Failed    bool
}

// Recorder is a ring of the last operations of a group, the flight recorder. It is always on:
// writing an entry copies a few words. It shares the group's lock, so that queuing an operation
// takes one lock.
type Recorder struct {
	mu      asym.Mutex
	clock   ticks.Clock
	entries []Record // times are ticks
}

// DefaultTraceEntries is the ring size for a setting of 0.
const DefaultTraceEntries = 4096

// NewRecorder returns an empty ring of n entries, rounded up to a power of two; 0 means
// DefaultTraceEntries. Times count from now.
func NewRecorder(n int) *Recorder { return newRecorder(n, ticks.NewClock()) }

func newRecorder(n int, clock ticks.Clock) *Recorder {
	if n <= 0 {
		n = DefaultTraceEntries
	}
	return &Recorder{clock: clock, entries: make([]Record, 1<<bits.Len(uint(n-1)))}
}

// Epoch returns the start of the times in Records.
func (r *Recorder) Epoch() time.Time { return r.clock.Epoch() }

// Records returns the entries, oldest first.
func (r *Recorder) Records() []Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	var newest uint64
	for _, e := range r.entries {
		newest = max(newest, e.Seq)
	}
	out := make([]Record, 0, len(r.entries))
	for seq := newest - min(newest, uint64(len(r.entries))) + 1; seq <= newest; seq++ {
		if e := r.entries[seq&uint64(len(r.entries)-1)]; e.Seq == seq {
			out = append(out, e)
		}
	}
	scale := r.clock.Scale()
	for i := range out {
		for _, at := range []*int64{&out[i].Queued, &out[i].Started, &out[i].Ended} {
			if *at != 0 {
				*at = max(1, r.clock.Nanoseconds(*at, scale))
			}
		}
	}
	return out
}

// queued records op at the given tick. The lock is held.
func (r *Recorder) queued(op *Op, now int64) *Record {
	peer := int32(-1)
	if op.Kind.PointToPoint() {
		peer = int32(op.Peer)
	}
	e := &r.entries[op.Seq&uint64(len(r.entries)-1)]
	if e.Name != op.Name {
		e.Name = op.Name
	}
	// Field by field, since the compiler would build a whole Record and copy it.
	e.Seq, e.Peer, e.Bytes, e.Failed = op.Seq, peer, op.bytes, false
	e.Signature = op.Signature()
	e.Queued, e.Started, e.Ended = now, 0, 0
	return e
}

func (r *Recorder) begin(seq uint64) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.entry(seq); e != nil {
		e.Started = ticks.Now()
	}
}

func (r *Recorder) end(seq uint64, err error) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended(seq, err)
}

// ended records the end of an operation. The lock is held.
func (r *Recorder) ended(seq uint64, err error) {
	if e := r.entry(seq); e != nil {
		e.Ended, e.Failed = ticks.Now(), err != nil
	}
}

// reopen records that an operation has not ended. The lock is held.
func (r *Recorder) reopen(seq uint64) {
	if e := r.entry(seq); e != nil {
		e.Ended = 0
	}
}

// entry returns the entry of seq, or nil if the ring has lost it. The lock is held.
func (r *Recorder) entry(seq uint64) *Record {
	if e := &r.entries[seq&uint64(len(r.entries)-1)]; e.Seq == seq {
		return e
	}
	return nil
}
