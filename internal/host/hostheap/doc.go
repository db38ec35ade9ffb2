// Package hostheap implements the symmetric heap over memory that every rank can address: checks,
// copies, atomics, signals and waits, for all backends whose ranks share a machine. A backend
// provides a Host: agreement on allocations, the state of the group, and sleep and wake-up of
// waits.
//
// # Accesses
//
// Every access passes a Gate, with two locked instructions on a line of this rank's own. Close
// therefore unmaps after the last access, and a late access returns an error instead of a fault.
// Then rank, range, freed regions and the group's state are checked before memory is accessed.
//
// The caller makes copies, and they are complete when they return. Non-blocking forms are thus the
// blocking ones, and Quiet need not wait (OpenSHMEM 1.5, section 9.11: it "ensures completion",
// which may happen early). Words of 4 and 8 bytes are accessed with sync/atomic, also by
// single-element Puts. They are never torn, a peer may wait for them, and the race detector sees
// them as synchronization.
//
// A signal is visible after its data because sync/atomic stores release earlier stores (x86: stores
// are not reordered with stores, Intel SDM volume 3, 9.2.2; other machines: Go's atomics are
// sequentially consistent, The Go Memory Model).
//
// # Waits
//
// A wait checks its words a bounded number of times and then calls Host.Await, which sleeps. Every
// writer calls Host.Ring afterwards, which costs one load while no rank sleeps.
//
// # Heaps in other memory
//
// The checks of arguments (CheckSize and others), Gate and MoveStrided access no heap of this
// package, so that heaps in other memory follow the same rules.
package hostheap
