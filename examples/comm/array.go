package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/examples/internal/rank"
	"github.com/symgrad/symgrad/kernel"
	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

// heapBytes is the size of the heap of one lab.
const heapBytes = 1 << 16

// comm is a communicator with memory: all ranks of the world, in their order.
type comm struct {
	*dist.Group
	heap symmetric.Heap
	out  io.Writer
}

// newComm makes a communicator of all ranks of w, as ncclCommSplit with one color does.
//
// Collective: all ranks. Owns: the caller calls close.
func newComm(w *dist.World, out io.Writer) (*comm, error) {
	g, err := w.Split(0, w.Rank())
	if err != nil {
		return nil, err
	}
	heap, err := g.Heap(heapBytes)
	if err != nil {
		return nil, errors.Join(err, g.Close())
	}
	return &comm{g, heap, out}, nil
}

// close ends the communicator and frees its memory.
func (c *comm) close() error { return errors.Join(c.Stream().Synchronize(), c.Close()) }

// array has int32 elements in the heap, on the host or on the rank's GPU.
type array struct {
	tensor.Buffer
	c *comm
}

// array allocates n elements and fills them. With NCCL on GPUs the heap is memory of ncclMemAlloc,
// registered as a window.
//
// Collective: all ranks, same n. Owns: the heap frees it.
func (c *comm) array(n int, value func(i int) int32) (*array, error) {
	r, err := c.heap.Alloc(int64(n) * int64(tensor.I32.Size()))
	if err != nil {
		return nil, err
	}
	b, err := r.Local().As(tensor.I32)
	if err != nil {
		return nil, err
	}
	values := make([]int32, n)
	for i := range values {
		values[i] = value(i)
	}
	a := &array{b, c}
	return a, a.copy(a.Buffer, tensor.Of(values))
}

// values returns the elements, after all operations queued on the communicator's stream.
func (a *array) values() ([]int32, error) {
	if err := a.c.Stream().Synchronize(); err != nil {
		return nil, err
	}
	values := make([]int32, a.Len())
	return values, a.copy(tensor.Of(values), a.Buffer)
}

// copy copies src to dst. One of them is the array.
func (a *array) copy(dst, src tensor.Buffer) error {
	if a.Device() != tensor.Host {
		return kernel.Copy(a.c.Stream(), dst, src)
	}
	to, err := tensor.Data[int32](dst)
	if err != nil {
		return err
	}
	from, err := tensor.Data[int32](src)
	copy(to, from)
	return err
}

// check counts the wrong elements and prints the first and the last element of every rank.
//
// Collective: all ranks.
func (a *array) check(want func(i int) int32) (bad int, err error) {
	got, err := a.values()
	if err != nil {
		return 0, err
	}
	for i, v := range got {
		if v != want(i) {
			bad++
		}
	}
	first, err := a.c.gather(got[0])
	if err != nil {
		return 0, err
	}
	last, err := a.c.gather(got[len(got)-1])
	if err != nil {
		return 0, err
	}
	for r := range first {
		fmt.Fprintf(a.c.out, "rank %d has %d to %d\n", r, first[r], last[r])
	}
	return bad, nil
}

// gather returns the value of every rank, by rank.
//
// Collective: all ranks.
func (c *comm) gather(v int32) ([]int32, error) {
	own, err := c.array(1, func(int) int32 { return v })
	if err != nil {
		return nil, err
	}
	all, err := c.array(c.Size(), func(int) int32 { return 0 })
	if err != nil {
		return nil, err
	}
	if err := rank.Done(c.AllGather(all.Buffer, own.Buffer)); err != nil {
		return nil, err
	}
	return all.values()
}

// verdict fails on every rank if any has wrong elements.
//
// Collective: all ranks. Errors: rank.ErrWrong with the numbers.
func (c *comm) verdict(bad int) error {
	all, err := c.gather(int32(bad))
	if err != nil {
		return err
	}
	for r, n := range all {
		if n != 0 {
			return fmt.Errorf("%w: rank %d has %d wrong elements", rank.ErrWrong, r, n)
		}
	}
	return nil
}
