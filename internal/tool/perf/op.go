package perf

import (
	"fmt"
	"slices"
	"strings"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

// Op is the operation that a row measures.
type Op uint8

// The operations, collectives first. One-sided ones are between rank 0 and the last.
const (
	AllReduce Op = iota
	Reduce
	Broadcast
	AllGather
	ReduceScatter
	AllToAll
	Gather
	Scatter
	SendRecv // every rank sends to the next and receives from the previous one
	Barrier
	Put      // one Put and Quiet, by rank 0
	Get      // one Get, by rank 0
	PutBW    // one PutNBI of many before a Quiet, by rank 0
	GetBW    // one GetNBI of many before a Quiet, by rank 0
	PingPong // one direction of a PutSignal that rank 0 and the last rank send forth and back
	Atomics  // one fetch-add of many by every rank, all on one word of the last rank

	numOps
)

// trait has the properties of an operation.
type trait struct {
	name    string
	bus     func(n float64) float64 // busbw / algbw; nil without bandwidth
	reduces bool
	rooted  bool
	perRank bool // the count of a row is for one block, the size for all
	inPlace bool // has a form in place
	oneSide bool // ranks have different roles, and need a symmetric heap
	rate    bool // all ranks do the same; the rate is the result
	window  int  // operations in one iteration; 0 means 1
}

// window is the number of concurrent operations in a bandwidth test, as in the OSU micro-benchmarks
// (osu_oshm_put_mr, osu_bw).
const window = 64

func same(float64) float64        { return 1 }
func allButOwn(n float64) float64 { return (n - 1) / n }
func twice(n float64) float64     { return 2 * (n - 1) / n }

// The factors are those of nccl-tests: the getBw functions in src/*.cu, explained in
// doc/PERFORMANCE.md.
var traits = [numOps]trait{
	AllReduce:     {name: "allreduce", bus: twice, reduces: true, inPlace: true},
	Reduce:        {name: "reduce", bus: same, reduces: true, rooted: true, inPlace: true},
	Broadcast:     {name: "broadcast", bus: same, rooted: true, inPlace: true},
	AllGather:     {name: "allgather", bus: allButOwn, perRank: true, inPlace: true},
	ReduceScatter: {name: "reducescatter", bus: allButOwn, reduces: true, perRank: true, inPlace: true},
	AllToAll:      {name: "alltoall", bus: allButOwn, perRank: true},
	Gather:        {name: "gather", bus: allButOwn, rooted: true, perRank: true, inPlace: true},
	Scatter:       {name: "scatter", bus: allButOwn, rooted: true, perRank: true, inPlace: true},
	SendRecv:      {name: "sendrecv", bus: same},
	Barrier:       {name: "barrier"},
	Put:           {name: "put", bus: same, oneSide: true},
	Get:           {name: "get", bus: same, oneSide: true},
	PutBW:         {name: "put-bw", bus: same, oneSide: true, window: window},
	GetBW:         {name: "get-bw", bus: same, oneSide: true, window: window},
	PingPong:      {name: "pingpong", bus: same, oneSide: true, window: 2},
	Atomics:       {name: "atomics", oneSide: true, rate: true, window: window},
}

func (op Op) trait() trait { return traits[op] }

// String returns the name: "allreduce".
func (op Op) String() string {
	if op >= numOps {
		return fmt.Sprintf("op(%d)", uint8(op))
	}
	return traits[op].name
}

// Moves reports whether op has a size and a bandwidth: barrier and atomics have none.
func (op Op) Moves() bool { return op.trait().bus != nil }

// Ops returns every operation.
func Ops() []Op {
	var list []Op
	for op := range numOps {
		list = append(list, op)
	}
	return list
}

// Collectives returns every collective operation.
func Collectives() []Op {
	return []Op{AllReduce, Reduce, Broadcast, AllGather, ReduceScatter, AllToAll, Gather, Scatter, SendRecv, Barrier}
}

// OneSided returns every one-sided operation.
func OneSided() []Op { return []Op{Put, Get, PutBW, GetBW, PingPong, Atomics} }

// ParseOps returns the operations of a list such as "allreduce,barrier", in its order; "all" is
// Collectives, "onesided" is OneSided.
//
// Errors: an unknown name, with the known ones.
func ParseOps(s string) ([]Op, error) {
	var names []string
	byName := map[string][]Op{"all": Collectives(), "onesided": OneSided()}
	for op := range numOps {
		names = append(names, op.String())
		byName[op.String()] = []Op{op}
	}
	return parseList(s, append(names, "all", "onesided"), byName)
}

// ParseDTypes returns the element types of a list such as "f32,bf16"; "all" is every one. It also
// accepts names of nccl-tests, such as "float" and "int32".
//
// Errors: an unknown name.
func ParseDTypes(s string) ([]tensor.DType, error) {
	byName := map[string][]tensor.DType{
		"all":  tensor.DTypes(),
		"half": {tensor.F16}, "bfloat16": {tensor.BF16}, "float": {tensor.F32}, "double": {tensor.F64},
		"int8": {tensor.I8}, "int32": {tensor.I32}, "int64": {tensor.I64},
		"uint8": {tensor.U8}, "uint32": {tensor.U32}, "uint64": {tensor.U64},
	}
	var names []string
	for _, dt := range tensor.DTypes() {
		names = append(names, dt.String())
		byName[dt.String()] = []tensor.DType{dt}
	}
	return parseList(s, append(names, "all"), byName)
}

// ParseRedOps returns the reductions of a list such as "sum,max"; "all" is every one that all types
// have, and "mulsum" is nccl-tests' name for premulsum. And, or and xor are for integers only.
//
// Errors: an unknown name.
func ParseRedOps(s string) ([]dist.RedKind, error) {
	byName := map[string][]dist.RedKind{"mulsum": {dist.RedPreMulSum}}
	var names []string
	for _, red := range dist.RedKinds() {
		names = append(names, red.String())
		byName[red.String()] = []dist.RedKind{red}
		if red.Bitwise() {
			continue
		}
		byName["all"] = append(byName["all"], red)
	}
	return parseList(s, append(names, "all"), byName)
}

// parseList returns the values of the words of s, between commas, without duplicates.
func parseList[T comparable](s string, names []string, byName map[string][]T) ([]T, error) {
	var list []T
	for _, word := range strings.Split(s, ",") {
		values, ok := byName[word]
		if !ok {
			return nil, fmt.Errorf("unknown name %q: use one of %s", word, strings.Join(names, ", "))
		}
		for _, v := range values {
			if !slices.Contains(list, v) {
				list = append(list, v)
			}
		}
	}
	return list, nil
}
