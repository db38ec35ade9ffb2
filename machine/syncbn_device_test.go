package machine_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	G "gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/machine"
	"github.com/symgrad/symgrad/tensor"
)

// elsewhere is a transport of one rank that only reports its device.
type elsewhere struct {
	dist.Transport
	on tensor.Device
}

func (e elsewhere) Info() dist.Info {
	return dist.Info{Size: 1, Ranks: []int{0}, Device: e.on, Backend: "fake"}
}

func (elsewhere) Close() error { return nil }

// normOn is a layer over a group on a device.
func normOn(t *testing.T, on tensor.Device) *oneNorm {
	t.Helper()
	g, err := dist.NewGroup(elsewhere{on: on}, 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	n, err := newOneNorm(g, gtensor.Float32, 3, 2)
	if err != nil {
		t.Fatal(err)
	}
	x := gtensor.New(gtensor.WithShape(3, 2), gtensor.WithBacking([]float32{1, 2, 3, 5, 8, 13}))
	if err := G.Let(n.x, x); err != nil {
		t.Fatal(err)
	}
	return n
}

// With the running statistics no rank needs another. So the graph of a world on GPUs runs on the
// host with Device CPU, and the reverse.
func TestSyncBatchNormOutsideTrainingRunsWhereConfigSays(t *testing.T) {
	var want []float64
	for _, on := range []tensor.Device{tensor.Host, tensor.CUDA(0)} {
		n := normOn(t, on)
		vm, err := machine.New(n.g, machine.Config{Device: machine.CPU, Eval: true}, n.y)
		if err != nil {
			t.Fatalf("over a group on %v: %v", on, err)
		}
		if err := errors.Join(vm.RunAll(), vm.Close()); err != nil {
			t.Fatal(err)
		}
		got := numbers(n.y.Value())
		if want == nil {
			want = got
		}
		if len(got) != 6 || !slices.Equal(got, want) {
			t.Errorf("over a group on %v: %v, want %v", on, got, want)
		}
	}
	n := normOn(t, tensor.Host)
	vm, err := machine.New(n.g, machine.Config{Device: machine.CUDA, Eval: true}, n.y)
	if err == nil {
		err = vm.Close()
	} else if errors.Is(err, machine.ErrDevice) && !strings.Contains(err.Error(), "statistics") {
		err = nil // there is no GPU
	}
	if err != nil {
		t.Errorf("over a group of the host, on a GPU: %v", err)
	}
}

// In training the statistics go to the group.
func TestSyncBatchNormRunsWhereItsGroupIs(t *testing.T) {
	for on, device := range map[tensor.Device]machine.Device{tensor.CUDA(0): machine.CPU, tensor.Host: machine.CUDA} {
		n := normOn(t, on)
		if _, err := machine.New(n.g, machine.Config{Device: device}, n.y); !errors.Is(err, machine.ErrDevice) || !strings.Contains(err.Error(), "the statistics of") {
			t.Errorf("over a group on %v, device %s: error %v, want ErrDevice", on, device, err)
		}
	}
}
