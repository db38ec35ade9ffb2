package lower

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	G "gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/machine/machinetest"
	"github.com/symgrad/symgrad/nn"
)

// building is held while a graph is built: Gorgonia counts some ops in a variable without a lock.
var building sync.Mutex

// tiedModel returns a model of an embedding, a layer and the transposed embedding, with a loss of
// one of two kinds, over constant tokens. Some targets do not count.
func tiedModel(fused bool) (*machinetest.Model, error) {
	building.Lock()
	defer building.Unlock()
	const tokens, width, vocabulary = 12, 8, 40
	r, g := rand.New(rand.NewPCG(5, 6)), G.NewGraph()
	param := func(name string, shape ...int) *G.Node {
		v := gtensor.New(gtensor.Of(gtensor.Float32), gtensor.WithShape(shape...))
		for i := range v.Float32s() {
			v.Float32s()[i] = float32(r.NormFloat64())
		}
		return G.NewMatrix(g, gtensor.Float32, G.WithName(name), G.WithShape(shape...), G.WithValue(v))
	}
	ints := func(name string, at func(i int) int) *G.Node {
		v := make([]int, tokens)
		for i := range v {
			v[i] = at(i)
		}
		return G.NewVector(g, gtensor.Int, G.WithName(name), G.WithShape(tokens), G.WithValue(gtensor.New(gtensor.WithBacking(v))))
	}
	table, layer := param("table", vocabulary, width), param("layer", width, width)
	targets := ints("targets", func(i int) int { return i*i%vocabulary - 141*(i%3/2) }) // below 0: ignored
	x, err := nn.Embedding(table, ints("tokens", func(i int) int { return 7 * i % vocabulary }))
	if err != nil {
		return nil, err
	}
	if x, err = nn.Linear(x, layer, nil); err != nil {
		return nil, err
	}
	if x, err = nn.GELU(x); err != nil {
		return nil, err
	}
	head, err := G.Transpose(table, 1, 0)
	if err != nil {
		return nil, err
	}
	m := &machinetest.Model{Graph: g, Learnables: G.Nodes{table, layer}}
	for i, v := 0, targets.Value().Data().([]int); i < tokens; i++ {
		if v[i] < 0 {
			v[i] = -100
		}
	}
	if fused {
		m.Cost, err = nn.LinearCrossEntropy(x, head, targets, nn.CrossEntropyConfig{ChunkRows: 5})
		return m, err
	}
	logits, err := nn.Linear(x, head, nil)
	if err != nil {
		return nil, err
	}
	m.Cost, err = nn.SparseCrossEntropy(logits, targets, nn.CrossEntropyConfig{})
	return m, err
}

// TestLossesInEveryStageBySteps trains with each loss on two ranks by the device programs. Weights
// must not depend on the stage or on the kind of loss.
func TestLossesInEveryStageBySteps(t *testing.T) {
	var want [][]float32
	for _, fused := range []bool{false, true} {
		for _, cfg := range []Options{{}, {NoOptimize: true}} {
			t.Run(fmt.Sprintf("fused %v, optimized %v", fused, !cfg.NoOptimize), func(t *testing.T) {
				for _, spread := range append([]ddp.Config{fewKilobytes}, stagesOf(fewKilobytes)...) {
					for rank, n := range trainModel(t, func() (*machinetest.Model, error) { return tiedModel(fused) }, 2, 3, spread, cfg) {
						if want == nil {
							want = n.values()
						}
						if off := worst(n.values(), want); !(off <= 1e-5) {
							t.Errorf("stage %d, late %v, rank %d: weights are off by %g", spread.Stage, spread.OverlapGather, rank, off)
						}
					}
				}
			})
		}
	}
}
