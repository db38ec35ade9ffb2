package ops

import (
	"fmt"
	"slices"
	"sync"

	"gorgonia.org/gorgonia"

	"github.com/symgrad/symgrad/dist"
)

// Overlap is the hooks of one cost, connected so that each gradient is reduced while the backward
// pass computes the next one, on gorgonia's own tape machine.
//
//	begin = Begin(cost)                 runs after the forward pass
//	s_i   = Start(dy_i, hook_i, begin)  runs right after gradient i
//	join  = Join(s_0, s_1, ...)         runs after the last Start
//	dw_i  = Wait(s_i, join)             runs after join
//
// A tape machine runs nodes in depth-first post-order of their IDs. A Wait that depended on its own
// Start alone would run right after it. A Wait that depended on the last Start would pull that
// Start forward. Join depends on all Starts, so every Start runs as soon as its gradient is
// computed, and every Wait runs after the last Start.
type Overlap struct {
	cost  *gorgonia.Node
	step  Step
	begin *gorgonia.Node
	join  *gorgonia.Node
	hooks []*Hook
}

// Step is called at the phases of a run, on the goroutine that runs the graph.
type Step interface {
	// Begin is called between the forward and the backward pass, before the first Reducer.Start.
	Begin() error
	// Join is called when every gradient has been passed to its Reducer, before the first
	// Reducer.Wait.
	Join() error
}

// NewOverlap adds a Begin node after cost and returns an Overlap without hooks.
//
// Errors: dist.ErrInvalid when cost is nil, without a graph, or has an Overlap.
func NewOverlap(cost *gorgonia.Node, step Step) (*Overlap, error) {
	if cost == nil || cost.Graph() == nil || step == nil {
		return nil, fmt.Errorf("overlap: %w: no cost, or one without a graph, or no step", dist.ErrInvalid)
	}
	for _, n := range cost.Graph().AllNodes() {
		if b, ok := n.Op().(*Begin); ok && b.overlap.cost == cost {
			return nil, fmt.Errorf("overlap of %q: %w: the cost has an overlap already", cost.Name(), dist.ErrInvalid)
		}
	}
	o := &Overlap{cost: cost, step: step}
	var err error
	if o.begin, err = applyUnique(&Begin{overlap: o}, cost); err != nil {
		return nil, err
	}
	return o, nil
}

// Add adds h to the hooks. The order of calls is the order of Grad's result.
//
// Errors: dist.ErrInvalid when h is nil, of another graph or already added to an Overlap.
func (o *Overlap) Add(h *Hook) error {
	switch {
	case h == nil:
		return fmt.Errorf("overlap: %w: no hook", dist.ErrInvalid)
	case h.owner != nil:
		return fmt.Errorf("%v: %w: it was added before", h, dist.ErrInvalid)
	case h.node.Graph() != o.cost.Graph():
		return fmt.Errorf("%v: %w: the cost is in another graph", h, dist.ErrInvalid)
	case o.join != nil:
		return fmt.Errorf("%v: %w: the graph has been differentiated", h, dist.ErrInvalid)
	}
	h.owner = o
	o.hooks = append(o.hooks, h)
	return nil
}

// Grad differentiates the cost with respect to the parameters of the hooks, and makes the Waits
// depend on the Join. It may be called once.
//
// Grad also looks for nodes that could overwrite a hook's output. The tape machine lets an
// elementwise op overwrite an input after the input's last use. But a hook's output, or a reshape
// of it, is the parameter's own memory (gorgonia issue 511). Such a hook copies the parameter.
//
// Returns: the gradient nodes, in the order of Add. They are Wait nodes: pass them to
// gorgonia.CompileFunction. Errors: gorgonia's; dist.ErrInvalid for two different nodes that the
// tape machine would merge.
func (o *Overlap) Grad() (gorgonia.Nodes, error) {
	if o.join != nil || len(o.hooks) == 0 {
		return nil, fmt.Errorf("gradient of %q: %w: no hooks, or called before", o.cost.Name(), dist.ErrInvalid)
	}
	params := make([]*gorgonia.Node, len(o.hooks))
	for i, h := range o.hooks {
		params[i] = h.param
	}
	if _, err := grad(o.cost, params); err != nil {
		return nil, fmt.Errorf("gradient of %q: %w", o.cost.Name(), err)
	}
	if err := o.tie(); err != nil {
		return nil, err
	}
	o.protect()
	if err := checkMerges(o.cost.Graph()); err != nil {
		return nil, err
	}
	waits := make(gorgonia.Nodes, len(o.hooks))
	for i, h := range o.hooks {
		waits[i] = h.wait
	}
	return waits, nil
}

// differentiating is held by grad. Ranks that are goroutines of one process so differentiate one
// after the other: gorgonia's constants in gradients are nodes that all graphs share, and gorgonia
// writes their hashes at first use.
var differentiating sync.Mutex

// grad is gorgonia.Grad with its panics returned as errors.
func grad(cost *gorgonia.Node, wrt []*gorgonia.Node) (_ gorgonia.Nodes, err error) {
	differentiating.Lock()
	defer differentiating.Unlock()
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("gorgonia: %v", p)
		}
		RenewIndex(cost.Graph()) // gorgonia removes nodes while it differentiates
	}()
	RenewIndex(cost.Graph())
	return gorgonia.Grad(cost, wrt...)
}

// tie adds the Join and makes every Wait depend on it.
func (o *Overlap) tie() error {
	starts := make(gorgonia.Nodes, 0, len(o.hooks))
	for _, h := range o.hooks {
		if h.wait == nil || h.param.Deriv() != h.wait {
			return fmt.Errorf("gradient of %q: %w: the gradient does not come from the hook; a node of the cost uses the parameter directly",
				h.param.Name(), dist.ErrInvalid)
		}
		starts = append(starts, h.start)
	}
	slices.SortFunc(starts, byID)
	var err error
	if o.join, err = applyUnique(&Join{overlap: o}, starts[0]); err != nil {
		return err
	}
	Rewire(o.join, starts)
	for _, h := range o.hooks {
		Rewire(h.wait, gorgonia.Nodes{h.start, o.join})
	}
	return nil
}

func byID(a, b *gorgonia.Node) int { return int(a.ID() - b.ID()) }

// Order returns the order in which the tape machine runs the Starts: Order()[0] is the index, in
// the order of Add, of the hook whose gradient is ready first. It is nil before Grad.
func (o *Overlap) Order() []int {
	if o.join == nil {
		return nil
	}
	order := make([]int, len(o.hooks))
	for i := range order {
		order[i] = i
	}
	// The Starts run by ascending ID. A Start is reached from the loop over all nodes by ID, from
	// its Wait, whose ID is higher, or from the Join, whose children are visited by ID.
	slices.SortFunc(order, func(a, b int) int { return byID(o.hooks[a].start, o.hooks[b].start) })
	return order
}

// Rewire makes children the children of n. Gorgonia stores a node's children twice: in the node,
// for all code that runs or differentiates a graph, and in the graph's list of parents, which only
// grows. So the old children still list n as a parent. That is harmless: whether they count as
// roots or leaves does not change, and the tape machine's compiler reads parents only to find Let
// statements. The hash of n does not change: the graph knows n by this hash, which is still unique.
func Rewire(n *gorgonia.Node, children gorgonia.Nodes) {
	old := Children(n)
	gorgonia.WithChildren(slices.Clone(children))(n)
	for _, c := range children {
		if !old.Contains(c) {
			n.Graph().SetEdge(edge{n, c})
		}
	}
}
