package lower

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	G "gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/optim"
)

// unread is a training whose program reads no bias: no output needs the cost, and no gradient
// depends on the bias. Rank 0 owns all elements of the bias's bucket.
func unread(w *dist.World, cfg ddp.Config) (*lane, error) {
	buildingRanks.Lock()
	r := &rankGraph{g: G.NewGraph()}
	node := func(name string, shape ...int) *G.Node {
		v := gtensor.New(gtensor.WithShape(shape...), gtensor.Of(gtensor.Float32))
		return G.NewTensor(r.g, gtensor.Float32, len(shape), G.WithName(name), G.WithShape(shape...), G.WithValue(v))
	}
	x := node("x", 2, 40)
	r.params = G.Nodes{node("w0", 40, 40), node("w1", 40, 8), node("b1", 1, 8)}
	h := G.Must(G.Tanh(G.Must(G.Mul(x, r.params[0]))))
	r.cost = G.Must(G.Sum(G.Must(G.BroadcastAdd(G.Must(G.Mul(h, r.params[1])), r.params[2], nil, []byte{0}))))
	buildingRanks.Unlock()
	var err error
	if r.d, err = ddp.Attach(w, r.cost, r.params, cfg); err != nil {
		return nil, err
	}
	n := &lane{rankGraph: r, g: Collect(r.g, r.d.Grads()), loaded: map[Manner]*loadedLane{}}
	n.opt = forDevice(Options{}, n.g, r.d)
	return n, n.update(optim.Config{Name: optim.SGD, LearningRate: 0.1})
}

// TestRanksWithoutPiecesHaveTheOrderOfOthers has a bucket that no step reads. It compares the
// collectives of a rank that updates it with those of a rank without pieces in it.
func TestRanksWithoutPiecesHaveTheOrderOfOthers(t *testing.T) {
	for _, cfg := range stagesOf(ddp.Config{BucketMB: 1.0 / 1024, FirstBucketMB: 1.0 / 1024}) {
		orders := make([]string, 2)
		inWorld(t, 2, func(w *dist.World) error {
			n, err := unread(w, cfg)
			if err != nil {
				return err
			}
			p, err := n.load(WholeBatch)
			if err != nil {
				return err
			}
			var names []string
			for i := range p.Program.Steps {
				if _, ok := p.Program.Steps[i].Op.(*program.Collective); ok {
					names = append(names, p.Program.Steps[i].Name)
				}
			}
			orders[w.Rank()] = strings.Join(names, ", ")
			if got := len(n.d.Pieces()); got != 3-w.Rank() {
				return errors.Join(fmt.Errorf("rank %d has %d pieces, want %d", w.Rank(), got, 3-w.Rank()), n.d.Close())
			}
			return n.d.Close()
		})
		if orders[0] != orders[1] || orders[0] == "" {
			t.Errorf("stage %d, late %v: rank 0 has %s, and rank 1 %s", cfg.Stage, cfg.OverlapGather, orders[0], orders[1])
		}
	}
}
