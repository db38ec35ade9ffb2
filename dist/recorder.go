package dist

import (
	"sync"
	"time"
)

// Record is one operation as the recorder keeps it. Times are nanoseconds since the recorder was made; 0 means not yet.
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

// Recorder is a ring of the last operations of a group, the flight recorder. It is always on: writing an entry copies
// a few words under a lock of its own.
type Recorder struct {
	mu      sync.Mutex
	epoch   time.Time
	entries []Record
}

// DefaultTraceEntries is the ring size when a config says 0.
const DefaultTraceEntries = 4096

// NewRecorder is an empty ring of n entries; 0 means DefaultTraceEntries. Times count from epoch.
func NewRecorder(n int, epoch time.Time) *Recorder {
	if n <= 0 {
		n = DefaultTraceEntries
	}
	return &Recorder{epoch: epoch, entries: make([]Record, n)}
}

// Epoch is the time from which Records count.
func (r *Recorder) Epoch() time.Time { return r.epoch }

// Records is the kept operations, oldest first.
func (r *Recorder) Records() []Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	var newest uint64
	for _, e := range r.entries {
		newest = max(newest, e.Seq)
	}
	out := make([]Record, 0, len(r.entries))
	for seq := newest - min(newest, uint64(len(r.entries))) + 1; seq <= newest; seq++ {
		if e := r.entries[seq%uint64(len(r.entries))]; e.Seq == seq {
			out = append(out, e)
		}
	}
	return out
}

func (r *Recorder) queued(op *Op) {
	now := int64(time.Since(r.epoch))
	r.mu.Lock()
	peer := int32(-1)
	if op.Kind.PointToPoint() {
		peer = int32(op.Peer)
	}
	r.entries[op.Seq%uint64(len(r.entries))] = Record{
		Seq: op.Seq, Signature: op.Signature(), Peer: peer, Name: op.Name, Bytes: op.Bytes(), Queued: now,
	}
	r.mu.Unlock()
}

func (r *Recorder) begin(seq uint64) {
	if e := r.lock(seq); e != nil {
		e.Started = int64(time.Since(r.epoch))
		r.mu.Unlock()
	}
}

func (r *Recorder) end(seq uint64, err error) {
	if e := r.lock(seq); e != nil {
		e.Ended, e.Failed = int64(time.Since(r.epoch)), err != nil
		r.mu.Unlock()
	}
}

// lock returns the entry of seq with the lock held, or nil, without the lock, when the ring no longer has it.
func (r *Recorder) lock(seq uint64) *Record {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	if e := &r.entries[seq%uint64(len(r.entries))]; e.Seq == seq {
		return e
	}
	r.mu.Unlock()
	return nil
}
