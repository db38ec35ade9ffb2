// Command comm implements the NCCL labs of NVIDIA's tutorial with the calls of this project: a
// communicator, send and receive, group calls, and memory registered as a symmetric window. The
// program runs on the host and on GPUs, and checks every element.
//
//	go run ./examples/comm -n 4                          # all labs, ranks are processes on the host
//	go run ./examples/comm -n 2 sendrecv
//	go run ./examples/comm -n 2 --backend nccl window    # on two GPUs, with NCCL only
//	symgrad run -n 4 -- bin/comm group
//
// prints, for window on 2 ranks,
//
//	== window: memory registered on all ranks, and an all-gather that relies on it
//	rank 0 has 0 to 31
//	rank 1 has 0 to 31
//
// The names in NCCL and here:
//
//	NCCL                                      here
//	ncclGetUniqueId, ncclCommInitRank         backend.Open
//	ncclCommSplit                             dist.Group.Split
//	ncclSend, ncclRecv                        dist.Group.Send, Recv
//	ncclGroupStart, ncclGroupEnd              dist.Group.Batch
//	ncclMemAlloc, ncclCommWindowRegister      symmetric.Heap.Alloc
//	NCCL_WIN_COLL_SYMMETRIC                   dist.Hints.Symmetric
//	cudaStreamSynchronize                     dist.Stream.Synchronize, dist.Work.Wait
//
// Each file has one lab. Read sendrecv.go first, then group.go and window.go. array.go provides
// memory on host or GPU.
//
// Source: NVIDIA, "GPU Communication Libraries for Accelerating HPC and AI Applications", HOT
// Interconnects 2025, labs 1 and 5.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/examples/internal/rank"
)

// lab is one program of the tutorial.
type lab struct {
	name  string
	about string
	run   func(c *comm) (bad int, err error) // bad is the number of wrong elements on this rank
}

// labs returns all labs, in the order in which they run.
func labs() []lab {
	return []lab{
		{"sendrecv", "rank 0 of a communicator sends 16 numbers to rank 1", sendRecv},
		{"group", "rank 0 sends a part to each rank, as one group call", scatter},
		{"window", "memory registered on all ranks, and an all-gather that relies on it", window},
	}
}

func main() { os.Exit(execute(os.Args[1:], os.Stdout, os.Stderr)) }

// execute runs the program with this command line.
//
// Returns: the exit code.
func execute(args []string, stdout, stderr io.Writer) int {
	var s settings
	return rank.Program{
		Name: "comm", Args: "[LAB...]", About: about(), Ranks: 2, Check: s.check, Run: s.run,
	}.Execute(args, stdout, stderr)
}

func about() string {
	var b strings.Builder
	b.WriteString("The NCCL labs of NVIDIA's tutorial. Name some, or none for all:\n\n")
	for _, x := range labs() {
		fmt.Fprintf(&b, "  %-9s %s\n", x.name, x.about)
	}
	return b.String()
}

// settings is the command line.
type settings struct{ chosen []lab }

// check finds the named labs. No name means all of them.
func (s *settings) check(_ int, args []string) error {
	all := labs()
	for _, name := range args {
		i := slices.IndexFunc(all, func(x lab) bool { return x.name == name })
		if i < 0 {
			return fmt.Errorf("unknown lab %q (--help lists them)", name)
		}
		s.chosen = append(s.chosen, all[i])
	}
	if len(args) == 0 {
		s.chosen = all
	}
	return nil
}

// run is one rank. It runs the chosen labs one after the other.
func (s *settings) run(_ context.Context, w *dist.World, out io.Writer) error {
	for _, x := range s.chosen {
		fmt.Fprintf(out, "== %s: %s\n", x.name, x.about)
		if err := runOne(w, out, x); err != nil {
			return fmt.Errorf("%s: %w", x.name, err)
		}
	}
	return nil
}

func runOne(w *dist.World, out io.Writer, x lab) (err error) {
	c, err := newComm(w, out)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	bad, err := x.run(c)
	if err != nil {
		return err
	}
	return c.verdict(bad)
}
