package main

import (
	_ "embed"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/examples/internal/device"
	"github.com/symgrad/symgrad/examples/internal/rank"
	"github.com/symgrad/symgrad/kernel"
	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

// source is the kernel of the iteration.
//
//go:embed jacobi.cu
var source string

const (
	pieceThreads  = 256  // columns of a block, which are exchanged as one piece
	mostInteriors = 1024 // blocks for the rows between the edges, per piece
)

// board is a strip on a GPU. It has the same layout, and only the device accesses it.
type board struct {
	*strip
	s       settings
	numbers *device.Board
	code    *kernel.Module
	sweeps  *kernel.Function
	halos   symmetric.Region // received pieces: from above, then from below
	change  symmetric.Region
	late    symmetric.Region
	all     [2]*kernel.Table // cells and halos of all ranks
	apart   *apart           // streams of --halo sendrecv; else nil
}

// pieces returns the number of pieces of a row of nx points.
func pieces(nx int) int { return (nx - 2 + pieceThreads - 1) / pieceThreads }

// runOnDevice is run for a world of GPUs.
func (s *settings) runOnDevice(w *dist.World, out io.Writer) (err error) {
	b := &board{strip: &strip{w: w, nx: s.nx, inner: s.ny - 2}, s: *s}
	before, rows := divide(b.inner, w.Rank(), w.Size())
	b.first, b.rows = before+1, rows
	defer func() { err = errors.Join(err, b.close()) }()
	if err := b.alloc(); err != nil {
		return err
	}
	if err := b.fill(); err != nil {
		return err
	}
	s.announce(w, out, b.how())
	found, took, err := b.solve(out)
	if err != nil {
		return err
	}
	if err := b.report(out, found, took); err != nil {
		return err
	}
	if s.verify {
		return b.verify(found, out)
	}
	return nil
}

// how describes how exchange and computation share the GPU.
func (b *board) how() string {
	switch {
	case b.s.halo == haloSendRecv && b.s.noOverlap:
		return "on the same stream"
	case b.s.halo == haloSendRecv:
		return "on a separate stream"
	case b.s.noOverlap:
		return "from a separate kernel"
	}
	return "from the kernel that computes"
}

// alloc allocates the memory and compiles the kernel.
//
// Collective: all ranks.
func (b *board) alloc() (err error) {
	cells, halos := 2*b.copyBytes(), int64(2*pieces(b.nx))*signalBytes
	if b.heap, err = b.w.Heap(cells + halos + 4*symmetric.Alignment + device.BoardBytes(b.w.Size())); err != nil {
		return err
	}
	for _, r := range []struct {
		region *symmetric.Region
		bytes  int64
	}{{&b.cells, cells}, {&b.halos, halos}, {&b.change, pointBytes}, {&b.late, signalBytes}} {
		if *r.region, err = b.heap.Alloc(r.bytes); err != nil {
			return err
		}
	}
	if b.numbers, err = device.NewBoard(b.w, b.heap); err != nil {
		return err
	}
	for i, r := range []symmetric.Region{b.cells, b.halos} {
		if b.all[i], err = kernel.Peers(b.w.Group, r); err != nil {
			return err
		}
	}
	text := kernel.Source{Name: "jacobi.cu", Text: source, Options: []string{"--fmad=false"}}
	if b.s.halo == haloDevice {
		text.NVSHMEM, text.Options = true, append(text.Options, "-DHALO_NVSHMEM")
	}
	if b.code, err = kernel.Compile(b.w.Stream(), text); err != nil {
		return err
	}
	if b.s.halo == haloSendRecv {
		if b.apart, err = newApart(b); err != nil {
			return err
		}
	}
	b.sweeps, err = b.code.Function("sweep")
	return err
}

// close frees the memory of the kernels, after they have run. The world closes the heap.
func (b *board) close() error {
	errs := []error{b.apart.close(), b.w.Stream().Synchronize()}
	for _, t := range b.all {
		if t != nil {
			errs = append(errs, t.Close())
		}
	}
	if b.code != nil {
		errs = append(errs, b.code.Close())
	}
	return errors.Join(errs...)
}

// fill sets both copies to the boundary values, 0 inside.
//
// Collective: all ranks.
func (b *board) fill() error {
	points := int(b.copyBytes() / pointBytes)
	both := make([]float64, 2*points)
	for i := range (b.rows + 2) * b.nx {
		u := boundary(b.first-1+i/b.nx, i%b.nx, b.nx, b.s.ny)
		both[i], both[points+i] = u, u
	}
	if err := kernel.Copy(b.w.Stream(), b.cells.Local(), tensor.Of(both)); err != nil {
		return err
	}
	return rank.Done(b.w.Barrier()) // no rank may put into a halo before it is initialized
}

// solve is like solve on the host: it queues iterations, and reads results only when it must.
//
// Collective: all ranks.
func (b *board) solve(out io.Writer) (found solution, took time.Duration, err error) {
	begin := time.Now()
	for k := 0; ; {
		from := k + 1
		k = b.s.pause(from)
		for i := from; i <= k; i++ {
			if err := b.queue(i); err != nil {
				return found, 0, fmt.Errorf("iteration %d: %w", i, err)
			}
		}
		if err := b.check(); err != nil {
			return found, 0, err
		}
		if !b.s.looks(k) {
			continue
		}
		change, err := b.furthest()
		if err != nil {
			return found, 0, fmt.Errorf("change of iteration %d: %w", k, err)
		}
		fmt.Fprintf(out, "iteration %6d  largest change %.3g\n", k, change)
		if b.s.last(k, change) {
			err := rank.Done(b.w.Barrier()) // until all rows have arrived
			return solution{k, change}, time.Since(begin), err
		}
	}
}

// queue launches iteration k: as one kernel, or with --no-overlap as two. With --halo device a
// barrier follows. --halo sendrecv has its own streams.
func (b *board) queue(k int) error {
	if b.apart != nil {
		return b.apart.queue(k)
	}
	s := b.w.Stream()
	edges := min(b.rows, 2)
	interiors := min(b.rows-edges, mostInteriors)
	if b.s.noOverlap {
		if interiors > 0 {
			if err := b.launch(s, k, edges, interiors, interiors); err != nil {
				return err
			}
		}
		interiors = 0
	}
	if err := b.launch(s, k, 0, edges+interiors, interiors); err != nil {
		return err
	}
	if b.s.halo != haloDevice {
		return nil
	}
	_, err := b.w.With(dist.Hints{Name: "halo"}).Barrier() // the puts of all ranks' kernels are complete
	return err
}

// launch queues on s the blocks of iteration k with numbers begin to begin+count-1 in y.
func (b *board) launch(s dist.Stream, k, begin, count, interiors int) error {
	_, above := divide(b.inner, max(b.w.Rank()-1, 0), b.w.Size())
	flag := map[bool]int32{true: 1}
	shape := kernel.Shape{Grid: [3]uint32{uint32(pieces(b.nx)), uint32(count)}, Block: [3]uint32{pieceThreads}}
	return b.sweeps.Launch(s, shape, b.all[0], b.all[1], b.change, b.late,
		int32(b.w.Rank()), int32(b.w.Size()), int32(b.nx), int32(b.rows), int32(above), uint64(b.copyBytes()/pointBytes),
		uint64(k), flag[b.s.looks(k)], flag[b.s.halo == haloPut], uint64(device.Patience), int32(begin), int32(interiors))
}

// check waits for the queued iterations.
//
// Errors: ErrTimeout if a neighbour's row has not arrived, with the death of a rank.
func (b *board) check() error {
	if err := b.apart.join(); err != nil {
		return err
	}
	late := make([]uint64, 1)
	if err := kernel.Copy(b.w.Stream(), tensor.Of(late), b.late.Local()); err != nil {
		return err
	}
	if late[0] != 0 {
		return device.Late(b.w, fmt.Errorf("iteration %d: %w: no row of a neighbour arrived within %v", late[0], dist.ErrTimeout, device.Patience))
	}
	return nil
}

// furthest returns the largest change of any rank's points in the checked iteration, which has
// finished.
//
// Collective: all ranks.
func (b *board) furthest() (float64, error) {
	own := make([]int64, 1)
	if err := kernel.Copy(b.w.Stream(), tensor.Of(own), b.change.Local()); err != nil {
		return 0, err
	}
	if err := kernel.Copy(b.w.Stream(), b.change.Local(), tensor.Of([]int64{0})); err != nil {
		return 0, err
	}
	all, err := b.numbers.Gather(own[0])
	if err != nil {
		return 0, err
	}
	most := 0.0
	for _, bits := range all {
		most = max(most, math.Float64frombits(uint64(bits)))
	}
	return most, nil
}

// report prints the time, averaged over the ranks.
//
// Collective: all ranks.
func (b *board) report(out io.Writer, found solution, took time.Duration) error {
	all, err := b.numbers.Gather(int64(took))
	if err != nil {
		return err
	}
	sum := int64(0)
	for _, t := range all {
		sum += t
	}
	tell(out, b.s, found, float64(sum)/float64(b.w.Size())/1e9)
	return nil
}

// verify is like verify on the host: rank 0 copies the other ranks' rows from their GPUs.
//
// Collective: all ranks, after a barrier. Errors: rank.ErrWrong on every rank.
func (b *board) verify(found solution, out io.Writer) error {
	bad := 0
	if b.w.Rank() == 0 {
		got, err := assemble(b.s, b.w.Size(), func(to []float64, r int) error { return b.fetch(to, r, found.iterations) })
		if err != nil {
			return err
		}
		bad = compare(b.s, got, found, out)
	}
	if err := b.numbers.Verdict("points that are not those of the serial solution", int64(bad)); err != nil {
		return err
	}
	fmt.Fprintf(out, "verify: the bits of the serial solution in all %d points\n", b.s.nx*b.s.ny)
	return nil
}

// fetch copies the rows of rank r after iteration k.
func (b *board) fetch(to []float64, r, k int) error {
	part, err := b.cells.Local(), error(nil)
	if r != b.w.Rank() {
		part, err = b.cells.Peer(r)
	}
	if err != nil {
		return err
	}
	at := int(b.at(k, 1))
	rows, err := part.Slice(at, at+len(to)*pointBytes)
	if err != nil {
		return err
	}
	return kernel.Copy(b.w.Stream(), tensor.Of(to), rows)
}
