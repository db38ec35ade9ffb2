package perf

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

// Style is the way in which iterations follow each other.
type Style string

// Styles of iterations.
const (
	OSU        Style = "osu"          // a barrier before each iteration, untimed
	BackToBack Style = "back-to-back" // one barrier, then all iterations
)

// Config has the settings of Run. All ranks must have equal ones. The zero value measures AllReduce
// of f32 sums.
type Config struct {
	Ops    []Op           // none means AllReduce
	DTypes []tensor.DType // none means F32
	RedOps []dist.RedKind // of operations that reduce; none means sum

	MinBytes  int64 // smallest size; 0 means 8
	MaxBytes  int64 // largest size; 0 means 64 MiB
	StepBytes int64 // from one size to the next; 0 means a step by Factor
	Factor    int   // from one size to the next; 0 means 4

	Iters  int // timed iterations of a row; 0 means 256 MiB in all, 20 to 10000, within RowBudget; on a device some 5 ms
	Warmup int // untimed iterations before them; 0 means a tenth of Iters, 2 at least; negative means none
	Checks int // checked iterations, before those; 0 means 1; negative means no checks
	Root   int // of rooted operations

	InPlace bool  // in place instead of out of place
	Within  []Op  // those of Ops that are measured in place, despite InPlace and Both
	Both    bool  // out of place and in place
	Private bool  // buffers outside of the symmetric heap
	Fresh   bool  // read the last result and rewrite the input before each iteration
	Style   Style // "" means OSU; on a device BackToBack, queued without single waits
	Queued  bool  // use the group's stream and wait for the Work, not the calling goroutine; always on a device
	Pin     bool  // on one host, keep each rank on its own core, between GPUs far from the others

	Symmetric bool // promise equal offsets of buffers on all ranks: dist.Hints.Symmetric
	Graph     int  // on a device: launches of a captured graph of Iters operations; 0 means single operations
	Rounds    int  // rounds over all rows, each with all targets in turn; 0 means 1

	device bool // for a device, which has other defaults
}

// Limits of a Config; larger values are typing mistakes.
const (
	maxIters = 1 << 24 // each is a sample of 8 bytes
	maxBytes = 1 << 40

	maxRounds = 1000
)

// Validate reports the first setting in c that a world of ranks ranks cannot use.
//
// Errors: dist.ErrInvalid.
func (c Config) Validate(ranks int) error {
	d := c.withDefaults()
	var err error
	switch {
	case ranks < 1:
		err = fmt.Errorf("%d ranks: want 1 or more", ranks)
	case d.MinBytes < 0 || d.MaxBytes > maxBytes:
		err = fmt.Errorf("sizes from %d to %d bytes: want 0 to 1024G", d.MinBytes, d.MaxBytes)
	case d.MinBytes > d.MaxBytes:
		err = fmt.Errorf("the smallest size, %s, is larger than the largest, %s", FormatSize(d.MinBytes), FormatSize(d.MaxBytes))
	case d.StepBytes < 0:
		err = fmt.Errorf("a step of %d bytes: want 1 or more", d.StepBytes)
	case d.StepBytes == 0 && d.Factor < 2:
		err = fmt.Errorf("a step factor of %d: want 2 or more", d.Factor)
	case d.StepBytes > 0 && (d.MaxBytes-d.MinBytes)/d.StepBytes > 1<<16:
		err = fmt.Errorf("a step of %d bytes makes more than 65536 sizes", d.StepBytes)
	case c.Iters < 0 || c.Iters > maxIters || c.Warmup > maxIters || c.Checks > maxIters:
		err = fmt.Errorf("%d iterations, %d to warm up, %d checks: want 0 to %d", c.Iters, c.Warmup, c.Checks, maxIters)
	case d.Root < 0 || d.Root >= ranks:
		err = fmt.Errorf("root %d: want 0 to %d", d.Root, ranks-1)
	case d.Style != OSU && d.Style != BackToBack:
		err = fmt.Errorf("unknown style %q: use one of %s, %s", d.Style, OSU, BackToBack)
	case c.Graph < 0 || c.Graph > maxIters || c.Rounds < 0 || c.Rounds > maxRounds:
		err = fmt.Errorf("%d launches of a graph, %d rounds: want 0 to %d, and 0 to %d", c.Graph, c.Rounds, maxIters, maxRounds)
	case c.Fresh && d.Style == BackToBack && !c.device:
		err = errors.New("fresh buffers need a moment between iterations, which back-to-back does not have: use style osu")
	case c.InPlace && c.Both:
		err = errors.New("in place and both are set: choose one")
	case c.Private && slices.ContainsFunc(d.Ops, func(op Op) bool { return op.trait().oneSide }):
		err = errors.New("one-sided operations need the symmetric heap: leave private buffers out")
	case ranks == 1 && slices.Contains(d.Ops, PingPong):
		err = errors.New("pingpong needs 2 ranks or more")
	case d.onlyBitsOfFloats():
		err = fmt.Errorf("%v of floating-point numbers: bits are combined of integers: use a type such as i32", d.RedOps[0])
	case len(d.cases(ranks)) == 0:
		err = errors.New("no operation has a form in place")
	}
	if err != nil {
		return fmt.Errorf("bench: %w: %w", dist.ErrInvalid, err)
	}
	return nil
}

func (c Config) withDefaults() Config {
	if len(c.Ops) == 0 {
		c.Ops = []Op{AllReduce}
	}
	if len(c.DTypes) == 0 {
		c.DTypes = []tensor.DType{tensor.F32}
	}
	if len(c.RedOps) == 0 {
		c.RedOps = []dist.RedKind{dist.RedSum}
	}
	if c.MinBytes == 0 {
		c.MinBytes = 8
	}
	if c.MaxBytes == 0 {
		c.MaxBytes = 64 << 20
	}
	if c.Factor == 0 {
		c.Factor = 4
	}
	if c.Checks == 0 {
		c.Checks = 1
	}
	if c.Rounds == 0 {
		c.Rounds = 1
	}
	switch {
	case c.Style != "":
	case c.device:
		c.Style = BackToBack
	default:
		c.Style = OSU
	}
	return c
}

// iters returns the number of timed iterations of a case, before the budget.
func (c Config) iters(k Case) int {
	if c.Iters > 0 {
		return c.Iters
	}
	if c.device && c.Style == BackToBack && !k.Op.trait().oneSide {
		return c.deviceIters(k.Bytes)
	}
	moved := k.Bytes * int64(max(k.Op.trait().window, 1))
	return int(min(max((256<<20)/max(moved, 1), 20), 10000))
}

// warmup returns the number of untimed iterations before them.
func (c Config) warmup(k Case) int {
	if c.Warmup != 0 {
		return max(c.Warmup, 0)
	}
	return max(c.iters(k)/10, 2)
}

// hash returns a number that ranks share if their configurations and engines are equal.
func (c Config) hash(engines []string) uint64 {
	text, err := json.Marshal(struct {
		Config  Config
		Engines []string
	}{c, engines}) // cannot fail: numbers, names and lists of them
	if err != nil {
		return 0
	}
	h := fnv.New64a()
	_, _ = h.Write(text)
	return h.Sum64()
}

// Case is one row to measure.
type Case struct {
	Op      Op
	DType   tensor.DType
	Red     dist.RedKind // of an Op that reduces
	Bytes   int64        // of a rank's larger buffer; of the word of an atomic
	Count   int          // elements, as the operation counts
	InPlace bool
	Root    int // -1 without a root
}

// Cases returns the rows of c on ranks ranks, in the order of measurement.
func (c Config) Cases(ranks int) []Case { return c.withDefaults().cases(ranks) }

func (c Config) cases(ranks int) []Case {
	var list []Case
	for _, op := range c.Ops {
		for _, dt := range c.dtypesOf(op) {
			for _, red := range c.redOpsOf(op, dt) {
				list = append(list, c.sweep(Case{Op: op, DType: dt, Red: red}, ranks)...)
			}
		}
	}
	return list
}

func (c Config) dtypesOf(op Op) []tensor.DType {
	if !op.Moves() {
		return []tensor.DType{tensor.U8}
	}
	return c.DTypes
}

// onlyBitsOfFloats reports whether an operation reduces, but no requested reduction exists for a
// requested type.
func (c Config) onlyBitsOfFloats() bool {
	return slices.ContainsFunc(c.Ops, func(op Op) bool { return op.trait().reduces }) &&
		!slices.ContainsFunc(c.DTypes, func(dt tensor.DType) bool { return len(c.redOpsOf(AllReduce, dt)) > 0 })
}

// redOpsOf returns the reductions of op on elements of dt: bitwise ones are for integers only.
func (c Config) redOpsOf(op Op, dt tensor.DType) []dist.RedKind {
	if !op.trait().reduces {
		return []dist.RedKind{dist.RedSum}
	}
	return slices.DeleteFunc(slices.Clone(c.RedOps), func(red dist.RedKind) bool { return red.Bitwise() && dt.IsFloat() })
}

// modesOf returns the values of InPlace to measure. It is empty for an operation without a form in
// place if only that is requested.
func (c Config) modesOf(op Op) []bool {
	switch has := op.trait().inPlace; {
	case has && (c.InPlace || slices.Contains(c.Within, op)):
		return []bool{true}
	case c.InPlace:
		return nil
	case c.Both && has:
		return []bool{false, true}
	}
	return []bool{false}
}

// sweep returns a case for every size and mode. Sizes with equal numbers of whole elements are
// merged.
func (c Config) sweep(like Case, ranks int) []Case {
	t, modes := like.Op.trait(), c.modesOf(like.Op)
	like.Root = -1
	if t.rooted {
		like.Root = c.Root
	}
	if like.Op == Atomics {
		like.DType, like.Count, like.Bytes = tensor.U64, 1, 8
	}
	if !like.Op.Moves() && len(modes) > 0 {
		return []Case{like}
	}
	blocks := 1
	if t.perRank {
		blocks = ranks
	}
	unit := int64(blocks * like.DType.Size())
	var list []Case
	for _, bytes := range sizes(c.MinBytes, c.MaxBytes, c.StepBytes, c.Factor) {
		count := int(max(bytes/unit, 1))
		if count == like.Count {
			continue
		}
		like.Count, like.Bytes = count, int64(count)*unit
		for _, like.InPlace = range modes {
			list = append(list, like)
		}
	}
	return list
}
