package ddp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

// Join runs the loop of ranks with different numbers of batches. Each step is a collective, so a
// rank without data takes part in the others' steps with weight 0. When no rank has data, the loop
// ends on all ranks at once.
//
//	join, err := ddp.NewJoin(d)
//	for {
//		n := load(x, y)               // samples of this rank's next batch; 0 when it has none
//		more, err := join.Next(n)     // sets the weight
//		if err != nil || !more { break }
//		err = vm.RunAll()             // without a batch: on the last one, or on anything else
//		err = solver.Step(d.Model())
//	}
//
// Gradients of a rank without samples are ignored, so its inputs may hold anything, also NaN. On
// GPUs that needs Config.Idle; otherwise such a rank runs on an input with finite gradients, such
// as its last batch. A graph with ops.SyncBatchNorm needs zeros for the rows' weights, since its
// statistics include such a rank's rows.
//
// Next sums the samples over the ranks, and compares the sum with 0. The exchange of weights in
// each run has that sum too, but too late: RunAll would return ErrNoWeight on all ranks, after a
// useless run. If each rank knows its number of batches, one exchange per epoch is enough: see
// Steps.
//
// # Accumulation
//
// Runs inside NoSync need no Next, and ranks may make different numbers of them: call Next once for
// a step, and SetWeight for each run. Only runs that communicate (ops.SyncBatchNorm) must be as
// many on all ranks, with Next before each. If Next reports that no rank has data during an
// accumulation, make the run that reduces with weight 0:
//
//	more, runs := true, 0
//	err := d.NoSync(func() (err error) {
//		for ; runs < k-1 && more; runs++ {
//			if more, err = join.Next(load(x, y)); err != nil || !more { return err }
//			if err = vm.RunAll(); err != nil { return err }
//		}
//		return nil
//	})
//	if more { more, err = join.Next(load(x, y)) }
//	if !more && runs == 0 { break }
//	err = vm.RunAll() // reduces
//
// A Join is used by the goroutine that runs the graph, between runs.
type Join struct {
	d       *DDP
	group   view // names operations "ddp join"
	mine    tensor.Buffer
	sum     tensor.Buffer
	heap    symmetric.Heap // of a world on GPUs; else nil
	regions [2]symmetric.Region
	numbers []float64 // on the host: this rank's samples, and the sum over the ranks
	closed  bool
}

// NewJoin returns the Join of a DDP. One is enough for all epochs.
//
// Collective: all ranks. Owns: the caller closes it, before the DDP's world. Errors:
// dist.ErrInvalid without a DDP; those of the world's heap, on GPUs.
func NewJoin(d *DDP) (*Join, error) {
	if d == nil {
		return nil, fmt.Errorf("ddp join: %w: no DDP", dist.ErrInvalid)
	}
	j := &Join{d: d, group: d.team.view("ddp join"), numbers: make([]float64, 2)}
	if !d.team.onGPU() {
		j.mine, j.sum = tensor.Of(j.numbers[:1]), tensor.Of(j.numbers[1:])
		return j, nil
	}
	if err := j.allocate(); err != nil {
		return nil, fmt.Errorf("ddp join rank %d/%d: %w", d.team.Rank(), d.team.Size(), errors.Join(err, j.Close()))
	}
	return j, nil
}

// allocate takes two numbers of the GPU's memory.
func (j *Join) allocate() error {
	var err error
	if j.heap, err = j.d.team.Heap(2 * symmetric.Alignment); err != nil {
		return err
	}
	for i, b := range []*tensor.Buffer{&j.mine, &j.sum} {
		if j.regions[i], err = j.heap.Alloc(8); err != nil {
			return err
		}
		raw := j.regions[i].Local()
		if *b, err = tensor.FromPointer(raw.Pointer(), 1, tensor.F64, raw.Device()); err != nil {
			return err
		}
	}
	return nil
}

// Next tells the other ranks how many samples this rank's next batch has, 0 for none. It returns
// whether any rank has samples: if so, all ranks run the graph. The number becomes this rank's
// weight; any unit works if all ranks use it. After false the weight is 0, and Next may be called
// again for another epoch.
//
// Collective: all ranks, same order. Returns: when all ranks have called it; on GPUs also when the
// runs queued before are done. Errors: dist.ErrInvalid for a number that is negative or not finite,
// before anything is sent; dist.ErrClosed; those of the group.
func (j *Join) Next(samples float64) (bool, error) {
	more, err := j.next(samples)
	if err != nil {
		return false, fmt.Errorf("ddp join rank %d/%d: %w", j.d.team.Rank(), j.d.team.Size(), err)
	}
	return more, nil
}

func (j *Join) next(samples float64) (bool, error) {
	if j.closed {
		return false, dist.ErrClosed
	}
	if err := j.d.ready(); err != nil {
		return false, err
	}
	if err := j.d.SetWeight(samples); err != nil {
		return false, err
	}
	j.numbers[0] = samples
	if err := j.exchange(); err != nil {
		return false, err
	}
	sum := j.numbers[1]
	if sum == 0 {
		return false, nil
	}
	return true, checkSum(sum)
}

// exchange sums the ranks' numbers.
func (j *Join) exchange() error {
	me := j.d.team.Rank()
	if j.heap != nil {
		if err := j.regions[0].Put(me, 0, tensor.Of(j.numbers[:1])); err != nil {
			return err
		}
		if err := j.heap.Quiet(); err != nil {
			return err
		}
	}
	w, err := j.group.sum(j.sum, j.mine)
	if err == nil {
		err = w.Wait()
	}
	if err == nil && j.heap != nil {
		err = j.regions[1].Get(tensor.Of(j.numbers[1:]), me, 0)
	}
	return err
}

// Samples returns the sum of samples over the ranks in the last Next.
func (j *Join) Samples() float64 { return j.numbers[1] }

// Close frees the memory on a GPU. Idempotent. Collective: on GPUs.
func (j *Join) Close() error {
	if j.closed {
		return nil
	}
	j.closed = true
	if j.heap == nil {
		return nil
	}
	return j.heap.Close()
}

// Steps returns the number of steps of an epoch, the largest number of batches of any rank. A rank
// with fewer batches makes the other steps with weight 0. Use a Join if ranks do not know their
// numbers.
//
//	steps, err := ddp.Steps(world, len(batches))
//	for i := range steps {
//		weight := 0.0
//		if i < len(batches) { let(batches[i]); weight = ... }
//		err = d.SetWeight(weight)
//		err = vm.RunAll()
//	}
//
// Collective: all ranks. Errors: dist.ErrInvalid for a negative number, before anything is sent;
// those of the group.
func Steps(on dist.Members, batches int) (int, error) {
	w, err := groupOf(on)
	if err != nil {
		return 0, fmt.Errorf("ddp steps: %w", err)
	}
	if batches < 0 || batches > math.MaxInt64/2 {
		return 0, fmt.Errorf("ddp steps rank %d/%d: %w: %d batches", w.Rank(), w.Size(), dist.ErrInvalid, batches)
	}
	all, err := gather(w, "ddp steps", binary.LittleEndian.AppendUint64(nil, uint64(batches)))
	if err != nil {
		return 0, fmt.Errorf("ddp steps rank %d/%d: %w", w.Rank(), w.Size(), err)
	}
	most := 0
	for _, b := range all {
		most = max(most, int(binary.LittleEndian.Uint64(b)))
	}
	return most, nil
}
