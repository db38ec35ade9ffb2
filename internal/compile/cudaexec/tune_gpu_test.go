package cudaexec

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/internal/compile/program/oracle"
	"github.com/symgrad/symgrad/internal/gpu/cublas"
	"github.com/symgrad/symgrad/internal/gpu/cuda/cudatest"
)

// manyWays returns rank's builder of a training for whose products and convolutions cuBLAS and
// cuDNN have several algorithms. One product may be turned. Parameters are the same for all batch
// sizes.
func manyWays(rank, batch int) *builder {
	dims := []int{96, 80, 200, 64, 512, 1024, 48, 130, 10}
	b, first := parallel(rank, options{batch: batch, dims: dims}), parallel(0, options{batch: 1, dims: dims})
	for id := range first.memory {
		if r := b.p.Values[id].Role; r == program.Param || r == program.State {
			b.memory[id] = first.memory[id]
		}
	}
	w := program.Window{
		N: 8, C: 24, H: 14, W: 14, R: 3, S: 3, PadH: 1, PadW: 1, StrideH: 1, StrideW: 1, DilationH: 1, DilationW: 1, OutH: 14, OutW: 14,
	}
	const k = 40
	images, filters, results := []int{w.N, w.C, w.H, w.W}, []int{k, w.C, w.R, w.S}, []int{w.N, k, w.OutH, w.OutW}
	value := func(name string, shape []int) program.View {
		return b.p.Whole(b.outside(name, program.State, -0.1, 0.1, shape...))
	}
	x, f, dy := value("images", images), value("filters", filters), value("dresults", results)
	b.step("conv", &program.Conv{Window: w, K: k}, views(x, f), views(value("results", results)))
	b.step("conv dx", &program.ConvGradInput{Window: w, K: k}, views(dy, f), views(value("dimages", images)))
	b.step("conv df", &program.ConvGradFilter{Window: w, K: k}, views(x, dy), views(value("dfilters", filters)))
	return b
}

// turnedBatch is a batch size for which manyWays has a product whose turned form is tried.
const turnedBatch = turnProducts / (512 * 1024)

func TestTrainingsWithManyWaysAreWhatTheyAreMadeFor(t *testing.T) {
	b := manyWays(1, turnedBatch).plan(t, true)
	o, err := newOrder(b.p)
	if err != nil {
		t.Fatal(err)
	}
	products, turns, convs := 0, 0, 0
	for i := range b.p.Steps {
		if _, ok := b.p.Steps[i].Op.(*program.MatMul); !ok {
			continue
		}
		q, err := newProduct(b.p, i, TF32)
		if err != nil {
			t.Fatal(err)
		}
		products++
		if newTurn(&q.gemm) != nil && canPay(&q.gemm) {
			turns++
		}
	}
	for _, c := range forCUDNN(b.p, o.on, &Config{Tune: true}) {
		if c != nil {
			convs++
		}
	}
	if products != 3*8-1 || turns != 1 || convs != 3 {
		t.Errorf("%d products, %d turns, %d convolutions", products, turns, convs)
	}
	other := manyWays(0, 7)
	for id, v := range b.p.Values {
		if v.Role == program.Param && !bytes.Equal(b.memory[program.ID(id)], other.memory[program.ID(id)]) {
			t.Errorf("%s is another with another batch", valueName(b.p, program.ID(id)))
		}
	}
}

// algorithms returns the algorithm of each product and convolution by step, without times.
func (x *Exec) algorithms() []string {
	all := make([]string, len(x.p.Steps))
	for i := range all {
		switch {
		case x.mul.does(i) && x.mul.steps[i].plan != nil:
			name, _, _ := strings.Cut(x.mul.steps[i].plan.String(), "; workspace")
			all[i] = fmt.Sprintf("%s, turned %t", name, x.mul.steps[i].turned != nil)
		case x.conv.does(i):
			words := strings.Fields(x.conv.steps[i].conv.String())
			all[i] = strings.Join(words[:len(words)-2], " ") // "... 12 B 0.34 ms"
		}
	}
	return all
}

// tuned loads b with Tune, runs it a few times, and returns its algorithms and its parameters.
func (b *builder) tuned(m member, cfg Config, runs int) (algorithms []string, params []byte, err error) {
	cfg.Tune, cfg.Compute = true, TF32
	r, err := b.load(m.v, cfg, program.Env{Groups: []*dist.Group{m.Group}})
	if err != nil {
		return nil, nil, err
	}
	for range runs {
		if err := r.Run(); err != nil {
			return nil, nil, err
		}
	}
	if err := r.Wait(); err != nil {
		return nil, nil, err
	}
	for _, id := range slices.Sorted(maps.Keys(b.memory)) {
		if b.p.Values[id].Role != program.Param {
			continue
		}
		p, err := r.elements(id)
		if err != nil {
			return nil, nil, err
		}
		params = append(params, p...)
	}
	return r.algorithms(), params, r.close()
}

// withCUBLAS skips where there is no cuBLAS.
func withCUBLAS(t *testing.T) {
	t.Helper()
	cudatest.Devices(t, 2)
	turnedRig(t, newBuilder("there", 1).train(options{batch: 4, dims: []int{8, 8}}).plan(t, true), Config{})
}

// Ranks that time the same products take the same algorithms, whatever noise each has measured, in
// every load.
func TestRanksAgreeOnTunedProducts(t *testing.T) {
	withCUBLAS(t)
	for load := range 3 {
		var algorithms [2][]string
		var params [2][]byte
		onGPUs(t, 2, "", func(m member) (err error) {
			b := manyWays(m.Rank(), turnedBatch).plan(t, true)
			algorithms[m.Rank()], params[m.Rank()], err = b.tuned(m, Config{}, 3)
			return err
		})
		if t.Failed() {
			return
		}
		timed := 0
		for i, a := range algorithms[0] {
			if a != algorithms[1][i] {
				t.Errorf("load %d, step %d: rank 0 does it by\n%s\nand rank 1 by\n%s", load, i, a, algorithms[1][i])
			}
			if a != "" {
				timed++
			}
			if load == 0 && a != "" {
				t.Log(a)
			}
		}
		if timed < 20 {
			t.Errorf("%d products and convolutions were timed", timed)
		}
		if len(params[0]) == 0 || !bytes.Equal(params[0], params[1]) {
			t.Errorf("load %d: the ranks' parameters differ", load)
		}
	}
}

// A rank with another batch size has other products. No rank waits for it in vain.
func TestRanksWithOtherBatchesTuneBesideEachOther(t *testing.T) {
	withCUBLAS(t)
	var params [2][]byte
	onGPUs(t, 2, "", func(m member) (err error) {
		b := manyWays(m.Rank(), 32+40*m.Rank()).plan(t, true)
		_, params[m.Rank()], err = b.tuned(m, Config{}, 3)
		return err
	})
	if len(params[0]) == 0 || !bytes.Equal(params[0], params[1]) {
		t.Error("the ranks' parameters differ")
	}
}

// If one rank cannot load the program no rank does, and the group remains for the next program.
func TestARankThatCannotTuneEndsAllLoads(t *testing.T) {
	withCUBLAS(t)
	absent := filepath.Join(t.TempDir(), "libcublas.so")
	onGPUs(t, 2, "", func(m member) error {
		b := manyWays(m.Rank(), 16).plan(t, true)
		var cfg Config
		if m.Rank() == 1 {
			cfg.CUBLAS = absent
		}
		_, _, err := b.tuned(m, cfg, 1)
		want := "rank 1 cannot load it"
		if m.Rank() == 1 {
			want = absent
		}
		if err == nil || !strings.Contains(err.Error(), want) || errors.Is(err, ErrStuck) {
			return fmt.Errorf("error %w, want one with %q", err, want)
		}
		_, _, err = b.tuned(m, Config{}, 2)
		return err
	})
}

// Where memory for the copies of operands is short, products are done as they are, and exactly.
func TestTurnsAreDroppedWhereMemoryIsShort(t *testing.T) {
	b, ids := gradients[2].build(t)
	digits(b, ids, 1)
	r := turnedRig(t, b, Config{turns: turnAlways})
	m, q := r.mul, r.mul.steps[0]
	if q.turned == nil || m.copies == 0 || q.spare.plan != nil {
		t.Fatalf("%+v", q)
	}
	plain, err := q.h.NewPlan(cublas.PlanDesc{Gemm: q.gemm, AlignBytes: q.align})
	if err != nil {
		t.Fatal(err)
	}
	q.spare = gemmVariant{plan: plain} // as before settle
	if err := errors.Join(m.dropTurns(), m.settle()); err != nil || m.copies != 0 || m.scratch() != 0 || q.plan != plain || q.turned != nil {
		t.Fatalf("%v; %d B at %#x, turn %+v", err, m.scratch(), m.copies, q.turned)
	}
	for range 3 {
		if err := r.Run(); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(r.Wait(), oracle.Run(b.p, b.memory)); err != nil {
		t.Fatal(err)
	}
	if got, err := r.elements(ids[2]); err != nil || !bytes.Equal(got, b.memory[ids[2]]) {
		t.Errorf("not what the oracle says, %v", err)
	}
	large := &turned{cols: 1 << 20, to: 1 << 22} // 16 TiB
	large.gemm.DType = cublas.F32
	m = &products{dev: r.v, steps: []*product{{gemmVariant: gemmVariant{turned: large}}}}
	if short, err := m.place(); !short || err != nil || m.copies != 0 {
		t.Errorf("%d B were found: %t, %v", m.scratch(), short, err)
	}
}
