package machine

import (
	"bytes"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync"
	"testing"

	G "gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/backend"
	"github.com/symgrad/symgrad/dist/ddp"
)

// spoken is a log for several ranks.
type spoken struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *spoken) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// trainParts fills a graph of two rows, cost = mean of x*w, by run, and returns the gradient of w
// after each of the given lengths.
func trainParts(w *dist.World, said *spoken, lengths []int, run func(d *ddp.DDP, m *Machine, x *G.Node, v G.Value, rows int) error) ([]float64, error) {
	g := G.NewGraph()
	x := G.NewMatrix(g, G.Float64, G.WithName("x"), G.WithShape(2, 1))
	p := G.NewMatrix(g, G.Float64, G.WithName("w"), G.WithShape(1, 1), G.WithInit(G.Ones()))
	d, err := ddp.Attach(w, G.Must(G.Mean(G.Must(G.Mul(x, p)))), G.Nodes{p}, ddp.Config{Log: slog.New(slog.NewTextHandler(said, nil))})
	if err != nil {
		return nil, err
	}
	m, err := New(g, Config{})
	if err != nil {
		return nil, err
	}
	defer m.Close()
	var grads []float64
	for _, rows := range lengths {
		var v G.Value
		if rows > 0 {
			own := make([]float64, rows)
			for i := range own {
				own[i] = float64(1 + 10*w.Rank() + i)
			}
			v = gtensor.New(gtensor.WithShape(rows, 1), gtensor.WithBacking(own))
		}
		if err := run(d, m, x, v, rows); err != nil {
			return nil, err
		}
		grad, err := p.Grad()
		if err != nil {
			return nil, err
		}
		grads = append(grads, grad.Data().([]float64)[0])
	}
	return grads, nil
}

// The machine accepts parts of any length with the same call as the tape machine; the mean is over
// the rows of all ranks.
func TestRunPartTakesAnyNumberOfRows(t *testing.T) {
	var said spoken
	lengths := [2][]int{{2, 1, 0, 3}, {2, 4, 3, 0}}
	err := backend.Simulate(2, backend.Config{}, func(w *dist.World) error {
		got, err := trainParts(w, &said, lengths[w.Rank()], func(d *ddp.DDP, m *Machine, x *G.Node, v G.Value, rows int) error {
			return d.RunPart(m, rows, ddp.Input{Node: x, Value: v})
		})
		if err != nil {
			return err
		}
		for k := range got {
			sum, n := 0.0, 0
			for r := range lengths {
				for i := range lengths[r][k] {
					sum, n = sum+float64(1+10*r+i), n+1
				}
			}
			if want := sum / float64(n); math.Abs(got[k]-want) > 16*0x1p-52*want { // of at most 16 roundings
				return fmt.Errorf("step %d: gradient %v, want %v", k, got[k], want)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if said.b.Len() > 0 {
		t.Errorf("RunPart sets weights, and yet: %s", said.b.String())
	}
}

// A rank whose part gets another length without a new count is reported once.
func TestAnotherLengthWithoutAWeightIsNamed(t *testing.T) {
	var said spoken
	err := backend.Simulate(2, backend.Config{}, func(w *dist.World) error {
		lengths := []int{2, 2 - w.Rank(), 2, 2 - w.Rank()}
		_, err := trainParts(w, &said, lengths, func(_ *ddp.DDP, m *Machine, x *G.Node, v G.Value, _ int) error {
			if err := m.Let(x, v); err != nil {
				return err
			}
			return m.RunAll()
		})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	text := said.b.String()
	if strings.Count(text, "\n") != 1 || !strings.Contains(text, "input=x rank=1 rows=1 before=2") {
		t.Errorf("said %q, want one line that names x, rank 1 and both lengths", text)
	}
}
