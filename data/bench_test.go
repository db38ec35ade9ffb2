package data_test

import (
	"fmt"
	"image"
	"image/color"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/symgrad/symgrad/data"
)

// BenchmarkImageFolder reads photo-like JPEG files of ImageNet's usual size, on one goroutine.
func BenchmarkImageFolder(b *testing.B) {
	const height, width = 375, 500
	img := image.NewRGBA(image.Rect(0, 0, width, height))
	rng := rand.New(rand.NewPCG(1, 2))
	for y := range height {
		for x := range width {
			v := 120 + 80*math.Sin(float64(x)/17)*math.Cos(float64(y)/23) + 12*rng.NormFloat64()
			img.Set(x, y, color.RGBA{uint8(v), uint8(v * 0.8), uint8(255 - v), 255})
		}
	}
	dir := b.TempDir()
	folder(b, dir, map[string][]byte{"a/1.jpg": jpegOf(b, img)})
	for _, tr := range []data.Transform{
		{Height: height, Width: width},
		{Height: 224, Width: 224, Crop: data.CropRandomResized, Flip: true},
		{Height: 224, Width: 224, Crop: data.CropCenter, Resize: 256},
	} {
		f, err := data.OpenImageFolder(data.FolderConfig{Dir: dir, Transform: tr})
		if err != nil {
			b.Fatal(err)
		}
		row := []data.Values{{Float32: make([]float32, 3*tr.Height*tr.Width)}, {Int: make([]int, 1)}}
		b.Run(fmt.Sprint("crop=", tr.Crop), func(b *testing.B) {
			b.ReportAllocs()
			for i := range b.N {
				if err := f.Read(0, i, row); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkLoader reads batches of tokens and of small images.
func BenchmarkLoader(b *testing.B) {
	tokens, err := data.OpenTokens(data.TokensConfig{Paths: []string{files(b, map[string][]byte{"a.bin": make([]byte, 8<<20)})}})
	if err != nil {
		b.Fatal(err)
	}
	defer tokens.Close()
	text, err := tokens.Dataset(1024)
	if err != nil {
		b.Fatal(err)
	}
	images := cifar10(b, 2000, data.Transform{Crop: data.CropRandom, Padding: 4, Flip: true})
	for _, c := range []struct {
		name  string
		ds    data.Dataset
		batch int
		bytes int64
	}{{"tokens of 32x1024", text, 32, 2 * 8 * 32 * 1024}, {"images of 128x3x32x32", images, 128, 128 * 4 * 3072}} {
		b.Run(c.name, func(b *testing.B) {
			s, err := data.NewSampler(data.SamplerConfig{Samples: c.ds.Len(), GlobalBatch: c.batch, Shuffle: true})
			if err != nil {
				b.Fatal(err)
			}
			l := loader(b, data.LoaderConfig{Dataset: c.ds, Order: s})
			defer l.Close()
			b.SetBytes(c.bytes)
			b.ReportAllocs()
			for range b.N {
				if _, err := l.Next(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
