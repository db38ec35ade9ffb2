package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/examples/internal/rank"
	"github.com/symgrad/symgrad/tensor"
)

const about = `Solve Laplace's equation on a grid whose rows are divided among the ranks, by Jacobi's iteration.
Border rows are exchanged while the rows between them are computed.`

func main() { os.Exit(execute(os.Args[1:], os.Stdout, os.Stderr)) }

// execute runs the program with this command line.
//
// Returns: the exit code.
func execute(args []string, stdout, stderr io.Writer) int {
	var s settings
	return rank.Program{Name: "jacobi", About: about, Ranks: 2, Flags: s.flags, Check: s.check, Run: s.run}.Execute(args, stdout, stderr)
}

// settings is the command line.
type settings struct {
	nx, ny    int     // points in a row, rows; the edges included
	iters     int     // maximum number of iterations
	tol       float64 // stop if no point changes by more than this
	normEvery int     // iterations between checks of the change
	noOverlap bool
	halo      string // how border rows are exchanged: see halos
	verify    bool
}

func (s *settings) flags(f *pflag.FlagSet) {
	f.IntVar(&s.nx, "nx", 512, "columns of the grid")
	f.IntVar(&s.ny, "ny", 512, "rows of the grid, which the ranks share")
	f.IntVar(&s.iters, "iters", 1000, "maximum number of iterations")
	f.Float64Var(&s.tol, "tol", 1e-8, "stop if no point changes by more than this in an iteration")
	f.IntVar(&s.normEvery, "norm-every", 100, "iterations between checks of the change")
	f.StringVar(&s.halo, "halo", haloPut, "exchange of border rows. put: one-sided, with a signal; sendrecv: send and receive in a group call; "+
		"device: stored by the code that computes them (on GPUs by NVSHMEM), then a barrier")
	f.BoolVar(&s.noOverlap, "no-overlap", false, "compute and exchange on one stream, one after the other")
	f.BoolVar(&s.verify, "verify", false, "compare every bit with the serial solution")
}

// check returns the first invalid setting. ranks is 0 to check only the grid.
func (s *settings) check(ranks int, _ []string) error {
	const most = 1 << 20
	switch {
	case s.nx < 3 || s.nx > most || s.ny < 3 || s.ny > most:
		return fmt.Errorf("--nx %d --ny %d: want 3 to %d points each way", s.nx, s.ny, most)
	case s.ny-2 < ranks:
		return fmt.Errorf("--ny %d has %d inner rows for %d ranks: want at least one each", s.ny, s.ny-2, ranks)
	case s.iters < 1:
		return fmt.Errorf("--iters %d: want 1 or more", s.iters)
	case !slices.Contains(halos(), s.halo):
		return fmt.Errorf("--halo %s: want one of %s", s.halo, strings.Join(halos(), ", "))
	case s.normEvery < 1:
		return fmt.Errorf("--norm-every %d: want 1 or more", s.normEvery)
	case !(s.tol >= 0):
		return fmt.Errorf("--tol %v: want 0 or more", s.tol)
	}
	return nil
}

// looks reports whether the change of iteration k is checked.
func (s *settings) looks(k int) bool { return k%s.normEvery == 0 || k == s.iters }

// last reports whether iteration k, which changed points by at most change, is the last.
func (s *settings) last(k int, change float64) bool {
	return k == s.iters || (s.looks(k) && change <= s.tol)
}

// run is one rank.
func (s *settings) run(ctx context.Context, w *dist.World, out io.Writer) error {
	if w.Device() != tensor.Host {
		return s.runOnDevice(w, out)
	}
	g, err := newStrip(w, *s)
	if err != nil {
		return err
	}
	how := "on a separate stream"
	if s.noOverlap {
		how = "on the same stream"
	}
	s.announce(w, out, how)
	var m meter
	found, err := solve(ctx, g, *s, &m, out)
	if err != nil {
		return err
	}
	if err := m.report(w, out, *s, found); err != nil {
		return err
	}
	if s.verify {
		if err := verify(w, *s, g, found, out); err != nil {
			return err
		}
	}
	return g.free()
}

// announce prints the grid, the ranks, and the method of exchange.
func (s *settings) announce(w *dist.World, out io.Writer, how string) {
	fmt.Fprintf(out, "jacobi: %d x %d points, %d ranks on %s, %s rows each, halo by %s %s\n",
		s.nx, s.ny, w.Size(), w.Backend(), share(s.ny-2, w.Size()), s.halo, how)
}
