// Command ring is the first program of the NVSHMEM manual, in which the ranks form a ring, with two
// extensions. Every rank writes its number to the memory of the next, once with a barrier and once
// with a signal. Then a token goes round, to which every rank adds one.
//
//	go run ./examples/ring -n 4
//	go run ./examples/ring -n 2 --rounds 100000 --bytes 4096
//	go run ./examples/ring -n 2 --backend cuda
//	symgrad run -n 4 -- bin/ring
//
// prints something like
//
//	ring: 4 ranks on shm
//	0: received message 3
//	1: received message 0
//	2: received message 1
//	3: received message 2
//	token: 1000 rounds, 4000 hops of 8 B, 2.6 us a hop
//
// Read shift.go, then token.go. On GPUs, kernels do the same: device.go and ring.cu.
//
// Source: NVSHMEM, "Introduction", "Example NVSHMEM Program" (simple_shift).
package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/spf13/pflag"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/examples/internal/rank"
	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

const about = `Form a ring of ranks: each writes to the memory of the next, then a token goes round.`

func main() { os.Exit(execute(os.Args[1:], os.Stdout, os.Stderr)) }

// execute runs the program with this command line.
//
// Returns: the exit code.
func execute(args []string, stdout, stderr io.Writer) int {
	var s settings
	return rank.Program{Name: "ring", About: about, Ranks: 4, Flags: s.flags, Check: s.check, Run: s.run}.Execute(args, stdout, stderr)
}

// settings is the command line.
type settings struct {
	rounds int
	bytes  int64
}

func (s *settings) flags(f *pflag.FlagSet) {
	f.IntVar(&s.rounds, "rounds", 1000, "number of rounds of the token")
	f.Int64Var(&s.bytes, "bytes", 8, "size of the token, a multiple of 8")
}

func (s *settings) check(int, []string) error {
	switch {
	case s.rounds < 1:
		return fmt.Errorf("--rounds %d: want 1 or more", s.rounds)
	case s.bytes < numberBytes || s.bytes > 1<<30 || s.bytes%numberBytes != 0:
		return fmt.Errorf("--bytes %d: want a multiple of %d, at most 1 GiB", s.bytes, numberBytes)
	}
	return nil
}

// run is one rank.
func (s *settings) run(ctx context.Context, w *dist.World, out io.Writer) error {
	if w.Device() != tensor.Host {
		return s.runOnDevice(w, out)
	}
	heap, err := w.Heap(s.bytes + 4*symmetric.Alignment)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "ring: %d ranks on %s\n", w.Size(), w.Backend())
	if err := shift(w, heap, out); err != nil {
		return fmt.Errorf("shift: %w", err)
	}
	if err := shiftSignal(ctx, w, heap); err != nil {
		return fmt.Errorf("shift with a signal: %w", err)
	}
	if err := s.token(ctx, w, heap, out); err != nil {
		return fmt.Errorf("token: %w", err)
	}
	return nil
}

// next and before are the neighbours in the ring.
func next(w *dist.World) int   { return (w.Rank() + 1) % w.Size() }
func before(w *dist.World) int { return (w.Rank() + w.Size() - 1) % w.Size() }
