package ops

import (
	"fmt"
	"slices"
	"sync"

	"gorgonia.org/gorgonia"

	"github.com/symgrad/symgrad/dist"
)

// Overlap is the hooks of one cost, wired so that each gradient is on its way while the backward
// pass still computes the next one, on gorgonia's stock tape machine.
//
//	begin = Begin(cost)                 runs after the forward pass
//	s_i   = Start(dy_i, hook_i, begin)  runs right after gradient i
//	join  = Join(s_0, s_1, ...)         runs after the last Start
//	dw_i  = Wait(s_i, join)             runs after join
//
// A tape machine runs nodes in depth-first post-order of their ids. A Wait that hung on its own
// Start alone would run right after it, and one that hung on the last Start would pull that one
// forward; with the Join, which hangs on all Starts, every Start runs as soon as its gradient is
// there and every Wait after the last Start.
type Overlap struct {
	cost  *gorgonia.Node
	step  Step
	begin *gorgonia.Node
	join  *gorgonia.Node
	hooks []*Hook
}

// Step is told of the phases of a run, from the goroutine that runs the graph.
type Step interface {
	// Begin is called between the forward and the backward pass, before the first Reducer.Start.
	Begin() error
	// Join is called when every gradient has been given to its Reducer, before the first
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
			return nil, fmt.Errorf("overlap of %q: %w: it has one", cost.Name(), dist.ErrInvalid)
		}
	}
	o := &Overlap{cost: cost, step: step}
	var err error
	if o.begin, err = applyUnique(&Begin{overlap: o}, cost); err != nil {
		return nil, err
	}
	return o, nil
}

// Add makes h one of the hooks. The order of calls is the order of Grad's result.
//
// Errors: dist.ErrInvalid when h is nil, of another graph or already added to an Overlap.
func (o *Overlap) Add(h *Hook) error {
	switch {
	case h == nil:
		return fmt.Errorf("overlap: %w: no hook", dist.ErrInvalid)
	case h.owner != nil:
		return fmt.Errorf("%v: %w: it has been added before", h, dist.ErrInvalid)
	case h.node.Graph() != o.cost.Graph():
		return fmt.Errorf("%v: %w: the cost is in another graph", h, dist.ErrInvalid)
	case o.join != nil:
		return fmt.Errorf("%v: %w: the graph has been differentiated", h, dist.ErrInvalid)
	}
	h.owner = o
	o.hooks = append(o.hooks, h)
	return nil
}

// Grad differentiates the cost with respect to the parameters of the hooks and wires the Waits
// behind the Join. It may be called once.
//
// Grad also looks for nodes that could write into a hook's output. The tape machine lets an
// elementwise op overwrite an input that it takes to be dead, although a hook's output, or a
// reshape of it, is the parameter's own memory (gorgonia issue 511). Such a hook copies.
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

// differentiating is held by grad, so that ranks which are goroutines of one process differentiate
// one after the other: the constants that Gorgonia puts into gradients are nodes that all graphs
// share, and it notes their hashes in them when it first needs them.
var differentiating sync.Mutex

// grad is gorgonia.Grad with its panics as errors.
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

// tie adds the Join and hangs every Wait on it.
func (o *Overlap) tie() error {
	starts := make(gorgonia.Nodes, 0, len(o.hooks))
	for _, h := range o.hooks {
		if h.wait == nil || h.param.Deriv() != h.wait {
			return fmt.Errorf("gradient of %q: %w: it does not come from the hook; a node of the cost uses the parameter directly",
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

// Order is the order in which the tape machine runs the Starts: Order()[0] is the index, in the
// order of Add, of the hook whose gradient is ready first. It is nil before Grad.
func (o *Overlap) Order() []int {
	if o.join == nil {
		return nil
	}
	order := make([]int, len(o.hooks))
	for i := range order {
		order[i] = i
	}
	// The Starts run by ascending id: one is only reached from the loop over all nodes by id, from
	// its Wait, whose id is higher, or from the Join, whose children are visited by id.
	slices.SortFunc(order, func(a, b int) int { return byID(o.hooks[a].start, o.hooks[b].start) })
	return order
}

// Rewire makes children the children of n. Gorgonia keeps a node's children in two places: the
// node, which everything that runs or differentiates a graph reads, and the graph's list of
// parents, which only ever grows. The old children keep n among their parents. That makes them no
// roots, which they were not before, and no leaves; the tape machine's compiler asks for parents
// only to find Let statements. The hash of n stays what it was: it is the identity under which the
// graph knows n, still different from all others.
func Rewire(n *gorgonia.Node, children gorgonia.Nodes) {
	old := Children(n)
	gorgonia.WithChildren(slices.Clone(children))(n)
	for _, c := range children {
		if !old.Contains(c) {
			n.Graph().SetEdge(edge{n, c})
		}
	}
}
