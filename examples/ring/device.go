package main

import (
	_ "embed"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/examples/internal/device"
	"github.com/symgrad/symgrad/examples/internal/rank"
	"github.com/symgrad/symgrad/kernel"
	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

// source has the kernels of the ring.
//
//go:embed ring.cu
var source string

// passThreads is the number of threads that pass the token: one block, which runs on one
// multiprocessor.
const passThreads = 1024

// gpuRing is the ring between GPUs. Kernels write to the next GPU's memory, and the host only
// queues them.
type gpuRing struct {
	w      *dist.World
	heap   symmetric.Heap
	board  *device.Board
	code   *kernel.Module
	tables []*kernel.Table
}

// runOnDevice is run on a world of GPUs.
func (s *settings) runOnDevice(w *dist.World, out io.Writer) (err error) {
	heap, err := w.Heap(s.bytes + 8*symmetric.Alignment + device.BoardBytes(w.Size()))
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "ring: %d ranks on %s\n", w.Size(), w.Backend())
	g := &gpuRing{w: w, heap: heap}
	defer func() { err = errors.Join(err, g.close()) }()
	if g.board, err = device.NewBoard(w, heap); err != nil {
		return err
	}
	if g.code, err = kernel.Compile(w.Stream(), kernel.Source{Name: "ring.cu", Text: source}); err != nil {
		return err
	}
	if err := g.shift(out); err != nil {
		return fmt.Errorf("shift: %w", err)
	}
	if err := g.shiftSignal(); err != nil {
		return fmt.Errorf("shift with a signal: %w", err)
	}
	if err := g.token(s, out); err != nil {
		return fmt.Errorf("token: %w", err)
	}
	return nil
}

// close frees the memory of the kernels, after they have run.
func (g *gpuRing) close() error {
	errs := []error{g.w.Stream().Synchronize()}
	for _, t := range g.tables {
		errs = append(errs, t.Close())
	}
	if g.code != nil {
		errs = append(errs, g.code.Close())
	}
	return errors.Join(errs...)
}

// alloc returns a region of zeros, with the addresses of all ranks' parts.
//
// Collective: all ranks.
func (g *gpuRing) alloc(bytes int64) (symmetric.Region, *kernel.Table, error) {
	r, err := g.heap.Alloc(bytes)
	if err != nil {
		return nil, nil, err
	}
	t, err := kernel.Peers(g.w.Group, r)
	if err != nil {
		return nil, nil, err
	}
	g.tables = append(g.tables, t)
	return r, t, nil
}

// launch queues a kernel of one block.
func (g *gpuRing) launch(name string, threads uint32, args ...any) error {
	f, err := g.code.Function(name)
	if err != nil {
		return err
	}
	return f.Launch(g.w.Stream(), kernel.Shape{Block: [3]uint32{threads}}, args...)
}

// shift runs simple_shift, a barrier on the stream, and a copy to the host, as in the manual.
//
// Collective: all ranks.
func (g *gpuRing) shift(out io.Writer) error {
	destination, all, err := g.alloc(4) // nvshmem_malloc(sizeof(int))
	if err != nil {
		return err
	}
	if err := g.launch("simple_shift", 1, all, int32(g.w.Rank()), int32(g.w.Size())); err != nil {
		return err
	}
	if err := rank.Done(g.w.Barrier()); err != nil { // the puts of all ranks are complete
		return err
	}
	msg := make([]int32, 1)
	if err := kernel.Copy(g.w.Stream(), tensor.Of(msg), destination.Local()); err != nil {
		return err
	}
	messages, err := g.board.Gather(int64(msg[0]))
	if err != nil {
		return err
	}
	for r, m := range messages {
		fmt.Fprintf(out, "%d: received message %d\n", r, m)
	}
	return g.verdict(msg[0])
}

// shiftSignal is shift without the barrier.
//
// Collective: all ranks.
func (g *gpuRing) shiftSignal() error {
	destination, all, err := g.alloc(4)
	if err != nil {
		return err
	}
	_, signals, err := g.alloc(signalBytes)
	if err != nil {
		return err
	}
	late, err := g.heap.Alloc(signalBytes)
	if err != nil {
		return err
	}
	err = g.launch("shift_signal", 1, all, signals, int32(g.w.Rank()), int32(g.w.Size()), uint64(device.Patience), late)
	if err != nil {
		return err
	}
	msg, missing := make([]int32, 1), make([]uint64, 1)
	if err := kernel.Copy(g.w.Stream(), tensor.Of(missing), late.Local()); err != nil {
		return err
	}
	if missing[0] != 0 {
		return device.Late(g.w, fmt.Errorf("from rank %d: %w: nothing arrived within %v", before(g.w), dist.ErrTimeout, device.Patience))
	}
	if err := kernel.Copy(g.w.Stream(), tensor.Of(msg), destination.Local()); err != nil {
		return err
	}
	return g.verdict(msg[0])
}

// verdict is verdict with device memory.
//
// Collective: all ranks.
func (g *gpuRing) verdict(got int32) error {
	bad := int64(0)
	if int(got) != before(g.w) {
		bad = 1
	}
	return g.board.Verdict("message that is not from the rank before it", bad)
}

// token passes the message round the ring with one kernel per rank, and prints the time of a hop.
//
// Collective: all ranks.
func (g *gpuRing) token(s *settings, out io.Writer) error {
	_, boxes, err := g.alloc(s.bytes)
	if err != nil {
		return err
	}
	_, signals, err := g.alloc(signalBytes)
	if err != nil {
		return err
	}
	result, err := g.heap.Alloc(2 * signalBytes)
	if err != nil {
		return err
	}
	if err := rank.Done(g.w.Barrier()); err != nil {
		return err
	}
	begin := time.Now()
	err = g.launch("pass", passThreads, boxes, signals, uint64(s.bytes/numberBytes), uint64(s.rounds),
		int32(g.w.Rank()), int32(g.w.Size()), uint64(device.Patience), result)
	if err != nil {
		return err
	}
	found := make([]uint64, 2)
	if err := kernel.Copy(g.w.Stream(), tensor.Of(found), result.Local()); err != nil {
		return err
	}
	took := time.Since(begin)
	if found[1] != 0 {
		return device.Late(g.w, fmt.Errorf("hop %d, from rank %d: %w: not arrived within %v", found[1]-1, before(g.w), dist.ErrTimeout, device.Patience))
	}
	if err := g.board.Verdict("numbers in the token that are wrong", int64(found[0])); err != nil {
		return err
	}
	hops := s.rounds * g.w.Size()
	fmt.Fprintf(out, "token: %d rounds, %d hops of %d B, %.3g us a hop\n", s.rounds, hops, s.bytes, float64(took.Nanoseconds())/float64(hops)/1e3)
	return nil
}
