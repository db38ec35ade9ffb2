package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/examples/internal/rank"
	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

// heapBytes is the size of the heap of one example.
const heapBytes = 1 << 16

// pe is the environment of an example: rank, stream and symmetric heap.
type pe struct {
	my, n  int              // nvshmem.my_pe() and nvshmem.n_pes()
	stream *dist.HostStream // device.create_stream()
	team   *dist.Group      // the world, with its operations on stream
	heap   symmetric.Heap
	out    io.Writer
}

// newPE creates a stream and a heap.
//
// Collective: all ranks. Owns: the caller calls close.
func newPE(w *dist.World, out io.Writer) (*pe, error) {
	heap, err := w.Heap(heapBytes)
	if err != nil {
		return nil, err
	}
	s := dist.NewHostStream()
	return &pe{my: w.Rank(), n: w.Size(), stream: s, team: w.On(s), heap: heap, out: out}, nil
}

// close closes the stream and unmaps the heap.
func (p *pe) close() error { return errors.Join(p.stream.Close(), p.heap.Close()) }

// array is a tensor of float32 in the symmetric heap, like the result of nvshmem.array.
type array struct {
	*tensor.Tensor
	Region symmetric.Region
	Values []float32 // the elements of this PE
}

// array returns a new array of n zeros.
//
// Collective: all ranks, same n. Owns: the caller frees it.
func (p *pe) array(n int) (*array, error) {
	r, err := p.heap.Alloc(int64(n) * int64(tensor.F32.Size()))
	if err != nil {
		return nil, err
	}
	t, err := tensor.New(r, tensor.F32, n) // fresh memory is 0; clearing it here could erase a faster PE's put
	if err != nil {
		return nil, err
	}
	values, err := tensor.Data[float32](t.Buffer())
	return &array{t, r, values}, err
}

// free is nvshmem.free for several arrays.
//
// Collective: all ranks, same order.
func (p *pe) free(arrays ...*array) error {
	for _, a := range arrays {
		if err := p.heap.Free(a.Region); err != nil {
			return err
		}
	}
	return nil
}

// show prints, on PE 0, one line with the value of every PE. In the documentation each PE prints
// its own value, in any order.
//
// Shapes/units: format takes the PE's number, and its value in the type V. Collective: all ranks.
func show[V tensor.Element](p *pe, format string, value V) error {
	all := make([]V, p.n)
	if err := rank.Done(p.team.AllGather(tensor.Of(all), tensor.Of([]V{value}))); err != nil {
		return err
	}
	for r, v := range all {
		fmt.Fprintf(p.out, format+"\n", r, v)
	}
	return nil
}

// wrong returns how many elements differ from their expected value.
func wrong(got []float32, want func(i int) float32) int {
	n := 0
	for i, v := range got {
		if v != want(i) {
			n++
		}
	}
	return n
}
