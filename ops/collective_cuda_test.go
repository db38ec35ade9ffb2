//go:build cuda

package ops

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
)

// These tests need a GPU. All other tests of this package are for the host: under the build tag
// gorgonia v0.9.18 runs tanh and similar functions on the device and rejects them ("not a mapper").

// The machine copies the input to its device. The collective reads it there and leaves its result
// there for the next op on the device.
func TestACollectiveRunsOnTheMachinesDevice(t *testing.T) {
	g := gorgonia.NewGraph()
	x := gorgonia.NewMatrix(g, gtensor.Float32, gorgonia.WithShape(2, 3), gorgonia.WithName("x"),
		gorgonia.WithValue(gtensor.New(gtensor.WithShape(2, 3), gtensor.WithBacking([]float32{1, 2, 3, 4, 5, 6}))))
	y, err := AllReduce(alone(t), x, dist.PreMulSum(float32(3)))
	if err != nil {
		t.Fatal(err)
	}
	z, err := Broadcast(alone(t), y, 0)
	if err != nil {
		t.Fatal(err)
	}
	var got gorgonia.Value
	gorgonia.Read(z, &got)
	m := gorgonia.NewTapeMachine(g)
	defer func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}()
	if err := m.RunAll(); err != nil {
		t.Fatal(err)
	}
	if y.Device() != 0 || z.Device() != 0 {
		t.Errorf("the collectives ran on %v and %v", y.Device(), z.Device())
	}
	if want := []float32{3, 6, 9, 12, 15, 18}; !slices.Equal(got.Data().([]float32), want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// A machine without devices has nothing to wait for.
func TestCUDADoTellsWhatIsWrong(t *testing.T) {
	x := gtensor.New(gtensor.WithShape(2), gtensor.WithBacking([]float32{1, 2}))
	c := sumOf(t, x)
	if _, err := c.CUDADo(nil, 0, nil, x); !errors.Is(err, dist.ErrInvalid) || !strings.Contains(err.Error(), "runs nothing on a device") {
		t.Errorf("error %v", err)
	}
	if _, err := c.CUDADo(nil, 0, nil); !errors.Is(err, dist.ErrInvalid) || !strings.Contains(err.Error(), "no input") {
		t.Errorf("error %v", err)
	}
	v, err := c.CUDADo(nil, gorgonia.CPU, nil, x)
	if err != nil || !slices.Equal(v.Data().([]float32), []float32{1, 2}) {
		t.Errorf("on the host: %v, %v", v, err)
	}
}
