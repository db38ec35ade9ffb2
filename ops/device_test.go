package ops_test

import (
	"fmt"
	"testing"

	"gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/ops"
	"github.com/symgrad/symgrad/tensor"
)

// gpuTransport is a transport that reports a GPU and implements nothing else.
type gpuTransport struct{ dist.Transport }

func (gpuTransport) Info() dist.Info {
	return dist.Info{Size: 2, Ranks: []int{0, 1}, Device: tensor.CUDA(0), Backend: "fake"}
}

func (gpuTransport) Close() error { return nil }

// gpuGroup is rank 0 of two on GPUs.
func gpuGroup(t *testing.T) *dist.Group {
	t.Helper()
	g, err := dist.NewGroup(gpuTransport{}, 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	return g
}

// No machine runs these: package machine has no rule for them on GPUs, and other machines have no
// values there.
func TestMessagesAndBarriersAreForGroupsOfTheHost(t *testing.T) {
	group := gpuGroup(t)
	for name, apply := range map[string]func(x *gorgonia.Node) (*gorgonia.Node, error){
		"send to 1":   func(x *gorgonia.Node) (*gorgonia.Node, error) { return ops.Send(group, x, 1) },
		"recv from 1": func(x *gorgonia.Node) (*gorgonia.Node, error) { return ops.Recv(group, x, 1, gtensor.Float32, 4) },
		"barrier":     func(x *gorgonia.Node) (*gorgonia.Node, error) { return ops.Barrier(group, x) },
	} {
		x := input(gorgonia.NewGraph(), gtensor.Float32, "x", wave(4, 0), 4)
		_, err := apply(x)
		if err = wantError(err, dist.ErrDevice, name, `"x"`, "rank 0/2", "cuda", "host group"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Collectives that package machine runs are accepted; the error of another machine names package
// machine.
func TestCollectivesOfGPUsAreForPackageMachine(t *testing.T) {
	group := gpuGroup(t)
	for name, apply := range map[string]func(x *gorgonia.Node) (*gorgonia.Node, error){
		"allreduce sum": func(x *gorgonia.Node) (*gorgonia.Node, error) { return ops.AllReduce(group, x, dist.Sum) },
		"broadcast":     func(x *gorgonia.Node) (*gorgonia.Node, error) { return ops.Broadcast(group, x, 1) },
	} {
		g := gorgonia.NewGraph()
		x := input(g, gtensor.Float32, "x", wave(4, 0), 4)
		if _, err := apply(x); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if err := wantError(ops.Cause(run(g)), dist.ErrDevice, name, `"x"`, "rank 0/2", "package machine"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	factor := tensor.Of([]float32{2})
	x := input(gorgonia.NewGraph(), gtensor.Float32, "x", wave(4, 0), 4)
	_, err := ops.AllReduce(group, x, dist.PreMulSumAt(factor))
	if err = wantError(err, dist.ErrDevice, "premulsum scalar is on host", fmt.Sprint(tensor.CUDA(0))); err != nil {
		t.Error(err)
	}
}
