package perf

import (
	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

// segment is a run of known elements: those of a pattern from a phase on.
type segment struct {
	raw     []byte
	pattern pattern
	phase   int
}

// layout has the buffers of one case on one rank, their inputs, and the expected results.
type layout struct {
	m        *memory
	extent   int64         // bytes of either memory that the case may access
	areas    []*area       // the areas that the case uses
	src, dst tensor.Buffer // the zero Buffer if this rank has none
	inputs   []segment
	results  []segment
	word     bool // this rank also checks the word of atomics
	ranks    int
	red      dist.RedOp
}

// newLayout returns the layout of case c on rank of n.
func newLayout(c Case, m *memory, rank, n int) (*layout, error) {
	l := &layout{m: m, extent: c.Bytes, red: redOpOf(c, rank), ranks: n, word: c.Op == Atomics && rank == n-1}
	if !c.Op.Moves() {
		return l, nil
	}
	from, to := &m.send, &m.recv
	if c.InPlace {
		from = to
	}
	l.areas = []*area{from}
	if from != to {
		l.areas = append(l.areas, to)
	}
	srcAt, srcLen, dstAt, dstLen := spans(c, rank, n)
	var err error
	if srcLen > 0 {
		var raw []byte
		if l.src, raw, err = from.view(c.DType, srcAt, srcLen); err != nil {
			return nil, err
		}
		l.inputs = []segment{{raw, inputPattern(c, n, rank), 0}}
	}
	if dstLen > 0 {
		var raw []byte
		if l.dst, raw, err = to.view(c.DType, dstAt, dstLen); err != nil {
			return nil, err
		}
		l.results = results(c, raw, rank, n)
	}
	return l, nil
}

// spans returns the ranges of source and destination in rank's memories, in elements; length 0
// means none.
func spans(c Case, rank, n int) (srcAt, srcLen, dstAt, dstLen int) {
	srcLen, dstLen = c.Count, c.Count
	switch c.Op {
	case AllGather:
		dstLen *= n
	case ReduceScatter:
		srcLen *= n
	case AllToAll:
		srcLen, dstLen = n*srcLen, n*dstLen
	case Reduce:
		dstLen = on(c.Root, rank, dstLen)
	case Broadcast:
		srcLen = on(c.Root, rank, srcLen)
	case Gather:
		dstLen = on(c.Root, rank, n*dstLen)
	case Scatter:
		srcLen = on(c.Root, rank, n*srcLen)
	case Put, PutBW:
		srcLen, dstLen = on(0, rank, srcLen), on(n-1, rank, dstLen)
	case Get, GetBW:
		srcLen, dstLen = on(n-1, rank, srcLen), on(0, rank, dstLen)
	case PingPong:
		srcLen = on(0, rank, srcLen) + on(n-1, rank, srcLen)
		dstLen = srcLen
	}
	if c.InPlace { // the smaller buffer of the two is this rank's block of the larger
		switch {
		case srcLen > dstLen && dstLen > 0:
			dstAt = rank * c.Count
		case srcLen < dstLen && srcLen > 0:
			srcAt = rank * c.Count
		}
	}
	return srcAt, srcLen, dstAt, dstLen
}

// on returns length if rank is where, else 0.
func on(where, rank, length int) int {
	if rank == where {
		return length
	}
	return 0
}

// results returns the expected contents of rank's destination.
func results(c Case, dst []byte, rank, n int) []segment {
	block := c.Count * c.DType.Size()
	switch c.Op {
	case AllReduce, Reduce:
		return []segment{{dst, reducedPattern(c, n), 0}}
	case ReduceScatter:
		return []segment{{dst, reducedPattern(c, n), rank * c.Count}}
	case Broadcast:
		return []segment{{dst, inputPattern(c, n, c.Root), 0}}
	case Scatter:
		return []segment{{dst, inputPattern(c, n, c.Root), rank * c.Count}}
	case SendRecv:
		return []segment{{dst, inputPattern(c, n, (rank+n-1)%n), 0}}
	case Put, PutBW:
		return []segment{{dst, inputPattern(c, n, 0), 0}}
	case Get, GetBW:
		return []segment{{dst, inputPattern(c, n, n-1), 0}}
	case PingPong: // each gets the other's
		return []segment{{dst, inputPattern(c, n, n-1-rank), 0}}
	}
	var list []segment
	for r := range n {
		s := segment{dst[r*block:][:block], inputPattern(c, n, r), 0}
		if c.Op == AllToAll {
			s.phase = rank * c.Count
		}
		list = append(list, s)
	}
	return list
}

// redOpOf returns the reduction of c with rank's scalar.
func redOpOf(c Case, rank int) dist.RedOp {
	red := dist.RedOp{Kind: c.Red}
	if c.Red == dist.RedPreMulSum {
		red.Scalar = dist.Scalar{DType: c.DType, Bits: bitsOf(c.DType, float64(scalar(rank)))}
	}
	return red
}

// turn is the shift of patterns from one iteration to the next, so that no iteration can pass with
// the last one's result.
const turn = 17

// write writes the inputs of an iteration.
func (l *layout) write(iteration int) {
	for _, s := range l.inputs {
		s.pattern.fill(s.raw, s.phase+turn*iteration)
	}
	for _, a := range l.areas {
		l.m.push(a, l.extent)
	}
}

// read returns the number of wrong elements in the result of an iteration.
func (l *layout) read(iteration int) int64 {
	var n int64
	for _, a := range l.areas {
		l.m.pull(a, l.extent)
	}
	for _, s := range l.results {
		n += s.pattern.wrong(s.raw, s.phase+turn*iteration)
	}
	if l.word && !l.m.exact(l.ranks) {
		n++
	}
	return n
}

// fillBytes sets all of raw to v, by doubling, at the speed of memory.
func fillBytes(raw []byte, v byte) {
	if len(raw) == 0 {
		return
	}
	raw[0] = v
	for n := 1; n < len(raw); n *= 2 {
		copy(raw[n:], raw[:n])
	}
}

// prepare writes guards, poison and inputs for a checked iteration.
func (l *layout) prepare(iteration int) {
	l.m.send.guard(l.extent)
	l.m.recv.guard(l.extent)
	for _, s := range l.results {
		fillBytes(s.raw, poison)
	}
	l.write(iteration)
}

// inPlace reports whether source and destination share memory on this rank.
func (l *layout) inPlace() bool { return tensor.Overlap(l.src, l.dst) }

// disturbed returns the number of changed elements of the source, and of changed bytes after the
// buffers, in a checked iteration.
func (l *layout) disturbed(iteration int) int64 {
	for _, a := range l.areas {
		if !l.inPlace() { // otherwise read has copied all of it
			l.m.pull(a, l.extent)
		}
	}
	n := l.m.send.trespasses(l.extent) + l.m.recv.trespasses(l.extent)
	if l.inPlace() {
		return n
	}
	for _, s := range l.inputs {
		n += s.pattern.wrong(s.raw, s.phase+turn*iteration)
	}
	return n
}
