package lower

import (
	"fmt"
	"slices"

	"gorgonia.org/gorgonia"

	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/internal/compile/program/draft"
	"github.com/symgrad/symgrad/internal/compile/update"
	"github.com/symgrad/symgrad/internal/compile/values"
	"github.com/symgrad/symgrad/optim"
	"github.com/symgrad/symgrad/tensor"
)

// Update is an optimizer's update on a device: its settings, and the memory of its states.
type Update struct {
	Config optim.Config      // with defaults
	zero   bool              // gradients become 0 after their use
	Nodes  gorgonia.Nodes    // the parameters, in the order of the graph
	Pieces []ddp.Piece       // updated part of each: all elements, or those that the rank owns
	States [][]tensor.Buffer // states, by parameter and slot
	Words  [6]tensor.Buffer  // f64: rate, scale, powers of beta1 and beta2, steps made, steps skipped
	normAt tensor.Buffer     // f64
}

// NewUpdate returns the update of a graph's parameters, without memory. shapes are those of the
// inputs. d exchanges the gradients, or is nil.
func NewUpdate(g *Parts, c optim.Config, dualValues bool, shapes map[*gorgonia.Node][]int, d *ddp.DDP) *Update {
	u := &Update{Config: c.WithDefaults(), Pieces: g.pieces(shapes, d)}
	u.zero = dualValues && !u.Config.KeepGradients
	return u
}

// Allocate allocates the states of all parameters with alloc, which returns zeroed memory.
func (u *Update) Allocate(g *Parts, alloc func(dt tensor.DType, n int) (tensor.Buffer, error)) error {
	block, err := alloc(tensor.F64, 2*(len(u.Words)+1))
	if err != nil {
		return err
	}
	for i := range u.Words { // at multiples of 16 bytes
		if u.Words[i], err = block.Slice(2*i, 2*i+1); err != nil {
			return err
		}
	}
	if u.normAt, err = block.Slice(2*len(u.Words), 2*len(u.Words)+1); err != nil {
		return err
	}
	for i := range g.Params {
		n := g.Params[i].Node
		dt, err := values.DType(n.Dtype())
		if err != nil || !dt.IsFloat() || dt.Size() < 4 {
			return fmt.Errorf("parameter %q: %w: it is %v", Called(n), optim.ErrUnsupported, n.Dtype())
		}
		u.Nodes = append(u.Nodes, n)
		var slots []tensor.Buffer
		for range u.Config.Slots() {
			if u.Pieces[i].Len == 0 {
				slots = append(slots, tensor.Buffer{})
				continue
			}
			b, err := alloc(dt, u.Pieces[i].Len)
			if err != nil {
				return fmt.Errorf("state of %q: %w", Called(n), err)
			}
			slots = append(slots, b)
		}
		u.States = append(u.States, slots)
	}
	return g.CheckGradients()
}

// updating adds an update to a program.
type updating struct {
	work
	*Update
	shard   *sharding      // of the exchange of gradients; may be nil
	outputs gorgonia.Nodes // of the graph
}

// emit adds the update. operands returns parameters and gradients.
func (x *updating) emit(operands func(i int) (weight, grad draft.Operand, err error)) error {
	u := &update.Update{Config: x.Config, GradientZero: x.zero, Norm: program.None, Skipped: program.None}
	for i, to := range []*program.ID{&u.Rate, &u.Scale, &u.Pow1, &u.Pow2, &u.Count} {
		*to = x.outside([]string{"rate", "scale", "beta1^t", "beta2^t", "steps"}[i], program.State, x.Words[i])
	}
	if u.Config.Measures() {
		u.Norm = x.outside("norm", program.Output, x.normAt)
	}
	if x.Config.SkipNonFinite {
		u.Skipped = x.outside("skipped steps", program.Output, x.Words[5])
	}
	for i, n := range x.Nodes {
		w, g, err := operands(i)
		if err != nil {
			return fmt.Errorf("update of %q: %w", Called(n), err)
		}
		p := update.Param{Name: n.Name(), Whole: w.Shape, Weight: w, Grad: g, At: -1}
		shape := slices.Clone(w.Shape)
		if x.shard != nil {
			p.Weight, p.Grad = x.shard.pieces(n, w, g, x.Pieces[i])
			shape = []int{x.Pieces[i].Len}
		}
		if p.Weight.Len() > 0 {
			for k, name := range x.Config.Slots() {
				p.Slots = append(p.Slots, x.outside(n.Name()+" "+name, program.State, x.States[i][k], shape...))
			}
		}
		u.Params = append(u.Params, p)
	}
	x.out.Norm, x.out.Skipped = u.Norm, u.Skipped
	begin := len(x.Program.Steps)
	if x.shard == nil {
		return u.Emit(x.Builder)
	}
	u.Sum = func(o draft.Operand) { x.shard.e.sumOver(x.shard.e.Layout.Group, o) }
	if err := u.Emit(x.Builder); err != nil {
		return err
	}
	x.shard.spread(u, x.Nodes, x.outputs, begin, !u.Config.Measures() && x.Config.Name != optim.LAMB)
	return nil
}

// update adds the update that ends each run.
func (l *lowering) update() error {
	x := &updating{work: l.work, Update: l.opt.Update, shard: l.shard, outputs: l.g.Outputs}
	return x.emit(func(i int) (draft.Operand, draft.Operand, error) {
		p := l.g.Params[i]
		w, ok := l.values[p.Node]
		g, there := l.values[p.Grad]
		if !ok || !there {
			return w, g, fmt.Errorf("its gradient is not computed: %w", optim.ErrNoGradient)
		}
		for _, d := range l.out.Duals {
			if d.Param == i && l.shard == nil {
				g = l.Whole(d.ID)
			}
		}
		if g.IsNum && !l.out.Exchange.staged() {
			g = l.Stored(g)
		}
		if g.Len() == w.Len() { // shapes may differ in dimensions of 1
			g = l.Reshape(g, w.Shape)
		}
		return w, g, nil
	})
}

// UpdateAlone returns the program of an update that follows other programs' runs, and the Outside
// values of the gradients. weights are the parameters.
func UpdateAlone(o Options, weights []tensor.Buffer) (*Lowered, []program.ID, error) {
	u := o.Update
	x := &updating{work: newWork(o.Name), Update: u}
	grads := make([]program.ID, len(u.Nodes))
	err := x.emit(func(i int) (draft.Operand, draft.Operand, error) {
		n, at := u.Nodes[i], weights[i]
		shape := slices.Clone(o.Shapes[n])
		w := x.Whole(x.outside(n.Name(), program.Param, at, shape...))
		grads[i] = x.Program.Add(program.Value{
			Name: "d " + n.Name(), DType: at.DType(), Shape: shape, Role: program.Gradient, Place: program.Outside,
		})
		x.out.follow = append(x.out.follow, &grads[i])
		return w, x.Whole(grads[i]), nil
	})
	if err == nil {
		err = x.out.finish(&o)
	}
	return x.out, grads, err
}

// CheckGradients rejects a graph without gradients.
func (g *Parts) CheckGradients() error {
	if len(g.Params) == 0 {
		return fmt.Errorf("the graph has no gradients: %w: call gorgonia.Grad or ddp.Attach before New", optim.ErrNoGradient)
	}
	return nil
}
