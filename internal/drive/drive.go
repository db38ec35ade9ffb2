// Package drive is the contract between package ddp, which owns the buckets of gradients, and a
// machine that exchanges them by steps of its program, as on GPUs.
package drive

import (
	"gorgonia.org/gorgonia"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

// Exchange is a DDP as a machine uses it. It is for the goroutine that runs the graph.
type Exchange interface {
	// Layout returns the memory of a step.
	Layout() Layout

	// Next returns the treatment of the next run. The machine that runs the graph calls it before
	// each run, and Ran after it.
	//
	// Errors: dist.ErrClosed.
	Next() (Run, error)

	// Ran records that the run announced by Next is queued, or has failed with err.
	Ran(err error)

	// CheckSum returns the error of a run whose weights have the given sum over the ranks.
	//
	// Errors: ddp.ErrNoWeight for 0; dist.ErrInvalid for a sum that overflows.
	CheckSum(sum float64) error

	// Take records the machine that is about to run the graph, and reports whether it is not the
	// previous one. Layout.Weights may then hold anything.
	Take(machine any) (another bool)

	// Keep records that weights are on the GPU from now on, since a machine updates them there.
	Keep()

	// Stepped records an update of a machine's solver, and whether the solver skipped it. With
	// LocalSteps it averages the weights after each LocalSteps-th update.
	//
	// Collective: all ranks, same number of updates. Errors: those of AverageWeights.
	Stepped(skipped bool) error

	// Hook exchanges a bucket by the hook of the settings, with Layout.Hosted.
	//
	// Collective: all ranks, the buckets in order. Errors: the hook's and those of the group. Then
	// the group is broken.
	Hook(bucket int, c HookCall) error

	// Await makes Wait, Adopt and the DDP's Consolidate and Close call f, which waits for queued
	// runs of a machine. Machines whose runs return before they are done need it. Returns: the
	// function that unregisters f.
	Await(f func() error) (stop func())

	// Wait returns when no run of a registered machine is in flight, and weights and buckets have
	// the last run's values. A machine calls it before a run that reads another machine's updates.
	//
	// Errors: those of the runs; dist.ErrClosed.
	Wait() error

	// Stale reports whether this rank lacks other ranks' last update of the weights. With
	// OverlapGather it does between a run and the next gathering, by the next run or by the DDP's
	// Consolidate.
	Stale() bool

	// GatherWeights gathers the weights that each rank has updated, in the buckets. A machine calls
	// it after it has changed weights outside a run. Without sharding, and with Stage 3, where
	// ranks keep no other rank's weights, it does nothing.
	//
	// Collective: all ranks, while no run is in flight. Errors: dist.ErrClosed; those of the group,
	// naming rank and bucket.
	GatherWeights() error

	// Group returns the group of the collectives.
	Group() *dist.Group

	// Adopt takes over, with Stage 3, weights that the learnables' nodes were given by gorgonia.Let
	// or Consolidate, as the next run would. Machines that run graphs without calling Do call it
	// before each run.
	//
	// Not collective: all ranks must have given their nodes the same values. Errors:
	// dist.ErrClosed; a value of another type or length.
	Adopt() error
}

// Layout is the memory that a step reads and writes. A machine makes these steps from Layout and
// the Plan of the DDP:
//
//	Weights[1] = sum over the ranks of Weights[0]  an allreduce, if Share needs it
//	factor     = Share of Weights[2], Weights[1]   for each dtype
//	slots      = gradients                         or Weights[3] times gradients, or added
//	buckets    = their Actions                     in order
//
// With Stage 1 a bucket is reduce-scattered in place. Then the rank updates its own part of the
// bucket of weights, and an allgather in place shares the parts. With Stage 2 its own part of the
// sum is copied to Shards. Buckets share memory there, so each is summed in every run, also inside
// NoSync, before the next bucket in its memory fills. With Stage 3 the rank has only its Own parts
// of weights, and the graph gathers them.
type Layout struct {
	Rank     int              // among all ranks that train the model
	Prefix   string           // of names of steps that communicate; "" for the first DDP of a world
	Group    *dist.Group      // of the collectives
	Replicas *dist.Group      // of the ranks that own the same shards, over which own parts of sums and the sum of weights are summed again; may be nil
	Weights  [5]tensor.Buffer // f64: this rank's weight, the sum, multiplier of the slots, multiplier of gradients, and 0 if residuals restart
	Factors  [2]tensor.Buffer // of one element: f32, f64
	Buckets  []tensor.Buffer  // in Plan's order; with Stage 2 its memory while it fills, which several share
	Shards   []tensor.Buffer  // with Stage 2 and 3: this rank's parts of gradients
	Own      []tensor.Buffer  // with Stage 3: this rank's parts of weights
	Homes    []tensor.Buffer  // with Stage 1 and 2: buckets of weights, laid out as those of gradients; else none
	Overlap  bool             // buckets are summed while the backward pass still runs
	Idle     bool             // ranks of weight 0 may have gradients that are not finite
	Late     bool             // with Homes: a run gathers them before it reads them, not after it updates them; see Exchange.Stale
	Recipe
	WireDType tensor.DType    // of messages; Invalid: buckets are sent unchanged
	Wires     []tensor.Buffer // with a WireDType: memory of messages, in Plan's order, shared as that of Buckets
	Feedback  Feedback
	Virtual   Virtual
	Values    []Learnable     // on a GPU: memory for the weights of all learnables
	Symmetric []tensor.Buffer // the symmetric memory of all these; empty if the backend has no symmetric heap
}

// Learnable is a learnable and its memory on the GPU, which holds its weights after Attach.
type Learnable struct {
	Node   *gorgonia.Node
	Memory tensor.Buffer
}

// Run is the treatment of the gradients of one run of the graph.
type Run struct {
	Local   bool       // communicate nothing, and return zero gradients: inside NoSync
	Joins   bool       // add gradients times Weights[3] to the slots
	Virtual bool       // it is one of the runs of virtual ranks
	Part    int        // and this is its number in the step
	Weights [5]float64 // values of Layout.Weights; the exchange computes [1]
}
