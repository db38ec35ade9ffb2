package direct

import (
	_ "embed" // the kernels
	"fmt"
	"strings"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
	"github.com/symgrad/symgrad/tensor"
)

//go:embed kernels/access.cu
var accessSource string

//go:embed kernels/element.cu
var elementSource string

//go:embed kernels/common.cu
var commonSource string

//go:embed kernels/packet.cu
var packetSource string

//go:embed kernels/packet2.cu
var packet2Source string

//go:embed kernels/place.cu
var placeSource string

//go:embed kernels/tile.cu
var tileSource string

//go:embed kernels/alone.cu
var aloneSource string

//go:embed kernels/entry.cu
var entrySource string

// redNone is RED of a kernel that only moves.
const redNone = dist.RedXor + 1

// variant identifies one kernel.
type variant struct {
	prog  program
	ranks int
	dtype tensor.DType // Invalid for moves
	red   dist.RedKind // redNone for moves
}

// variantOf returns the kernel of prog for op.
func variantOf(prog program, ranks int, op *dist.Op) variant {
	if !op.Kind.Reduces() {
		return variant{prog, ranks, tensor.Invalid, redNone}
	}
	return variant{prog, ranks, unsigned(op.DType(), op.Red.Kind), op.Red.Kind}
}

// unsigned returns the type whose kernel does red. Sums and products of integers have the same bits
// with and without sign, and kernels combine the bits of all integers in words of 8 bytes.
func unsigned(dt tensor.DType, red dist.RedKind) tensor.DType {
	if red.Bitwise() && !dt.IsFloat() {
		return tensor.U64
	}
	wraps := red == dist.RedSum || red == dist.RedProd || red == dist.RedPreMulSum
	if wraps && dt >= tensor.I8 && dt <= tensor.I64 {
		return dt + tensor.U8 - tensor.I8
	}
	return dt
}

// programNames has the names of kernels in the source.
var programNames = [programs]string{"once_8", "once_128", "twice_128", "pull", "reduce_all", "reduce_own", "push", "tiles", "tiles_own", "combine", "alone"}

// String returns "reduce_all of f32 sum among 4".
func (v variant) String() string {
	if v.red == redNone {
		return fmt.Sprintf("%s among %d", programNames[v.prog], v.ranks)
	}
	return fmt.Sprintf("%s of %v %v among %d", programNames[v.prog], v.dtype, v.red, v.ranks)
}

// index returns the kernel's index in tables for one number of ranks.
func (v variant) index() int { return (int(v.prog)*dtypes+int(v.dtype))*reds + int(v.red) }

// unit is compiled and loaded at once: the kernels of a number of ranks for one type and reduction.
// With tensor.Invalid and redNone it has those that only move.
type unit struct {
	ranks int
	dtype tensor.DType
	red   dist.RedKind
}

// unitsOf returns all units that a group of ranks can need.
func unitsOf(ranks int) []unit {
	all, reds := []unit{{ranks, tensor.Invalid, redNone}}, dist.RedKinds()
	if ranks == 1 { // all others are copies
		all, reds = nil, []dist.RedKind{dist.RedPreMulSum}
	}
	for _, dt := range tensor.DTypes() {
		for _, red := range reds {
			if unsigned(dt, red) == dt && !(red.Bitwise() && dt.IsFloat()) {
				all = append(all, unit{ranks, dt, red})
			}
		}
	}
	return all
}

// programs returns the kernels of u.
func (u unit) programs() []program {
	switch {
	case u.ranks == 1:
		return []program{alone}
	case u.red == redNone:
		return []program{onceShort, onceLine, pull, push}
	}
	return []program{onceShort, onceLine, twiceLine, pull, reduceAll, reduceOwn, tileAll, tileOwn, combine}
}

// variant returns the kernel of u by prog.
func (u unit) variant(prog program) variant { return variant{prog, u.ranks, u.dtype, u.red} }

// String returns "f32 sum among 4".
func (u unit) String() string {
	if u.red == redNone {
		return fmt.Sprintf("moves among %d", u.ranks)
	}
	return fmt.Sprintf("%v %v among %d", u.dtype, u.red, u.ranks)
}

// source returns the text of u, and the compiler's options.
func (u unit) source() cuda.Source {
	return cuda.Source{
		Name:    "direct.cu",
		Text:    sourceOf(u.programs()),
		Options: append([]string{"--std=c++17", "--fmad=false", "--ftz=false", "--prec-div=true"}, u.defines()...),
	}
}

// sourceOf returns the text of kernels: the shared part, then a namespace for each. The macros of a
// namespace end with it.
func sourceOf(progs []program) string {
	var b strings.Builder
	for _, text := range []string{accessSource, elementSource, commonSource} {
		b.WriteString(text)
	}
	for _, prog := range progs {
		kernel := [programs]int{
			onceShort: 0, onceLine: 0, twiceLine: 1, pull: 2, reduceAll: 3, reduceOwn: 4, push: 5, tileAll: 6, tileOwn: 7, combine: 8,
		}[prog]
		protocol := 0
		if prog == onceLine || prog == twiceLine {
			protocol = 1
		}
		text := fmt.Sprintf("#define KERNEL %d\n#define PROTOCOL %d\n#define ENTRY %s\n", kernel, protocol, programNames[prog]) +
			strings.Join(prog.texts(), "\n")
		fmt.Fprintf(&b, "namespace in_%s {\n%s\n}\n", programNames[prog], text)
		for _, line := range strings.Split(text, "\n") {
			if rest, ok := strings.CutPrefix(line, "#define "); ok {
				name, _, _ := strings.Cut(rest, " ")
				name, _, _ = strings.Cut(name, "(")
				fmt.Fprintf(&b, "#undef %s\n", name)
			}
		}
	}
	return b.String()
}

// texts returns the parts of p's source after the shared ones.
func (p program) texts() []string {
	switch p {
	case onceShort, onceLine:
		return []string{packetSource, entrySource}
	case twiceLine:
		return []string{packetSource, packet2Source, entrySource}
	case tileAll, tileOwn:
		return []string{tileSource, entrySource}
	case alone:
		return []string{aloneSource}
	}
	return []string{placeSource, entrySource}
}

// defines returns the constants that the source gets from Go.
func (u unit) defines() []string {
	var d []string
	for _, x := range []struct {
		name  string
		value int
	}{
		{"RANKS", u.ranks},
		{"DTYPE", int(u.dtype)},
		{"RED", int(u.red)},
		{"MAX_BLOCKS", MaxBlocks},
		{"MAX_THREADS", MaxThreads},
		{"HELLO_AT", helloAt},
		{"SCALARS_AT", scalarsAt},
		{"CLOSE_AT", closeAt},
		{"OPEN_AT", openAt},
		{"EPOCHS_AT", epochsAt},
		{"TABLE_AT", tableAt},
		{"SENT_AT", sentAt},
		{"DONE_AT", doneAt},
		{"TILE_SLOTS", tileSlots},
		{"TILE_SHIFT", tileShift},
	} {
		d = append(d, fmt.Sprintf("-D%s=%d", x.name, x.value))
	}
	return d
}
