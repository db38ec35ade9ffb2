package gpu

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

// DispatchConfig says how a group chooses the engine of an operation. The choice depends only on
// values that are equal on all ranks: kind, dtype, class of reduction, bytes, number of ranks and
// hosts, and the operation's flags. If the device computes during the operation, an Aside engine
// comes first: tables are measured on idle devices.
type DispatchConfig struct {
	Table  *Table // nil for the built-in table
	Engine string // the engine for all operations; "" for a choice
	First  bool   // use the first capable engine, in the order of the Maker, and no table

	optional bool // Engine may be missing, as in a part
}

func (c *DispatchConfig) validate() error {
	if c.Engine != "" && c.First {
		return fmt.Errorf("gpu: %w: engine %q and First are both set: choose one", dist.ErrInvalid, c.Engine)
	}
	if c.Table != nil {
		return c.Table.Validate()
	}
	return nil
}

// route is the engine and the composition of an operation.
type route struct {
	engine int8
	how    how
}

// dispatcher is a DispatchConfig bound to the engines of a group.
type dispatcher struct {
	engines  []Engine
	ranks    int
	hosts    int
	kernels  bool // composed operations can be done
	forced   int  // -1 for none
	first    bool
	exact    map[rowKey][]int8 // rows: engines, the fastest first
	sizes    map[rowKey][]int  // measured size classes by key with size 0, ascending
	rules    []boundRule
	fallback []int8
	large    []int8   // of several hosts: engines for a large allreduce without a row or rule
	asides   [][]int8 // by engine: that engine, then the others

	word  tensor.Buffer // operand of a barrier that is a sum
	cache [64]picked
	probe dist.Op // scratch: an operation as the engine would get it
}

type boundRule struct {
	kinds   []dist.Kind // nil for all
	bytes   int64
	engines []int8
}

// picked is a cached choice: the next operation is often the same.
type picked struct {
	key   pickKey
	route route
}

type pickKey struct {
	kind      dist.Kind
	red       dist.RedKind
	dtype     tensor.DType
	symmetric bool
	beside    bool
	root      int
	count     int
}

// newDispatcher binds c to engines, and agrees on it with the other ranks.
//
// Collective: all ranks of p. Errors: ErrInvalid for an unknown engine; ErrMismatch if ranks
// differ.
func newDispatcher(c DispatchConfig, p *Member, engines []Engine, kernels bool, word tensor.Buffer) (*dispatcher, error) {
	machine, err := p.common(p.machine())
	if err != nil {
		return nil, err
	}
	table := c.Table
	if table == nil {
		table, err = BuiltinTable(machine)
	}
	k := &dispatcher{engines: engines, ranks: p.Size, hosts: p.HostCount(), kernels: kernels, forced: -1, first: c.First, word: word}
	if err == nil {
		err = k.bind(table, machine, &c)
	}
	if err = p.Agree(err); err != nil {
		return nil, err
	}
	own := sha256.Sum256([]byte(k.describe(table)))
	all, err := p.Exchange(own[:])
	if err != nil {
		return nil, err
	}
	for r := range all {
		if string(all[r]) != string(all[0]) {
			return nil, fmt.Errorf("%w: the table or the engines of rank %d differ from rank 0: here %s",
				dist.ErrMismatch, r, k.describe(table))
		}
	}
	return k, nil
}

// machine returns the name of this rank's GPU.
func (p *Member) machine() string {
	if p.Device == nil {
		return ""
	}
	return p.Device.Name()
}

// common returns name if all ranks have the same, else "": tables are measured between equal GPUs.
//
// Collective: all ranks of p. Errors: those of Exchange.
func (p *Member) common(name string) (string, error) {
	own := sha256.Sum256([]byte(name))
	all, err := p.Exchange(own[:])
	if err != nil {
		return "", err
	}
	for _, other := range all {
		if string(other) != string(own[:]) {
			return "", nil
		}
	}
	return name, nil
}

// describe returns all settings that choices depend on.
func (k *dispatcher) describe(table *Table) string {
	names := make([]string, len(k.engines))
	for i, e := range k.engines {
		names[i] = e.Name()
	}
	return fmt.Sprintf("engines %s of %d ranks on %d hosts, forced %d, first %v, kernels %v, %d rows, table %s",
		strings.Join(names, " "), k.ranks, k.hosts, k.forced, k.first, k.kernels, len(k.exact), table.Hash())
}

// bind resolves the engine names of table. Engines missing in it come last, in their own order.
func (k *dispatcher) bind(table *Table, machine string, c *DispatchConfig) error {
	if len(k.engines) == 0 || len(k.engines) > 127 {
		return fmt.Errorf("%w: %d engines", dist.ErrUnsupported, len(k.engines))
	}
	for i, e := range k.engines {
		k.fallback = append(k.fallback, int8(i))
		if e.Name() == c.Engine {
			k.forced = i
		}
	}
	for _, e := range k.engines {
		k.asides = append(k.asides, k.order([]string{e.Name()}))
	}
	if c.Engine != "" && k.forced < 0 && !c.optional {
		return fmt.Errorf("%w: unknown engine %q: use one of %s", dist.ErrInvalid, c.Engine, k.names())
	}
	k.large = k.order([]string{Hierarchical})
	k.exact, k.sizes = map[rowKey][]int8{}, map[rowKey][]int{}
	for i := range table.Rows {
		r := &table.Rows[i]
		if r.Ranks != k.ranks || max(r.Hosts, 1) != k.hosts || !table.Fits(machine) {
			continue
		}
		key, err := r.key()
		if err != nil {
			return err
		}
		k.exact[key] = k.order(r.fastest())
		size := key.size
		key.size = 0
		k.sizes[key] = append(k.sizes[key], size)
	}
	for _, r := range table.Rules {
		if (r.Ranks == 0 || r.Ranks == k.ranks) && max(r.Hosts, 1) == k.hosts {
			kinds, err := r.kinds()
			if err != nil {
				return err
			}
			k.rules = append(k.rules, boundRule{kinds, r.Bytes, k.order(r.Engines)})
		}
	}
	for _, s := range k.sizes { // each by itself: the order does not matter
		slices.Sort(s)
	}
	return nil
}

func (k *dispatcher) names() string {
	names := make([]string, len(k.engines))
	for i, e := range k.engines {
		names[i] = fmt.Sprintf("%q", e.Name())
	}
	return strings.Join(names, ", ")
}

// order returns the engines of the given names, then the others.
func (k *dispatcher) order(names []string) []int8 {
	var o []int8
	for _, name := range names {
		for i, e := range k.engines {
			if e.Name() == name && !slices.Contains(o, int8(i)) {
				o = append(o, int8(i))
			}
		}
	}
	for _, i := range k.fallback {
		if !slices.Contains(o, i) {
			o = append(o, i)
		}
	}
	return o
}

// pick returns the route of op.
//
// Errors: ErrUnsupported with the reason of each engine.
func (k *dispatcher) pick(op *dist.Op) (route, error) {
	key := pickKey{kind: op.Kind, dtype: op.DType(), symmetric: op.Symmetric, beside: op.Overlap, root: op.Root, count: op.Count}
	if op.Kind.Reduces() {
		key.red = op.Red.Kind
	}
	mixed := uint(key.count)*0x9e3779b1>>5 ^ uint(key.kind)*7 ^ uint(key.dtype)*29 ^ uint(key.red)*5 ^ uint(key.root)
	if key.beside {
		mixed ^= 3
	}
	slot := &k.cache[mixed%uint(len(k.cache))]
	if slot.key == key {
		return slot.route, nil
	}
	w, err := k.search(op)
	if err != nil {
		return route{}, err
	}
	*slot = picked{key, w}
	return w, nil
}

// search returns the first engine, in the order for op, that can do op as it is, else the first
// that can do it composed.
func (k *dispatcher) search(op *dist.Op) (route, error) {
	order := k.candidates(op)
	var reasons []error
	for _, i := range order {
		err := k.engines[i].Can(op)
		if err == nil {
			return route{i, plain}, nil
		}
		reasons = append(reasons, fmt.Errorf("%s: %w", k.engines[i].Name(), err))
	}
	for _, i := range order {
		for _, h := range k.hows(op) {
			if k.compose(&k.probe, op, h) && k.engines[i].Can(&k.probe) == nil {
				return route{i, h}, nil
			}
		}
	}
	err := errors.Join(reasons...)
	if !errors.Is(err, dist.ErrUnsupported) {
		err = fmt.Errorf("%w: %w", dist.ErrUnsupported, err)
	}
	return route{}, fmt.Errorf("no engine can: %w", err)
}

// candidates returns the engines to try for op, in order.
func (k *dispatcher) candidates(op *dist.Op) []int8 {
	switch {
	case k.forced >= 0:
		return []int8{int8(k.forced)}
	case op.Kind.PointToPoint():
		return k.batchersFirst()
	case k.first:
		return k.fallback
	}
	for _, i := range k.fallback {
		if a, ok := k.engines[i].(Aside); ok && op.Overlap && a.Aside(op) {
			return k.asides[i]
		}
	}
	size := Size(op, k.ranks)
	for _, key := range k.measured(op) {
		if classes := k.sizes[key]; len(classes) > 0 {
			key.size = nearest(classes, sizeClass(size))
			return k.exact[key]
		}
	}
	for _, r := range k.rules {
		if (r.bytes == 0 || size <= r.bytes) && (r.kinds == nil || slices.Contains(r.kinds, op.Kind)) {
			return r.engines
		}
	}
	if op.Kind == dist.KindAllReduce && size >= leastHierarchical {
		return k.large
	}
	return k.fallback
}

// leastHierarchical is the least size of an allreduce that goes to Hierarchical without a
// measurement.
const leastHierarchical = 1 << 20

// measured returns the row keys that fit op, without sizes, the best first. Sums represent
// reductions that were not measured: kernels of package direct take as long for both, and other
// engines are tried in the order of sums. Likewise bf16 represents types of two bytes, and f32 all
// others.
func (k *dispatcher) measured(op *dist.Op) []rowKey {
	key := rowKey{kind: op.Kind, class: Class(op), symmetric: op.Symmetric, ranks: k.ranks, hosts: k.hosts}
	if !op.Kind.Reduces() {
		return []rowKey{key}
	}
	key.dtype = op.DType()
	stands := key
	stands.dtype = tensor.F32
	if key.dtype.Size() == tensor.BF16.Size() {
		stands.dtype = tensor.BF16
	}
	keys := []rowKey{key, key, stands, stands}
	keys[1].class, keys[3].class = "sum", "sum"
	return keys
}

// nearest returns class if it was measured, else the next larger one, else the largest.
func nearest(measured []int, class int) int {
	for _, m := range measured {
		if m >= class {
			return m
		}
	}
	return measured[len(measured)-1]
}

// batchersFirst returns all engines, Batchers first: all messages between two ranks must use the
// same engine, alone and in group calls.
func (k *dispatcher) batchersFirst() []int8 {
	var order, others []int8
	for _, i := range k.fallback {
		if _, ok := k.engines[i].(Batcher); ok {
			order = append(order, i)
		} else {
			others = append(others, i)
		}
	}
	return append(order, others...)
}
