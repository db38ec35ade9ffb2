// Package sim simulates a world of ranks as goroutines of one process. It implements dist.Transport
// on plain Go memory, with exact checks across ranks and scripted faults. So protocols can be
// tested without processes, without sleeping and under the race detector.
//
//	worlds, err := sim.New(4, sim.Config{Script: "die rank=2 op=7"})
//
// # How does it work?
//
// Each rank has a Transport (transport.go). Its operations run one at a time, in the order in which
// they were started, on the workers of their HostStreams. The ranks of a group share a board
// (board.go). A collective is a meeting on the board: every rank deposits its Op, and the last to
// arrive compares them and moves the data of all (move.go). A send or receive is a post on the
// board: the later of a matching pair copies. Both sides of a message wait for each other,
// as in NCCL, so a program that works here does not depend on buffering.
//
// One lock guards the whole world. So the board always knows the wait of each rank (wait.go), and
// reports a cycle of waiting ranks at once, as dist.ErrMismatch, not at the timeout.
//
// # Scripts
//
// A script has one fault a line (script.go); blank lines and comments after # are ignored. Ranks
// are those of the world, and op is the number of an operation in the world's group, from 1.
//
//	die rank=2 op=7               # rank 2 dies when it would run its op 7
//	drop rank=1 op=3              # the part of rank 1 in its op 3 never arrives
//	delay rank=0 op=5 after=1,3   # rank 0 runs its op 5 after ranks 1 and 3 have begun theirs
//	delay rank=0 op=5 after=all   # the same for all other ranks
package sim
