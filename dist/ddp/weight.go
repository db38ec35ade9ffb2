package ddp

import (
	"errors"
	"fmt"
	"math"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

// ErrNoWeight is returned by RunAll on all ranks when the weights of a step sum to 0, so that no
// mean exists.
var ErrNoWeight = errors.New("the weights of all ranks sum to 0")

// SetWeight sets the weight of this rank's gradient in later steps: the number of samples in the
// mean of its cost. It is 1 at the start, so that equal parts need no call. A rank without samples
// sets 0 and still runs the graph, on any input, because the others reduce with it. Its gradients
// are ignored on the host, and on GPUs with Config.Idle. On GPUs without Idle they are multiplied
// by 0 and must be finite: run on zeros, or on the previous batch.
//
// Ranks whose parts differ in length must call it; RunPart does. If lengths of inputs differ
// without a call, rank 0 warns once. Machine.Let of package machine changes the number of rows of a
// graph; gorgonia.Let rejects that. For a tape machine use RunPart.
//
// Not collective. Errors: dist.ErrInvalid for a weight that is negative or not finite, which
// changes nothing.
func (d *DDP) SetWeight(weight float64) error {
	if !(weight >= 0) || math.IsInf(weight, 1) {
		return fmt.Errorf("ddp weight %v rank %d/%d: %w: want a number of samples, at least 0",
			weight, d.team.Rank(), d.team.Size(), dist.ErrInvalid)
	}
	d.weight, d.rows.weight = weight, true
	return nil
}

// Weight returns this rank's weight.
func (d *DDP) Weight() float64 { return d.weight }

// sendWeight queues the sum of the weights over the ranks, if the average needs it, and then the
// computation of this rank's factor, which the buckets' collectives read when they run. A stream
// that runs host code computes the factor later, so the backward pass starts at once. With other
// streams the backward pass waits for the weights of all ranks first.
func (d *DDP) sendWeight() error {
	if d.virtual != nil {
		return d.virtual.sendWeights()
	}
	f := &d.factor // nothing that reads it is in flight
	f.mem, f.weight, f.own = d.mem, d.pending+d.run.weight, d.run.weight
	if d.run.joins {
		f.own = 1 // the slots hold weighted sums
	}
	f.average, f.factor, f.ranks, f.alone = d.cfg.Average, d.cfg.Factor, float64(d.team.total()), d.cfg.LocalSteps > 0
	d.exchange = works{}
	if !f.average.divides() || f.alone {
		return d.onStream(putShare)
	}
	if err := d.onStream(putWeight); err != nil {
		return err
	}
	mine, err := d.mem.weights.Slice(0, 1)
	if err != nil {
		return err
	}
	sum, err := d.mem.weights.Slice(1, 2)
	if err != nil {
		return err
	}
	if d.exchange, err = d.weigh.sum(sum, mine); err != nil {
		return err
	}
	return d.onStream(putShare)
}

// onStream runs one part of the factor's computation in stream order. If the stream runs no host
// code, it waits for the exchange of weights and computes at once. A closed world's memory is not
// touched.
//
// Errors: dist.ErrClosed.
func (d *DDP) onStream(part uint64) (err error) {
	if d.team.queue != nil {
		d.factored, err = d.team.queue.Submit(&d.factor, dist.Op{Name: "ddp factor"}, part)
		return err
	}
	if err := d.exchange.Wait(); err != nil {
		return err
	}
	return d.factor.Run(nil, part)
}

// factor computes a rank's share of the average. It is a dist.Runner.
type factor struct {
	mem     *memory
	weight  float64 // this rank's, for the sum
	own     float64 // the slots' multiplier, before the division by the sum of weights
	average Average
	factor  float64 // Config.Factor, with its default
	ranks   float64
	alone   bool // with LocalSteps: gradients stay on this rank
}

// The parts of the computation: before and after the exchange.
const (
	putWeight = iota
	putShare
)

// Run writes this rank's weight to the input of the exchange, or its share, for each dtype, to the
// input of the buckets' collectives. A share of a zero sum is 0; the Waits return an error for it.
func (f *factor) Run(_ *dist.Op, part uint64) error {
	weights, err := tensor.Data[float64](f.mem.weights)
	if err != nil {
		return err
	}
	if part == putWeight {
		weights[0] = f.weight
		return nil
	}
	sum := weights[1]
	if f.alone {
		sum = f.weight
	}
	return f.mem.setShare(f.average.share(f.own, sum, f.ranks, f.factor))
}

// setShare writes the factor of the buckets.
func (m *memory) setShare(share float64) error {
	single, err := tensor.Data[float32](m.scales[0])
	if err != nil {
		return err
	}
	double, err := tensor.Data[float64](m.scales[1])
	if err != nil {
		return err
	}
	single[0], double[0] = float32(share), share
	return nil
}

// checkWeight returns an error if the sum of weights gives no mean. It is equal on all ranks.
func (d *DDP) checkWeight() error {
	if !d.cfg.Average.divides() || d.cfg.LocalSteps > 0 {
		return nil
	}
	weights, err := tensor.Data[float64](d.mem.weights)
	if err != nil {
		return err
	}
	return checkSum(weights[1])
}

func checkSum(sum float64) error {
	switch {
	case sum == 0:
		return ErrNoWeight
	case math.IsInf(sum, 1):
		return fmt.Errorf("%w: the sum of weights overflows", dist.ErrInvalid)
	}
	return nil
}
