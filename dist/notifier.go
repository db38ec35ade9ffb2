package dist

// Notifier is a Transport whose ranks may be on several hosts. Its ranks send each other notes,
// short messages outside the order of operations. Package internal/gpu compares the operations of
// hosts by notes.
type Notifier interface {
	// Hosts returns the host of each rank. Hosts are numbered in the order of their first rank.
	Hosts() []int
	// Notify sends note to a rank and returns. Notes of one rank arrive in order.
	//
	// Owns: note is copied. Errors: ErrInvalid for a rank outside the group, and a long note.
	Notify(rank int, note []byte) error
	// OnNote sets the function that gets the notes for this rank; nil drops them. Calls come one at
	// a time, on any goroutine, and must not wait. After OnNote returns, no earlier function runs.
	OnNote(f func(from int, note []byte))
	// Progress delivers the notes that have arrived. A rank that polls for one calls it; otherwise
	// notes are delivered within some milliseconds.
	Progress()
	// Broken returns why the group is broken; nil while it is whole.
	Broken() error
}

// Notifier returns the group's transport if its ranks may be on several hosts, else nil.
func (g *Group) Notifier() Notifier {
	n, _ := g.c.t.(Notifier)
	return n
}
