package ddp

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/ddp/compress"
	"github.com/symgrad/symgrad/optim"
	"github.com/symgrad/symgrad/tensor"
)

// Plan is the layout of the buckets: which gradient is where in which bucket. It is equal on all
// ranks.
type Plan struct {
	Params  []PlanParam  // the used parameters, in the order of the learnables
	Buckets []PlanBucket // in the order in which they are started
	Unused  []string     // learnables that the cost does not depend on, which are not trained
	Memory  string       // where the buckets are: "symmetric heap (shm)"
	Stage   int          // Config.Stage
}

// PlanParam is one parameter.
type PlanParam struct {
	Name   string
	Shape  []int // empty for a scalar
	DType  tensor.DType
	Bucket int // index of its bucket
	Offset int // of its first element in the bucket, in elements
}

// PlanBucket is a bucket: a run of memory that one collective reduces.
type PlanBucket struct {
	DType    tensor.DType
	Elements int   // padding included: with Stage >= 1 it is Shard for every rank
	Shard    int   // with Stage >= 1: rank r owns elements r*Shard to (r+1)*Shard, a multiple of optim.Block; else 0
	Params   []int // indices of its parameters, in the order of their gradients
}

// Bytes returns the size of the bucket.
func (b PlanBucket) Bytes() int64 { return int64(b.Elements) * int64(b.DType.Size()) }

// Len returns the number of elements of the parameter.
func (p PlanParam) Len() int { return gtensor.Shape(p.Shape).TotalSize() }

// String returns "w0 f32(784, 512)".
func (p PlanParam) String() string {
	return fmt.Sprintf("%s %v%v", p.Name, p.DType, gtensor.Shape(p.Shape))
}

// little returns the least bytes worth a collective of its own, for buckets of at most first and
// later bytes.
func little(first, later int64) int64 { return min(first/4, later/64) }

// fill puts the parameters into buckets. order[0] is the index of the parameter whose gradient is
// ready first. A bucket is a run of parameters of one dtype, in that order, of at most first bytes
// (the first bucket of its dtype) or later bytes (the others). A larger parameter has a bucket to
// itself. A bucket of less than little bytes, as of a large layer's bias, also takes the next
// parameter, of any size. Gradients begin at multiples of align bytes and, if sharded, of
// optim.Block elements.
func (p *Plan) fill(order []int, first, later int64, align int) {
	open := make(map[tensor.DType]int) // index in filled of the bucket that takes the next parameter of the dtype
	var filled []PlanBucket
	var last []int // position in order of each bucket's last parameter
	gathered := p.Stage == stageParams
	for pos := range order {
		i := order[pos]
		if gathered { // backward through order: as the forward pass first uses the parameters
			i = order[len(order)-1-pos]
		}
		q := p.Params[i]
		size := int64(q.Len()) * int64(q.DType.Size())
		b, ok := open[q.DType]
		limit := later
		if ok && slices.IndexFunc(filled, func(f PlanBucket) bool { return f.DType == q.DType }) == b {
			limit = first
		}
		if !ok || filled[b].Bytes()+size > limit && filled[b].Bytes() >= little(first, later) {
			b = len(filled)
			open[q.DType] = b
			filled = append(filled, PlanBucket{DType: q.DType})
			last = append(last, len(order)-1-pos)
		}
		unit := max(align/q.DType.Size(), 1)
		if p.Stage > 0 {
			unit = max(unit, optim.Block)
		}
		p.Params[i].Offset = (filled[b].Elements + unit - 1) / unit * unit
		filled[b].Elements = p.Params[i].Offset + q.Len()
		filled[b].Params = append(filled[b].Params, i)
		if !gathered {
			last[b] = pos
		}
	}
	// Buckets of several dtypes fill at the same time. They start in the order in which they are
	// full.
	rank := make([]int, len(filled))
	for b := range rank {
		rank[b] = b
	}
	slices.SortFunc(rank, func(a, b int) int { return cmp.Compare(last[a], last[b]) })
	p.Buckets = make([]PlanBucket, 0, len(filled))
	for b, from := range rank {
		p.Buckets = append(p.Buckets, filled[from])
		for _, i := range filled[from].Params {
			p.Params[i].Bucket = b
		}
	}
}

// lay sets p.Stage and lays the parameters out for so many ranks; see fill.
func (p *Plan) lay(order []int, c Config, ranks, align int) {
	p.Stage = c.Stage
	first, later := c.bucketBytes()
	p.fill(order, first, later, align)
	if p.Stage > 0 {
		p.shard(ranks)
	}
}

// lines returns the facts of the plan, one a line. Differences between ranks are reported in this
// order.
func (p *Plan) lines() []string {
	var l []string
	for i, q := range p.Params {
		l = append(l, fmt.Sprintf("parameter %d: %v", i, q))
	}
	for _, name := range p.Unused {
		l = append(l, "unused parameter "+name)
	}
	for b, q := range p.Buckets {
		l = append(l, fmt.Sprintf("bucket %d: %v[%d] of %s", b, q.DType, q.Elements, p.names(q)))
	}
	return l
}

func (p *Plan) names(b PlanBucket) string {
	names := make([]string, len(b.Params))
	for i, j := range b.Params {
		names[i] = p.Params[j].Name
	}
	return strings.Join(names, " ")
}

// String returns a table of the buckets, and the unused parameters.
func (p Plan) String() string {
	var s strings.Builder
	params, bytes := 0, int64(0)
	for _, b := range p.Buckets {
		params += b.Elements
		bytes += b.Bytes()
	}
	fmt.Fprintf(&s, "%d parameters, %d elements, %d B in %d buckets in %s\n", len(p.Params), params, bytes, len(p.Buckets), p.Memory)
	if p.Stage > 0 {
		fmt.Fprintf(&s, "sharding stage %d, padding included\n", p.Stage)
	}
	t := tabwriter.NewWriter(&s, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "bucket\tdtype\telements\tbytes\tparameters")
	for i, b := range p.Buckets {
		fmt.Fprintf(t, "%d\t%v\t%d\t%d\t%s\n", i, b.DType, b.Elements, b.Bytes(), p.names(b))
	}
	_ = t.Flush() // to a strings.Builder, which never fails
	if len(p.Unused) > 0 {
		fmt.Fprintf(&s, "not used by the cost, not trained: %s\n", strings.Join(p.Unused, " "))
	}
	return s.String()
}

// sharded reports whether a rank updates only its own pieces.
func (p *Plan) sharded() bool { return p.Stage >= stageState }

// staged reports whether whole buckets of gradients exist only while they fill and are reduced.
func (p *Plan) staged() bool { return p.Stage >= stageGrads }

// gathers reports whether the parameters are sharded.
func (p *Plan) gathers() bool { return p.Stage == stageParams }

// Owned returns the pieces of a rank, in the order of Params. Without sharding it returns every
// whole parameter. With sharding a piece is the part of a parameter in elements rank*Shard to
// (rank+1)*Shard of its bucket.
func (p *Plan) Owned(rank int) []Piece {
	var own []Piece
	for i, q := range p.Params {
		piece := Piece{Param: i, Len: q.Len()}
		if p.Stage > 0 {
			shard := p.Buckets[q.Bucket].Shard
			lo := max(q.Offset, rank*shard)
			piece.Offset, piece.Len = lo-q.Offset, min(q.Offset+q.Len(), (rank+1)*shard)-lo
		}
		if piece.Len > 0 {
			own = append(own, piece)
		}
	}
	return own
}

// shard pads each bucket to Shard elements for every rank, with Shard a multiple of optim.Block.
func (p *Plan) shard(ranks int) {
	for i := range p.Buckets {
		b := &p.Buckets[i]
		unit := ranks * optim.Block
		b.Elements = (b.Elements + unit - 1) / unit * unit
		b.Shard = b.Elements / ranks
	}
}

// hookBucket returns bucket i as the Codec of a rank gets it.
func (p *Plan) hookBucket(i, rank, ranks int) compress.Bucket {
	b := &p.Buckets[i]
	h := compress.Bucket{Index: i, DType: b.DType, Elements: b.Elements, Rank: rank, Ranks: ranks}
	for _, j := range b.Params {
		q := &p.Params[j]
		h.Params = append(h.Params, compress.Param{Name: q.Name, Shape: q.Shape, Offset: q.Offset})
	}
	return h
}

// checkHookState rejects state of an unknown parameter, or of a name that several parameters share.
func (p *Plan) checkHookState(state []compress.State) error {
	for _, s := range state {
		named := 0
		for _, p := range p.Params {
			if p.Name == s.Param {
				named++
			}
		}
		switch {
		case named == 0:
			return fmt.Errorf("%w: %s of unknown parameter %q", dist.ErrInvalid, s.Slot, s.Param)
		case named > 1:
			return fmt.Errorf("%w: %s of %q, the name of %d parameters; give each its own name with gorgonia.WithName",
				dist.ErrInvalid, s.Slot, s.Param, named)
		}
	}
	return nil
}
