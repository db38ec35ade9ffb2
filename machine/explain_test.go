package machine_test

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/machine"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the golden files")

// golden compares a text with a file of testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name+".txt")
	if *rewrite {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	expected, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(expected) {
		t.Errorf("%s is no longer as in %s; look at the difference, then run with -rewrite:\n%s", name, file, got)
	}
}

// TestExplain has the programs of a perceptron, unoptimized and optimized, of a convolutional
// network, and of data-parallel training on one rank.
func TestExplain(t *testing.T) {
	raw := plain
	raw.NoOptimize = true
	golden(t, "perceptron-unoptimized", newMachine(t, small(4).g, raw).Explain())
	golden(t, "perceptron", newMachine(t, small(4).g, plain).Explain())
	golden(t, "convolutional", newMachine(t, images(2).g, plain).Explain())
	onRanks(t, 1, func(w *dist.World) error {
		n, _, _ := share(bare, 4, 0, 1)
		d, err := ddp.Attach(w, n.cost, n.params, ddp.Config{})
		if err != nil {
			return err
		}
		m, err := machine.New(n.g, plain)
		if err != nil {
			return err
		}
		golden(t, "ranks", m.Explain())
		if err := m.Close(); err != nil {
			return err
		}
		return d.Close()
	})
}
