package hosts

import (
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/symgrad/symgrad/dist"
)

// NoteBytes is the most bytes of a note.
const NoteBytes = controlBytes - controlHead

var _ dist.Notifier = (*Transport)(nil)

// notes is the receiver of a group's notes.
type notes struct {
	to atomic.Pointer[func(from int, note []byte)]
}

// deliver passes a note on. Notes without a receiver are dropped.
func (n *notes) deliver(from int, note string) {
	if f := n.to.Load(); f != nil {
		(*f)(from, []byte(note))
	}
}

// Hosts implements dist.Notifier.
func (t *Transport) Hosts() []int { return slices.Clone(t.l.hostOf) }

// Notify implements dist.Notifier.
func (t *Transport) Notify(rank int, note []byte) error {
	if len(note) > NoteBytes || rank < 0 || rank >= len(t.ranks) {
		return fmt.Errorf("%w: a note of %d B for rank %d: want at most %d B, and rank 0 to %d", dist.ErrInvalid, len(note), rank,
			NoteBytes, len(t.ranks)-1)
	}
	t.p.post(t.ranks[rank], control{group: t.id, kind: controlNote, rank: t.rank, text: string(note)})
	return nil
}

// OnNote implements dist.Notifier.
func (t *Transport) OnNote(f func(from int, note []byte)) {
	t.p.applies.Lock() // no call is running when OnNote returns
	defer t.p.applies.Unlock()
	if f == nil {
		t.notes.to.Store(nil)
		return
	}
	t.notes.to.Store(&f)
}

// Progress implements dist.Notifier.
func (t *Transport) Progress() {
	t.p.w.Progress()
	t.p.handle()
}
