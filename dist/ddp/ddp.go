package ddp

import (
	"errors"
	"fmt"
	"slices"

	"gorgonia.org/gorgonia"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/drive"
	"github.com/symgrad/symgrad/optim"
)

// DDP is one rank's end of the data-parallel training of one model. The goroutine that runs the
// graph calls its methods, between runs.
type DDP struct {
	team     *team
	cfg      Config
	plan     Plan
	imagined bool // see Imagine
	closed   bool

	mem     *memory
	buckets []*bucket // in the order of plan.Buckets
	slots   []*slot   // in the order of plan.Params
	rows    rowWatch

	batch  batch
	run    run
	counts counts
	shares shares
	clock  clock

	wire   exchanger // of full buckets
	stage  stage     // of sharding
	shards *shards   // the stage, if it is 3
	local  localSGD
	solver *shardSolver // the one of NewSolver, with sharding
	driver driver       // for machines
}

// Model returns the trained parameters for solver.Step, in the order of Attach's learnables. With
// sharding only the solver of NewSolver can use their gradients: see the package comment.
func (d *DDP) Model() []gorgonia.ValueGrad {
	model := make([]gorgonia.ValueGrad, len(d.slots))
	for i, s := range d.slots {
		model[i] = s.param
	}
	return model
}

// Grads returns the gradient nodes of Model. Pass all of them to gorgonia.CompileFunction.
func (d *DDP) Grads() gorgonia.Nodes {
	grads := make(gorgonia.Nodes, len(d.slots))
	for i, s := range d.slots {
		grads[i] = s.wait
	}
	return grads
}

// Unused returns the names of the learnables that the cost does not depend on.
func (d *DDP) Unused() []string { return slices.Clone(d.plan.Unused) }

// Plan returns the layout of the buckets.
func (d *DDP) Plan() Plan { return d.plan }

// String returns the plan as a table.
func (d *DDP) String() string { return d.plan.String() }

// LocalSteps returns Config.LocalSteps. Unless it is 0, each rank has a solver state of its own.
func (d *DDP) LocalSteps() int { return d.local.every }

// Pieces returns this rank's pieces of the parameters of Plan.Params.
func (d *DDP) Pieces() []Piece { return d.plan.Owned(d.team.Rank()) }

// Machine returns d as a machine uses it that exchanges gradients by steps of its program. Only
// machines of this module do.
func (d *DDP) Machine() drive.Exchange { return &d.driver }

// WireBytes returns the bytes of gradients that this rank passes to collectives in one step:
// buckets, or the messages of a WireDType or Hook, and with Replicas its parts of them once more.
// The bytes that a backend moves may differ.
func (d *DDP) WireBytes() int64 {
	total := int64(0)
	for _, b := range d.buckets {
		total += d.wireBytes(b)
	}
	return total
}

func (d *DDP) wireBytes(b *bucket) int64 {
	n := d.wire.bytes(b)
	if d.team.across != nil {
		n += n / int64(d.team.Size()) // this rank's part, over the replicas
	}
	return n
}

// Memory returns the bytes of this rank.
func (d *DDP) Memory() Memory {
	m := Memory{Params: d.mem.unused}
	d.stage.memory(&m)
	for _, z := range d.mem.zeros {
		m.Staging += z.Bytes()
	}
	m.Staging += d.wire.memory()
	if d.solver != nil {
		m.State = d.solver.stateBytes()
	}
	return m
}

// NewSolver returns the solver that updates the parameters of d. Without sharding it is optim.New.
// With Stage >= 1 its Step updates this rank's pieces and gathers all weights, so that the nodes
// have the new ones when it returns. Norms and the test for finite gradients cover all ranks'
// pieces. Weights get the bits of Stage 0, except with accumulation.
//
// Step needs Model's parameters in Model's order. It reads the reduced gradients in the buckets,
// not in the nodes, and zeroes them and the sums of gorgonia.BindDualValues. Its State has this
// rank's runs of the parameters, see optim.ParamState.Offset; SetState takes any runs that cover
// them, such as whole parameters.
//
// Collective: all ranks, one config; so are Step and SwapAverages of a sharded solver, and its
// setters need equal arguments on all ranks. Returns: with Stage >= 1 the one solver of d. Errors:
// those of optim.New; ErrPlan for ranks whose configs differ; dist.ErrInvalid for a second solver.
// Step's errors name rank, operation and bucket; after an error of the group every Step fails.
// After a run inside NoSync, or a failed one, a sharded Step returns optim.ErrNoGradient.
func (d *DDP) NewSolver(c optim.Config) (optim.Solver, error) {
	if err := d.ready(); err != nil {
		return nil, fmt.Errorf("ddp solver: %w", err)
	}
	if d.plan.sharded() && d.team.onGPU() {
		return nil, fmt.Errorf("ddp solver: %w: the group is on %v, where the update of Stage %d is a part of the run: set Solver in the machine's config, and take the machine's NewSolver",
			dist.ErrUnsupported, d.team.Device(), d.cfg.Stage)
	}
	if !d.plan.sharded() {
		s, err := optim.New(c)
		if err != nil {
			return nil, err
		}
		return d.local.solver(s), nil
	}
	s, err := newSharded(d, c)
	if err != nil {
		return nil, fmt.Errorf("ddp solver rank %d/%d: %w", d.team.Rank(), d.team.Size(), err)
	}
	d.solver = s
	return s, nil
}

// RunPart runs the graph on this rank's part of a batch, of any number of rows. It replaces
// gorgonia.Let, SetWeight and vm.RunAll. The cost must be the mean over the rows; gradients are
// those of the mean over the rows of all ranks.
//
// With package machine RunPart is SetWeight(rows), Machine.Let of each input and one run. A tape
// machine cannot change the R rows of its graph. It runs another number of rows in rows/gcd(rows,
// R) pieces of R rows, all but the last inside NoSync. Rows are repeated from the start, so that
// each appears equally often and the mean is exact, up to rounding. A short last batch thus costs
// extra runs, and cost has the last piece's value. A rank without rows runs once, with weight 0, on
// its inputs' current values, or zeros.
//
// Shapes: each value has rows rows; its other dimensions and its type are the node's. Collective:
// all ranks, once a step. RunPart resets vm between pieces; the caller resets it at the end, as
// after RunAll. Errors: those of gorgonia.Let and RunAll; dist.ErrInvalid for a value that does not
// fit; dist.ErrUnsupported if a part needs pieces but ranks must make equal numbers of runs, or
// rows belong together: Stage 2 and 3, VirtualRanks, batch norm and graphs that communicate. Use
// package machine there, or DropLast.
func (d *DDP) RunPart(vm gorgonia.VM, rows int, inputs ...Input) error {
	if err := (&partRun{d, vm, inputs}).run(rows); err != nil {
		return fmt.Errorf("ddp part of %d rows, rank %d/%d: %w", rows, d.team.Rank(), d.team.Size(), err)
	}
	return nil
}

// Consolidate gives, with Stage 3, the nodes of the learnables their whole values, for evaluation
// and checkpoints. The next run of the graph, step of the solver or Adopt takes over the values
// that nodes then have. In earlier stages nodes always have their values and it does nothing,
// except with OverlapGather: it gathers the last run's updates, which a machine's Sync then gives
// the nodes.
//
// Collective: all ranks, between runs. Errors: dist.ErrClosed; those of the group, naming rank and
// bucket.
func (d *DDP) Consolidate() error {
	if err := d.ready(); err != nil {
		return fmt.Errorf("ddp consolidate: %w", err)
	}
	if !d.plan.gathers() && !d.driver.stale {
		return nil
	}
	err := d.driver.queued()
	switch {
	case err != nil:
	case !d.plan.gathers():
		err = d.driver.GatherWeights()
	default:
		if err = d.shards.adopt(); err == nil {
			err = d.shards.consolidate()
		}
	}
	if err != nil {
		return fmt.Errorf("ddp consolidate rank %d/%d: %w", d.team.Rank(), d.team.Size(), err)
	}
	return nil
}

// AverageWeights replaces the trained parameters, on every rank, by their weighted mean over the
// ranks. A rank's weight is the sum of its weights (SetWeight) in all runs since the last call,
// without steps that NewSolver's solver skipped. So without SetWeight and skipped steps it is the
// plain mean. With LocalSteps that solver calls it every LocalSteps steps; call it before a
// checkpoint and at the end too. It does nothing without LocalSteps, since ranks have equal
// parameters, and in a second call without a step in between. On GPUs it waits for the runs, and a
// machine that updates the parameters has the averages: its Sync gives them to the nodes.
//
// Collective: all ranks, between runs. Errors: those of the group, after which parameters may
// differ; dist.ErrClosed.
func (d *DDP) AverageWeights() error {
	if d.local.every == 0 {
		return nil
	}
	if err := d.ready(); err != nil {
		return fmt.Errorf("ddp average: %w", err)
	}
	d.settle()
	err := d.driver.queued()
	if err == nil {
		err = d.local.average()
	}
	if err != nil {
		return fmt.Errorf("ddp average of weights rank %d/%d after step %d: %w", d.team.Rank(), d.team.Size(), d.counts.step, err)
	}
	d.local.steps, d.local.weight, d.local.pending = 0, 0, 0
	return nil
}

// ready returns the error of a DDP that cannot train.
//
// Errors: dist.ErrClosed; dist.ErrInvalid for an imagined one.
func (d *DDP) ready() error {
	switch {
	case d.closed:
		return dist.ErrClosed
	case d.imagined:
		return fmt.Errorf("%w: a DDP of Imagine has no memory: use Attach", dist.ErrInvalid)
	}
	return nil
}

// Close waits for operations in flight and frees the buckets. Gradients and sharded weights of the
// graph's nodes become copies, which can still be read; values taken from the nodes before cannot.
// The graph cannot run afterwards. If the world was closed first, its buckets are freed: gradients
// become zeros, and weights in buckets become NaN. With Stage 3 weights are lost unless Consolidate
// has given them to the nodes. Idempotent. Not collective.
//
// Errors: dist.ErrClosed for lost weights.
func (d *DDP) Close() error {
	if d.closed {
		return nil
	}
	d.closed = true
	if d.imagined {
		return d.release()
	}
	d.settle()
	_ = d.driver.queued() // its machine reports errors of the runs
	gone := d.team.closed()
	var errs []error
	for _, s := range d.slots {
		if s.wait.Value() != nil {
			errs = append(errs, s.detach(gone))
		}
	}
	errs = append(errs, d.moveOut(gone))
	return errors.Join(append(errs, d.release())...)
}

// leave moves weights out of the buckets after an error.
func (d *DDP) leave() error {
	if d.imagined {
		return nil
	}
	return d.moveOut(d.team.closed())
}

func (d *DDP) release() error {
	errs := []error{d.driver.values.close(), d.wire.close()}
	if d.mem != nil {
		errs = append(errs, d.mem.close())
	}
	return errors.Join(errs...)
}

// allocateWire makes the exchanger of the settings. The buckets have their memory.
//
// Collective: all ranks, one plan.
func (d *DDP) allocateWire() error {
	c := &d.cfg
	d.shares = newShares(d.team, d.mem, c)
	rest := c.Average.rest(float64(d.team.total()), c.Factor)
	var err error
	switch h := c.hook(); {
	case d.team.onGPU() && (h == nil || c.cast() != nil):
		d.wire, err = newBySteps(d)
	case h != nil:
		d.wire, err = newHooked(d, h, rest)
	case c.VirtualRanks > 0:
		d.wire, err = newVirtual(d)
	default:
		d.wire = newPlain(d, rest)
	}
	return err
}
