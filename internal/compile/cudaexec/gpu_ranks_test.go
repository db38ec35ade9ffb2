package cudaexec

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/internal/compile/program/oracle"
	"github.com/symgrad/symgrad/tensor"
)

// parallel is rank's builder of a program that all ranks train, each with inputs of its own. It is
// the same at each call.
func parallel(rank int, o options) *builder {
	b := newBuilder("parallel", 11)
	b.ranks, b.groups = 2, max(o.groups, 1)
	b.train(o)
	own := newBuilder("", uint64(100+rank))
	for _, id := range []program.ID{b.x, b.target} {
		b.memory[id] = numbers(own.r, tensor.F32, b.p.Values[id].Len(), 0, 0.05)
	}
	return b
}

// oracleRanks is runs of all ranks on the host; it gives the losses of each run, by rank, and the
// memory in the end.
func oracleRanks(t *testing.T, n, runs int, o options, optimized bool) (losses [][]float64, memory []map[program.ID][]byte) {
	t.Helper()
	ranks := make([]oracle.Rank, n)
	var loss program.ID
	for r := range ranks {
		b := parallel(r, o).plan(t, optimized)
		loss = b.loss
		ranks[r] = oracle.Rank{Program: b.p, Memory: copied(b.memory)}
		memory = append(memory, ranks[r].Memory)
	}
	for range runs {
		if err := oracle.RunRanks(ranks); err != nil {
			t.Fatal(err)
		}
		var of []float64
		for r := range ranks {
			of = append(of, float(memory[r][loss]))
		}
		losses = append(losses, of)
	}
	return losses, memory
}

// compareRuns runs the program of r, rank's, and compares each loss, and in the end all memory,
// with the oracle's.
func (b *builder) compareRuns(r *rig, rank int, losses [][]float64, memory []map[program.ID][]byte) error {
	loss := room(4)
	for n := range losses {
		if err := errors.Join(r.Run(), r.Read(b.loss, loss)); err != nil {
			return err
		}
		if got, want := float(loss), losses[n][rank]; math.Abs(got-want) > 1e-5*(1+want) {
			return fmt.Errorf("run %d: loss %v, want %v", n, got, want)
		}
	}
	if err := r.Wait(); err != nil {
		return err
	}
	if memory == nil { // there is more to run
		return nil
	}
	for _, id := range slices.Sorted(maps.Keys(b.memory)) {
		got, err := r.elements(id)
		if err := errors.Join(err, compare(valueName(b.p, id), got, memory[rank][id], 1e-4)); err != nil {
			return err
		}
	}
	return nil
}

// collectives is how many collectives p has.
func collectives(p *program.Program) int {
	n := 0
	for i := range p.Steps {
		if _, ok := p.Steps[i].Op.(*program.Collective); ok {
			n++
		}
	}
	return n
}

func TestCollectivesAreInTheGraph(t *testing.T) {
	o := options{batch: 24, dims: []int{60, 80, 40, 6}}
	const runs = 12
	for _, optimized := range []bool{true, false} {
		losses, memory := oracleRanks(t, 2, runs, o, optimized)
		onGPUs(t, 2, "", func(m member) error {
			b := parallel(m.Rank(), o).plan(t, optimized)
			r, err := b.load(m.v, Config{}, program.Env{Groups: []*dist.Group{m.Group}})
			if err != nil {
				return err
			}
			if err := b.compareRuns(r, m.Rank(), losses, memory); err != nil {
				return err
			}
			sums := collectives(b.p)
			if n := int(m.adder.sums.Load()); n != 2*sums || len(r.graphs.list) != 1 {
				return fmt.Errorf("%d sums were queued in %d runs, want those of one run and one capture, %d; %d graphs", n, runs, 2*sums, len(r.graphs.list))
			}
			return r.close()
		})
	}
}

func TestGroupsInOneProgramFollowEachOther(t *testing.T) {
	o := options{batch: 16, dims: []int{30, 20, 6}, groups: 2}
	losses, memory := oracleRanks(t, 2, 6, o, true)
	onGPUs(t, 2, "", func(m member) error {
		part, err := m.Split(0, m.Rank())
		if err != nil {
			return err
		}
		b := parallel(m.Rank(), o).plan(t, true)
		r, err := b.load(m.v, Config{}, program.Env{Groups: []*dist.Group{m.Group, part}})
		if err != nil {
			return err
		}
		if err := b.compareRuns(r, m.Rank(), losses[:1], nil); err != nil {
			return err
		}
		// Other operations of a group, on a stream of its own, run between runs.
		none, err := tensor.FromPointer(nil, 0, tensor.F32, m.v.Tensor())
		if err != nil {
			return err
		}
		if _, err := part.AllReduce(none, none, dist.Sum); err != nil {
			return err
		}
		return errors.Join(b.compareRuns(r, m.Rank(), losses[1:], memory), r.close())
	})
}

func TestCollectivesOfMemoryInAHeapAreSymmetric(t *testing.T) {
	o := options{batch: 8, dims: []int{10, 12, 4}}
	losses, _ := oracleRanks(t, 2, 3, o, true)
	onGPUs(t, 2, "", func(m member) error {
		b := parallel(m.Rank(), o).plan(t, true)
		heap, err := m.Heap(b.p.Arena + 1<<20)
		if err != nil {
			return err
		}
		region, err := heap.Alloc(b.p.Arena)
		if err != nil {
			return err
		}
		cfg := Config{Arena: region.Local(), Symmetric: []tensor.Buffer{region.Local()}}
		r, err := b.load(m.v, cfg, program.Env{Groups: []*dist.Group{m.Group}})
		if err != nil {
			return err
		}
		loss := room(4)
		for n := range 3 {
			if err := errors.Join(r.Run(), r.Read(b.loss, loss)); err != nil {
				return err
			}
			if got, want := float(loss), losses[n][m.Rank()]; math.Abs(got-want) > 1e-5*(1+want) {
				return fmt.Errorf("run %d: loss %v, want %v", n, got, want)
			}
		}
		if m.adder.symmetric.Load() != m.adder.sums.Load() || m.adder.sums.Load() == 0 {
			return fmt.Errorf("%d of %d sums promised to be symmetric", m.adder.symmetric.Load(), m.adder.sums.Load())
		}
		return r.close()
	})
}

func TestProfileTellsExposedCommunication(t *testing.T) {
	o := options{batch: 256, dims: []int{512, 512, 10}}
	onGPUs(t, 2, "", func(m member) error {
		b := parallel(m.Rank(), o).plan(t, true)
		r, err := b.load(m.v, Config{}, program.Env{Groups: []*dist.Group{m.Group}})
		if err != nil {
			return err
		}
		tl, err := r.Profile(5)
		if err != nil {
			return err
		}
		if tl.Comm <= 0 || tl.Exposed < 0 || tl.Exposed > tl.Comm || tl.Comm > tl.Marked || tl.Share() < 0 || tl.Share() > 1 {
			return fmt.Errorf("a wrong timeline:\n%s", tl.String())
		}
		if !strings.Contains(tl.String(), "allreduce") {
			return fmt.Errorf("no allreduce in\n%s", tl.String())
		}
		if m.Rank() == 0 {
			t.Log(tl.String())
		}
		return errors.Join(r.Run(), r.Wait(), r.close())
	})
}

func TestReplayWithCollectivesAllocatesNothing(t *testing.T) {
	o := options{batch: 8, dims: []int{10, 12, 4}}
	onGPUs(t, 1, "", func(m member) error { // of more ranks, the others' allocations would count
		b := parallel(m.Rank(), o).plan(t, true)
		r, err := b.load(m.v, Config{}, program.Env{Groups: []*dist.Group{m.Group}})
		if err != nil {
			return err
		}
		var failed error
		run := func() { failed = errors.Join(failed, r.Run()) }
		for range 300 { // the tickets of a stream have found their room then
			run()
		}
		if err := errors.Join(failed, r.Wait()); err != nil {
			return err
		}
		if n := testing.AllocsPerRun(100, run); n != 0 {
			failed = errors.Join(failed, fmt.Errorf("%v allocations in a run", n))
		}
		return errors.Join(failed, r.Wait(), r.close())
	})
}

// deadAt is the operation of the control group in which rank 1 dies: later than any that a test
// makes before.
const deadAt = 500

func TestDeathOfARankEndsReplays(t *testing.T) {
	o := options{batch: 8, dims: []int{10, 12, 4}}
	onGPUs(t, 2, fmt.Sprintf("die rank=1 op=%d", deadAt), func(m member) error {
		b := parallel(m.Rank(), o).plan(t, true)
		r, err := b.load(m.v, Config{}, program.Env{Groups: []*dist.Group{m.Group}})
		if err != nil {
			return err
		}
		for range 5 {
			if err := r.Run(); err != nil {
				return err
			}
		}
		if err := r.Wait(); err != nil {
			return err
		}
		for { // both come to the operation before the last one of rank 1
			all := m.control.Recorder().Records()
			if all[len(all)-1].Seq >= deadAt-1 {
				break
			}
			if _, err := m.control.Blocking().Barrier(); err != nil {
				return err
			}
		}
		if m.Rank() == 1 {
			_, err := m.control.Blocking().Barrier()
			var dead *dist.RankError
			if !errors.As(err, &dead) {
				return fmt.Errorf("rank 1 is to die, and got %w", err)
			}
			_ = r.Close() // the error does not matter to a dead rank
			return nil
		}
		err = r.Run() // no rank answers its collectives
		if err == nil {
			err = r.Wait()
		}
		var dead *dist.RankError
		if !errors.As(err, &dead) || dead.Rank != 1 {
			return fmt.Errorf("got %w, want the death of rank 1", err)
		}
		if err := r.Run(); !errors.Is(err, dist.ErrAborted) {
			if err = r.Wait(); !errors.Is(err, dist.ErrAborted) {
				return fmt.Errorf("a run after the death: %w", err)
			}
		}
		return r.close()
	})
}
