package machine_test

import (
	"fmt"
	"testing"

	G "gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"
)

// detector builds graphs of the kind of Gorgonia's tiny-yolo examples, of small sizes and with
// made-up weights of float32.
type detector struct{ *covered }

func newDetector() *detector { return &detector{&covered{g: G.NewGraph(), dt: G.Float32}} }

// conv adds a convolution that keeps the size of an image, with a bias for each element, and a
// leaky activation except in the last layer.
func (d *detector) conv(x *G.Node, channels, kernel int, last bool) *G.Node {
	in := x.Shape()
	w := d.between(-0.5, 0.55, channels, in[1], kernel, kernel)
	y := G.Must(G.Conv2d(x, w, gtensor.Shape{kernel, kernel}, []int{kernel / 2, kernel / 2}, []int{1, 1}, []int{1, 1}))
	y = G.Must(G.Add(y, d.between(-0.2, 0.2, y.Shape()...)))
	if last {
		return y
	}
	return G.Must(G.LeakyRelu(y, 0.1))
}

// pool halves an image; a padded pool keeps its size, as the second last layer of the darknet
// models does.
func (d *detector) pool(x *G.Node, padded bool) *G.Node {
	if padded {
		return G.Must(G.MaxPool2D(x, gtensor.Shape{2, 2}, []int{0, 1, 0, 1}, []int{1, 1}))
	}
	return G.Must(G.MaxPool2D(x, gtensor.Shape{2, 2}, []int{0, 0}, []int{2, 2}))
}

const (
	detectorClasses = 2
	detectorImage   = 32
)

// version2 is a chain of layers whose output has the numbers of 5 boxes for each cell.
func version2() (*detector, G.Nodes) {
	d := newDetector()
	x := d.x(1, 3, detectorImage, detectorImage)
	for _, channels := range []int{4, 6, 8} {
		x = d.pool(d.conv(x, channels, 3, false), false)
	}
	x = d.conv(d.pool(d.conv(x, 8, 3, false), true), 12, 3, false)
	return d, G.Nodes{d.conv(x, (detectorClasses+5)*5, 1, true)}
}

// version3 has two heads. The second also reads the first layers: upsampled, and joined by a route.
func version3() (*detector, G.Nodes) {
	d := newDetector()
	head := func(x *G.Node, masks []int) *G.Node {
		x = d.conv(x, (detectorClasses+5)*3, 1, true)
		return G.Must(G.YOLOv3(x, []float32{10, 14, 23, 27, 37, 58, 81, 82, 135, 169, 344, 319}, masks, detectorImage, detectorClasses, 0.5))
	}
	x := d.x(1, 3, detectorImage, detectorImage)
	for _, channels := range []int{4, 6} {
		x = d.pool(d.conv(x, channels, 3, false), false)
	}
	early := d.conv(x, 8, 3, false)
	late := d.conv(d.pool(d.pool(early, false), true), 10, 3, false)
	first := head(d.conv(late, 12, 3, false), []int{3, 4, 5})
	up := G.Must(G.Upsample2D(d.conv(late, 4, 1, false), 2))
	return d, G.Nodes{first, head(d.conv(G.Must(G.Concat(1, up, early)), 8, 3, false), []int{0, 1, 2})}
}

// TestDetectorsAreThoseOfTheTapeMachine replaces the machine, and feeds two images in sequence.
func TestDetectorsAreThoseOfTheTapeMachine(t *testing.T) {
	for name, build := range map[string]func() (*detector, G.Nodes){"version 2": version2, "version 3": version3} {
		d, expected := build()
		tapeVM := G.NewTapeMachine(d.g)
		e, outputs := build()
		var vm G.VM = newMachine(t, e.g, plain)
		for image := range 2 {
			for _, n := range []*detector{d, e} {
				pixels := make([]float32, 3*detectorImage*detectorImage)
				for i := range pixels {
					pixels[i] = float32((i*7+image*13)%97)/97 - 0.3
				}
				let(t, n.inputs[0], gtensor.New(gtensor.WithShape(1, 3, detectorImage, detectorImage), gtensor.WithBacking(pixels)))
			}
			run(t, tapeVM)
			run(t, vm)
			for i := range outputs {
				equalValues(t, fmt.Sprintf("%s, image %d, output %d", name, image, i), outputs[i].Value(), expected[i].Value(), 1e-5)
			}
			tapeVM.Reset()
			vm.Reset()
		}
		if err := tapeVM.Close(); err != nil {
			t.Error(err)
		}
	}
}
