package direct

import (
	_ "embed" // the kernels
	"fmt"
	"strings"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/cuda"
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

//go:embed kernels/entry.cu
var entrySource string

// redNone is RED of a kernel that only moves.
const redNone = dist.RedPreMulSum + 1

// entryName is what each kernel is called.
const entryName = "entry"

// variant is one kernel: what is compiled by itself.
type variant struct {
	prog  program
	ranks int
	dtype tensor.DType // Invalid where nothing is reduced
	red   dist.RedKind // redNone there
}

// variantOf is the kernel for a kind, by prog.
func variantOf(prog program, ranks int, op *dist.Op) variant {
	if !op.Kind.Reduces() {
		return variant{prog, ranks, tensor.Invalid, redNone}
	}
	return variant{prog, ranks, op.DType(), op.Red.Kind}
}

// String is "reduceAll of f32 sum among 4".
func (v variant) String() string {
	name := [programs]string{"once-8", "once-128", "twice-128", "pull", "reduce-all", "reduce-own", "push"}[v.prog]
	if v.red == redNone {
		return fmt.Sprintf("%s among %d", name, v.ranks)
	}
	return fmt.Sprintf("%s of %v %v among %d", name, v.dtype, v.red, v.ranks)
}

// source is the text of v and the compiler's options.
func (v variant) source() cuda.Source {
	texts := []string{accessSource, elementSource, commonSource}
	switch v.prog {
	case onceShort, onceLine:
		texts = append(texts, packetSource)
	case twiceLine:
		texts = append(texts, packetSource, packet2Source)
	default:
		texts = append(texts, placeSource)
	}
	return cuda.Source{
		Name:    "direct.cu",
		Text:    strings.Join(append(texts, entrySource), "\n"),
		Options: append([]string{"--std=c++17", "--fmad=false", "--ftz=false", "--prec-div=true"}, v.defines()...),
	}
}

// defines is what the source takes from here.
func (v variant) defines() []string {
	kernel := [programs]int{onceShort: 0, onceLine: 0, twiceLine: 1, pull: 2, reduceAll: 3, reduceOwn: 4, push: 5}[v.prog]
	protocol := 0
	if v.prog == onceLine || v.prog == twiceLine {
		protocol = 1
	}
	var d []string
	for _, x := range []struct {
		name  string
		value int
	}{
		{"KERNEL", kernel},
		{"PROTOCOL", protocol},
		{"RANKS", v.ranks},
		{"DTYPE", int(v.dtype)},
		{"RED", int(v.red)},
		{"MAX_BLOCKS", MaxBlocks},
		{"MAX_THREADS", MaxThreads},
		{"HELLO_AT", helloAt},
		{"SCALARS_AT", scalarsAt},
		{"CLOSE_AT", closeAt},
		{"OPEN_AT", openAt},
		{"EPOCHS_AT", epochsAt},
		{"TABLE_AT", tableAt},
	} {
		d = append(d, fmt.Sprintf("-D%s=%d", x.name, x.value))
	}
	return d
}
