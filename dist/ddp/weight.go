package ddp

import (
	"errors"
	"fmt"
	"math"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/drive"
	"github.com/symgrad/symgrad/tensor"
)

// ErrNoWeight is returned by RunAll on all ranks when the weights of a step sum to 0, so that no
// mean exists.
var ErrNoWeight = errors.New("the weights of all ranks sum to 0")

// shares exchanges the ranks' weights in a step, and computes this rank's factor of its gradients,
// which the buckets' collectives read when they run.
type shares struct {
	team     *team
	mem      *memory
	weigh    view // names the operation
	factor   factor
	part     partFactor
	exchange works     // sum of the weights
	factored dist.Work // this rank's factor, computed from it
}

// newShares returns the shares of a DDP. Its settings have their defaults.
func newShares(t *team, m *memory, c *Config) shares {
	s := c.share(float64(t.total()))
	return shares{
		team: t, mem: m, weigh: t.view(weightName),
		factor: factor{mem: m, share: s},
		part:   partFactor{m, s.Part},
	}
}

// send queues the sum of the weights over the ranks, if the average needs it, and then the
// computation of this rank's factor. weight is this rank's in the sum, own the multiplier of its
// slots. A stream that runs host code computes the factor later, so the backward pass starts at
// once. With other streams the backward pass waits for the weights of all ranks first.
func (s *shares) send(weight, own float64) error {
	f := &s.factor // nothing that reads it is in flight
	f.weight, f.own = weight, own
	s.exchange = works{}
	if !f.share.Exchanged() {
		return s.queue(f, putShare)
	}
	if err := s.queue(f, putWeight); err != nil {
		return err
	}
	mine, err := s.mem.weights.Slice(0, 1)
	if err != nil {
		return err
	}
	sum, err := s.mem.weights.Slice(1, 2)
	if err != nil {
		return err
	}
	if s.exchange, err = s.weigh.sum(sum, mine); err != nil {
		return err
	}
	return s.queue(f, putShare)
}

// sendPart is send for a run inside NoSync. It queues the factor of a micro-batch that others
// follow, which does not depend on all their weights.
func (s *shares) sendPart() error {
	s.exchange = works{}
	return s.queue(&s.part, 0)
}

// queue runs one part of the factor's computation in stream order. If the stream runs no host code,
// it waits for the exchange of weights and computes at once. A closed group's memory is not
// touched.
//
// Errors: dist.ErrClosed.
func (s *shares) queue(r dist.Runner, part uint64) (err error) {
	if s.team.queue == nil {
		if err := s.exchange.Wait(); err != nil {
			return err
		}
	}
	s.factored, err = s.team.inOrder(r, "ddp factor", part)
	return err
}

// settle waits for operations in flight.
func (s *shares) settle() {
	_ = s.exchange.Wait()
	_ = s.factored.Wait()
}

// check returns an error if the sum of weights gives no mean. It is equal on all ranks.
func (s *shares) check() error {
	if !s.factor.share.Exchanged() {
		return nil
	}
	weights, err := tensor.Data[float64](s.mem.weights)
	if err != nil {
		return err
	}
	return checkSum(weights[1])
}

// of returns the factor of a bucket, which is known when the stream has reached the bucket.
func (s *shares) of(dt tensor.DType) (float64, error) {
	if dt == tensor.F64 {
		f, err := tensor.Data[float64](s.mem.scales[1])
		if err != nil {
			return 0, err
		}
		return f[0], nil
	}
	f, err := tensor.Data[float32](s.mem.scales[0])
	if err != nil {
		return 0, err
	}
	return float64(f[0]), nil
}

// factor computes a rank's share of the average. It is a dist.Runner.
type factor struct {
	mem    *memory
	weight float64 // this rank's, for the sum
	own    float64 // the slots' multiplier, before the division by the sum of weights
	share  drive.Share
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
	if f.share.Alone {
		sum = f.weight
	}
	return f.mem.setShare(f.share.Of(f.own, sum))
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

func checkSum(sum float64) error {
	switch {
	case sum == 0:
		return ErrNoWeight
	case math.IsInf(sum, 1):
		return fmt.Errorf("%w: the sum of weights overflows", dist.ErrInvalid)
	}
	return nil
}
