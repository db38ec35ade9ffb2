package dist

import (
	"fmt"
	"slices"
	"strings"

	"github.com/symgrad/symgrad/tensor"
)

// AllReduce computes, on every rank of g,
//
//	for i := range src { dst[i] = src_0[i] red src_1[i] red ... }
//
// NVSHMEM calls it reduce. Run takes the name of a collective as NVSHMEM4Py does.
//
// Shapes: dst has at least the length of src, one dtype; in place (one buffer) or disjoint. Bytes
// of a region have no type for an arithmetic reduction: take a view of them (tensor.Buffer.As).
// Collective: all ranks, same order. Returns: when queued. Owns: dst and src belong to g until
// Work.Wait. Errors: ErrInvalid here; ErrMismatch, ErrAborted, ErrTimeout and ErrClosed from
// Work.Wait.
func (g *Group) AllReduce(dst, src tensor.Buffer, red RedOp) (Work, error) {
	return g.do(KindAllReduce, dst, src, &red, 0)
}

// Reduce is AllReduce with the result on root only; dst is ignored elsewhere and may be the zero
// Buffer. It is MPI's and NCCL's reduce; NVSHMEM's reduce is AllReduce here.
//
// Shapes, Collective, Owns, Errors: as AllReduce.
func (g *Group) Reduce(dst, src tensor.Buffer, red RedOp, root int) (Work, error) {
	return g.do(KindReduce, dst, src, &red, root)
}

// Broadcast copies root's src to every rank's dst. src is ignored elsewhere and may be the zero
// Buffer.
//
// Shapes: the count is that of dst; on root src has exactly that; in place (one buffer) or
// disjoint. Collective, Owns, Errors: as AllReduce.
func (g *Group) Broadcast(dst, src tensor.Buffer, root int) (Work, error) {
	return g.do(KindBroadcast, dst, src, nil, root)
}

// AllGather computes, on every rank of g,
//
//	for r := range g.Size() { copy(dst[r*n:(r+1)*n], src_r) }
//
// NVSHMEM calls it fcollect. Shapes: src has n elements, dst at least Size*n; disjoint, or in place
// with src at element Rank*n of dst. Collective, Owns, Errors: as AllReduce.
func (g *Group) AllGather(dst, src tensor.Buffer) (Work, error) {
	return g.do(KindAllGather, dst, src, nil, 0)
}

// FCollect is AllGather under its NVSHMEM name.
func (g *Group) FCollect(dst, src tensor.Buffer) (Work, error) { return g.AllGather(dst, src) }

// ReduceScatter stores block r of the reduction of all src on rank r:
//
//	for i := range n { dst[i] = src_0[r*n+i] red src_1[r*n+i] red ... }
//
// Shapes: src has Size*n elements, dst at least n; disjoint, or in place with dst at element Rank*n
// of src. Collective, Owns, Errors: as AllReduce; ErrCount unless Size divides the length.
func (g *Group) ReduceScatter(dst, src tensor.Buffer, red RedOp) (Work, error) {
	return g.do(KindReduceScatter, dst, src, &red, 0)
}

// AllToAll sends block j of src to rank j and stores the block from rank i at block i of dst.
//
// Shapes: src has Size*n elements, dst at least as many; disjoint (never in place). Collective,
// Owns, Errors: as AllReduce; ErrCount unless Size divides the length.
func (g *Group) AllToAll(dst, src tensor.Buffer) (Work, error) {
	return g.do(KindAllToAll, dst, src, nil, 0)
}

// Gather stores the n elements of every rank's src at block r of root's dst, which is ignored
// elsewhere.
//
// Shapes: on root dst has at least Size*n elements; disjoint, or in place with src at element
// Rank*n of dst. Collective, Owns, Errors: as AllReduce.
func (g *Group) Gather(dst, src tensor.Buffer, root int) (Work, error) {
	return g.do(KindGather, dst, src, nil, root)
}

// Scatter copies block r of root's src to the dst of rank r. src is ignored elsewhere.
//
// Shapes: the count n is that of dst; on root src has exactly Size*n elements; disjoint, or in
// place with dst at element Rank*n of src. Collective, Owns, Errors: as AllReduce.
func (g *Group) Scatter(dst, src tensor.Buffer, root int) (Work, error) {
	return g.do(KindScatter, dst, src, nil, root)
}

// Send sends src to the matching Recv of peer. Sends to one peer arrive in order.
//
// Shapes: the Recv has the same dtype and length, zero included. Owns: src belongs to g until
// Work.Wait. Errors: as AllReduce; ErrRank for a peer out of range, or this rank itself outside a
// Batch.
func (g *Group) Send(src tensor.Buffer, peer int) (Work, error) {
	return g.do(KindSend, tensor.Buffer{}, src, nil, peer)
}

// Recv receives the data of the matching Send of peer in dst.
//
// Shapes, Owns, Errors: as Send.
func (g *Group) Recv(dst tensor.Buffer, peer int) (Work, error) {
	return g.do(KindRecv, dst, tensor.Buffer{}, nil, peer)
}

// Barrier is done when every rank has reached it and all Puts before it are complete and visible.
//
// Collective: all ranks, same order. Errors: as AllReduce.
func (g *Group) Barrier() (Work, error) {
	return g.do(KindBarrier, tensor.Buffer{}, tensor.Buffer{}, nil, 0)
}

// Sync is done when every rank has reached it. It does not wait for Puts.
//
// Collective: all ranks, same order. Errors: as AllReduce.
func (g *Group) Sync() (Work, error) { return g.do(KindSync, tensor.Buffer{}, tensor.Buffer{}, nil, 0) }

// Call is a collective as a value, for programs that read its name from input, as
// collective_on_buffer of NVSHMEM4Py does.
type Call struct {
	Collective string        // one of CallNames
	Dst, Src   tensor.Buffer // as for the operation; none for barrier and sync
	DType      tensor.DType  // the element type of both views (tensor.Buffer.As); Invalid means the buffers' own
	Red        RedOp         // of allreduce, reduce and reducescatter; the zero value is Sum
	Root       int           // of broadcast, reduce, gather and scatter
	Timing     bool          // measure it
}

// callNames pairs the names of Call.Collective with their kinds. NVSHMEM's names are included if
// they mean the same; its reduce, whose result is on every rank, is allreduce here.
var callNames = []struct {
	name string
	kind Kind
}{
	{"allreduce", KindAllReduce},
	{"reduce", KindReduce},
	{"broadcast", KindBroadcast},
	{"allgather", KindAllGather},
	{"fcollect", KindAllGather},
	{"reducescatter", KindReduceScatter},
	{"alltoall", KindAllToAll},
	{"gather", KindGather},
	{"scatter", KindScatter},
	{"barrier", KindBarrier},
	{"sync", KindSync},
}

// CallNames returns the names that Call.Collective may have.
func CallNames() []string {
	names := make([]string, len(callNames))
	for i := range callNames {
		names[i] = callNames[i].name
	}
	return names
}

// Run runs the collective that c names and returns when it is done.
//
// Collective: all ranks, same order. Returns: 0, or with c.Timing its milliseconds (Work.Elapsed).
// Errors: ErrInvalid for an unknown name; ErrDType for buffers that are not whole elements of
// c.DType; those of the operation.
func (g *Group) Run(c Call) (milliseconds float64, err error) {
	i := slices.IndexFunc(callNames, func(n struct {
		name string
		kind Kind
	},
	) bool {
		return n.name == c.Collective
	})
	if i < 0 {
		return 0, fmt.Errorf("rank %d/%d: %w: unknown collective %q: use one of %s", g.Rank(), g.Size(), ErrInvalid, c.Collective,
			strings.Join(CallNames(), ", "))
	}
	if c.DType.Valid() {
		for _, b := range []*tensor.Buffer{&c.Dst, &c.Src} {
			if b.IsZero() {
				continue
			}
			if *b, err = b.As(c.DType); err != nil {
				return 0, fmt.Errorf("%s rank %d/%d: %w: %w", c.Collective, g.Rank(), g.Size(), ErrDType, err)
			}
		}
	}
	if c.Timing {
		g = g.Timed()
	}
	var red *RedOp
	if callNames[i].kind.Reduces() {
		red = &c.Red
	}
	w, err := g.do(callNames[i].kind, c.Dst, c.Src, red, c.Root)
	if err != nil {
		return 0, err
	}
	if !c.Timing {
		return 0, w.Wait()
	}
	d, err := w.Elapsed()
	return float64(d) / 1e6, err
}
