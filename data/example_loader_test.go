package data_test

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"os"
	"path/filepath"

	"github.com/symgrad/symgrad/data"
)

// square returns a PNG of 8x8 pixels of one colour.
func square(c color.Color) []byte {
	m := image.NewRGBA(image.Rect(0, 0, 8, 8))
	for i := range 64 {
		m.Set(i%8, i/8, c)
	}
	var b bytes.Buffer
	check(png.Encode(&b, m))
	return b.Bytes()
}

// Two ranks read a folder of images ahead. Each has two of the four images of a step.
func Example_loader() {
	dir := must(os.MkdirTemp("", "images"))
	defer os.RemoveAll(dir)
	for i, class := range []string{"black", "white", "white", "black", "white", "black"} {
		c := map[string]color.Color{"black": color.Black, "white": color.White}[class]
		check(os.MkdirAll(filepath.Join(dir, class), 0o700))
		check(os.WriteFile(filepath.Join(dir, class, fmt.Sprint(i, ".png")), square(c), 0o600))
	}

	for rank := range 2 {
		images := must(data.OpenImageFolder(data.FolderConfig{Dir: dir, Transform: data.Transform{
			Height: 4, Width: 4, Crop: data.CropRandomResized, Flip: true, Seed: 1,
			Mean: []float32{0.5, 0.5, 0.5}, Std: []float32{0.5, 0.5, 0.5},
		}}))
		sampler := must(data.NewSampler(data.SamplerConfig{
			Samples: images.Len(), GlobalBatch: 4, Rank: rank, Size: 2, Seed: 1, Shuffle: true, DropLast: true,
		}))
		loader := must(data.NewLoader(data.LoaderConfig{Dataset: images, Order: sampler}))
		for range 2 {
			rows := must(loader.Next())
			pixels, labels := rows.Tensor(0), rows.Tensor(1) // for Machine.Let: no copy
			fmt.Println("rank", rank, "epoch", rows.Epoch, pixels.Shape(), labels.Ints(), pixels.Float32s()[0])
		}
		check(loader.Close())
	}
	// Output:
	// rank 0 epoch 0 (2, 3, 4, 4) [1 1] 1
	// rank 0 epoch 1 (2, 3, 4, 4) [1 0] 1
	// rank 1 epoch 0 (2, 3, 4, 4) [0 1] -1
	// rank 1 epoch 1 (2, 3, 4, 4) [0 1] -1
}
