// Package hostheap is the symmetric heap over memory that every rank can address: checks, copies,
// atomics, signals and waits, written once for all backends whose ranks share a machine. A backend
// brings a Host: how ranks agree on an allocation, where their parts lie, whether the group is
// whole, and how a wait sleeps and is woken.
//
// # How it keeps its promises
//
// Every access passes a gate, two locked instructions on a line of this rank's own, so that Close
// unmaps behind the last one and a late access is an error instead of a fault. Then rank, range,
// freed regions and the group's health are checked; only then is memory touched.
//
// Copies are made by the caller and complete when they return, so non-blocking forms are the
// blocking ones and Quiet has nothing to wait for (OpenSHMEM 1.5, section 9.11: it "ensures
// completion", which is allowed to be early). Words of 4 and 8 bytes are accessed with sync/atomic,
// also by single-element Puts: they are never torn, a peer may wait for them, and the race detector
// takes them for the synchronisation they are.
//
// A signal is stored after the data because sync/atomic stores release what came before (x86:
// stores are not reordered with stores, Intel SDM volume 3, 9.2.2; other machines: Go's atomics are
// sequentially consistent, The Go Memory Model).
//
// # Waiting
//
// A wait looks at its words a bounded number of times and then hands itself to Host.Await, which
// sleeps. Whoever writes calls Host.Ring afterwards, which costs one load while nobody sleeps.
//
// # Heaps elsewhere
//
// The checks of arguments (CheckSize and its like), the Gate and MoveStrided touch no heap of this
// package, so that heaps in other memory have the same rules.
package hostheap
