// Command nvshmem implements the examples of NVSHMEM4Py's documentation on the symmetric heap of
// this project: the same steps with the same names, and a check of every element.
//
//	go run ./examples/nvshmem -n 4                      # all examples
//	go run ./examples/nvshmem -n 3 reduce fcollect
//	symgrad run -n 4 -- bin/nvshmem broadcast
//
// prints, for reduce on 4 ranks,
//
//	== reduce: every PE gets the sum of all PEs' arrays
//	PE 0 sum result: 6, expected: 6
//	PE 1 sum result: 6, expected: 6
//	PE 2 sum result: 6, expected: 6
//	PE 3 sum result: 6, expected: 6
//
// A PE of NVSHMEM is a rank here, a team is a dist.Group, and nvshmem.array is a tensor over a
// symmetric.Region. As in NVSHMEM, collectives run on a stream, and the host waits for it before it
// reads the result.
//
// Each file has one example. Read broadcast.go first, then the others in the order of the list in
// this file.
//
// Source: NVSHMEM4Py, "Collective Operations", "Collective Examples".
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

// example is one page of the documentation.
type example struct {
	name  string
	about string
	run   func(ctx context.Context, pe *pe) (bad int, err error) // bad is the number of wrong elements on this rank
}

// examples returns all examples, in the order in which they run.
func examples() []example {
	return []example{
		{"broadcast", "every PE gets the array of PE 0", broadcast},
		{"reduce", "every PE gets the sum of all PEs' arrays", reduce},
		{"reducescatter", "every PE gets its block of the sum of all PEs' arrays", reduceScatter},
		{"fcollect", "every PE gets all PEs' arrays, in their order", fcollect},
		{"alltoall", "every PE gets, from each PE, the block meant for it", allToAll},
		{"barrier", "no PE continues before all have arrived", barrier},
		{"put", "every PE writes into the memory of the next and reads that of the one before", putAndGet},
		{"signal", "data and a signal in one call, without a barrier", putSignal},
	}
}

func main() { os.Exit(execute(os.Args[1:], os.Stdout, os.Stderr)) }

// execute runs the program with this command line.
//
// Returns: the exit code.
func execute(args []string, stdout, stderr io.Writer) int {
	var s settings
	return rank.Program{
		Name: "nvshmem", Args: "[EXAMPLE...]", About: about(), Ranks: 4, Check: s.check, Run: s.run,
	}.Execute(args, stdout, stderr)
}

func about() string {
	var b strings.Builder
	b.WriteString("The examples of NVSHMEM4Py's documentation. Name some, or none for all:\n\n")
	for _, x := range examples() {
		fmt.Fprintf(&b, "  %-14s %s\n", x.name, x.about)
	}
	return b.String()
}

// settings is the command line.
type settings struct{ chosen []example }

// check finds the named examples. "all", and no name, mean all of them.
func (s *settings) check(_ int, args []string) error {
	all := examples()
	for _, name := range args {
		i := slices.IndexFunc(all, func(x example) bool { return x.name == name })
		switch {
		case name == "all":
			s.chosen = append(s.chosen, all...)
		case i < 0:
			return fmt.Errorf("unknown example %q (--help lists them)", name)
		default:
			s.chosen = append(s.chosen, all[i])
		}
	}
	if len(args) == 0 {
		s.chosen = all
	}
	return nil
}

// run is one rank. It runs the chosen examples one after the other.
func (s *settings) run(ctx context.Context, w *dist.World, out io.Writer) error {
	for _, x := range s.chosen {
		fmt.Fprintf(out, "== %s: %s\n", x.name, x.about)
		if err := runOne(ctx, w, out, x); err != nil {
			return fmt.Errorf("%s: %w", x.name, err)
		}
	}
	return nil
}

func runOne(ctx context.Context, w *dist.World, out io.Writer, x example) (err error) {
	pe, err := newPE(w, out)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pe.close()) }()
	bad, err := x.run(ctx, pe)
	if err != nil {
		return err
	}
	return rank.Verdict(w, "wrong elements", bad)
}
