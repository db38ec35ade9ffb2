package main

import (
	"errors"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/kernel"
	"github.com/symgrad/symgrad/tensor"
)

// apart is --halo sendrecv on a GPU. The border rows are computed and exchanged on the group's
// stream, which has the highest priority. Another stream, of the lowest priority, computes the rows
// between them.
type apart struct {
	b        *board
	push     dist.Stream // the group's stream
	compute  dist.Stream // push with --no-overlap
	cells    tensor.Buffer
	edges    dist.Work // of the newest queued iteration
	interior dist.Work
}

// newApart creates the streams of b.
//
// Owns: b calls close.
func newApart(b *board) (*apart, error) {
	a := &apart{b: b, push: b.w.Stream(), compute: b.w.Stream()}
	var err error
	if a.cells, err = b.cells.Local().As(tensor.F64); err != nil {
		return nil, err
	}
	if b.s.noOverlap {
		return a, nil
	}
	if a.compute, err = kernel.NewStream(a.push); err != nil {
		return nil, err
	}
	return a, nil
}

// close closes the streams, after all queued work has run.
func (a *apart) close() error {
	if a == nil || a.compute == a.push {
		return nil
	}
	return errors.Join(a.compute.Synchronize(), a.compute.Close())
}

// join makes the group's stream wait for all queued work.
func (a *apart) join() error {
	if a == nil {
		return nil
	}
	return a.push.Join(a.interior)
}

// queue queues iteration k. Each of the two parts waits for the other's result of iteration k-1.
func (a *apart) queue(k int) error {
	if err := errors.Join(a.push.Join(a.interior), a.compute.Join(a.edges)); err != nil {
		return err
	}
	edges := min(a.b.rows, 2)
	interiors := min(a.b.rows-edges, mostInteriors)
	err := a.b.launch(a.push, k, 0, edges, interiors)
	if err != nil {
		return err
	}
	if a.edges, err = kernel.Mark(a.push); err != nil {
		return err
	}
	if interiors > 0 {
		if err := a.b.launch(a.compute, k, edges, interiors, interiors); err != nil {
			return err
		}
		if a.interior, err = kernel.Mark(a.compute); err != nil {
			return err
		}
	}
	_, err = a.b.w.With(dist.Hints{Name: "halo"}).Batch(func(g *dist.Group) error {
		return a.b.pair(g, func(row int) (tensor.Buffer, error) {
			at := int(a.b.at(k, row) / pointBytes)
			return a.cells.Slice(at, at+a.b.nx)
		})
	})
	return err
}
