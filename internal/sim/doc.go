// Package sim is a world of ranks that are goroutines of one process. It implements dist.Transport
// on plain Go memory, with exact cross-rank checking and with faults that a script asks for, so
// that protocols above it can be tested without processes, without sleeping and under the race
// detector.
//
//	worlds, err := sim.New(4, sim.Config{Script: "die rank=2 op=7"})
//
// # How it works
//
// Each rank has a Transport; its operations run one at a time, in the order in which they were
// started, on the workers of the HostStreams they were queued on. The ranks of a group share a
// board. A collective is a meeting on the board: every rank deposits its Op, and the last to arrive
// compares them and moves the data of all. A send or receive is a post on the board: the later of
// the two that match copies. Both sides of a message wait for each other, as in NCCL, so a program
// that works here does not depend on buffering.
//
// One lock guards the whole world. The board therefore knows at every moment what each rank waits
// for, and a cycle of ranks that wait for each other is reported as soon as it closes, as
// dist.ErrMismatch, instead of at the timeout.
//
// # Scripts
//
// A script is text, one fault a line; blank lines and what follows a # do not count. Ranks are
// those of the world, and op is the number of an operation in the world's group, from 1.
//
//	die rank=2 op=7               # rank 2 dies when it would run its op 7
//	drop rank=1 op=3              # the part of rank 1 in its op 3 never arrives
//	delay rank=0 op=5 after=1,3   # rank 0 runs its op 5 only when ranks 1 and 3 have begun theirs
//	delay rank=0 op=5 after=all   # the same for all other ranks
package sim
