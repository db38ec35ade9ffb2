package data_test

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/jpeg"
	"image/png"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/symgrad/symgrad/data"
	"github.com/symgrad/symgrad/dist"
)

// records returns n random records of CIFAR, with labels below each of the given numbers.
func records(n int, classes ...int) []byte {
	rng := rand.New(rand.NewPCG(uint64(n), 7))
	var b []byte
	for i := range n {
		for _, c := range classes {
			b = append(b, byte(i%c))
		}
		for range 3072 {
			b = append(b, byte(rng.Uint32()))
		}
	}
	return b
}

// cifar10 returns n training images.
func cifar10(t testing.TB, n int, tr data.Transform) *data.Images {
	t.Helper()
	return cifar(t, map[string][]byte{"data_batch_1.bin": records(n, 10)}, data.CIFARConfig{Transform: tr})
}

func cifar(t testing.TB, all map[string][]byte, c data.CIFARConfig) *data.Images {
	t.Helper()
	c.Dir = files(t, all)
	m, err := data.OpenCIFAR(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

// sample reads one sample.
func sample(t interface{ Fatalf(string, ...any) }, ds data.Dataset, i, epoch int) (pixels []float32, label int) {
	rows, err := data.ReadRows(ds, []int{i}, epoch, 0)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return rows.Values(0).Float32, rows.Values(1).Int[0]
}

func TestCIFARReadsBothSets(t *testing.T) {
	ten := map[string][]byte{
		"data_batch_1.bin": records(3, 10), "data_batch_2.bin": records(12, 10), "test_batch.bin": records(2, 10),
		"batches.meta.txt": []byte("a\nb\nc\nd\ne\nf\ng\nh\ni\nj\n\n"),
	}
	hundred := map[string][]byte{"train.bin": records(25, 20, 100), "test.bin": records(4, 20, 100)}
	for _, c := range []struct {
		files     map[string][]byte
		config    data.CIFARConfig
		n, i      int
		label     int
		from      string
		begin     int // of the image's bytes
		lastClass string
		classes   int
	}{
		{ten, data.CIFARConfig{}, 15, 14, 1, "data_batch_2.bin", 11*3073 + 1, "j", 10},
		{ten, data.CIFARConfig{Test: true}, 2, 1, 1, "test_batch.bin", 3073 + 1, "j", 10},
		{hundred, data.CIFARConfig{}, 25, 24, 24, "train.bin", 24*3074 + 2, "99", 100},
		{hundred, data.CIFARConfig{Coarse: true}, 25, 24, 4, "train.bin", 24*3074 + 2, "19", 20},
		{hundred, data.CIFARConfig{Test: true}, 4, 3, 3, "test.bin", 3*3074 + 2, "99", 100},
	} {
		c.config.Mean, c.config.Std = []float32{0.5, 0.4, 0.3}, []float32{0.25, 0.5, 2}
		m := cifar(t, c.files, c.config)
		if all := m.Classes(); m.Len() != c.n || len(all) != c.classes || all[c.classes-1] != c.lastClass {
			t.Errorf("%+v: %d images, classes %v", c.config, m.Len(), all)
		}
		pixels, label := sample(t, m, c.i, 3)
		if again, err := m.Label(c.i); err != nil || label != c.label || again != label {
			t.Errorf("%+v: label %d, want %d (%v)", c.config, label, c.label, err)
		}
		for k, got := range pixels {
			b := c.files[c.from][c.begin+k]
			if want := (float32(b)/255 - c.config.Mean[k/1024]) / c.config.Std[k/1024]; got != want {
				t.Fatalf("%+v: element %d is %v, want %v", c.config, k, got, want)
			}
		}
	}
}

func TestDamagedCIFARIsNamed(t *testing.T) {
	bad := records(3, 10)
	bad[2*3073] = 10
	for name, c := range map[string]struct {
		files  map[string][]byte
		config data.CIFARConfig
		want   string
		is     error
	}{
		"label":    {map[string][]byte{"data_batch_1.bin": bad}, data.CIFARConfig{}, "data_batch_1.bin: label 10 of image 2, at byte 6146; there are 10 classes", dist.ErrInvalid},
		"cut":      {map[string][]byte{"data_batch_1.bin": bad[:5000]}, data.CIFARConfig{}, "data_batch_1.bin: the file ends after 1927 of 3073 bytes of image 1, at byte 5000", dist.ErrInvalid},
		"empty":    {map[string][]byte{"data_batch_1.bin": nil}, data.CIFARConfig{}, "data_batch_1.bin: invalid", dist.ErrInvalid},
		"a gap":    {map[string][]byte{"data_batch_1.bin": bad, "data_batch_3.bin": bad}, data.CIFARConfig{}, "data_batch_2.bin: file does not exist", os.ErrNotExist},
		"nothing":  {nil, data.CIFARConfig{}, "data_batch_1.bin: file does not exist: want the binary version", os.ErrNotExist},
		"no test":  {map[string][]byte{"data_batch_1.bin": bad}, data.CIFARConfig{Test: true}, "test_batch.bin: no such file", os.ErrNotExist},
		"both":     {map[string][]byte{"data_batch_1.bin": bad, "train.bin": bad}, data.CIFARConfig{}, "CIFAR-10 and of CIFAR-100", dist.ErrInvalid},
		"coarse":   {map[string][]byte{"data_batch_1.bin": bad}, data.CIFARConfig{Coarse: true}, "only that has superclasses", dist.ErrInvalid},
		"names":    {map[string][]byte{"data_batch_1.bin": records(1, 10), "batches.meta.txt": []byte("one\n")}, data.CIFARConfig{}, "batches.meta.txt has 1 names of classes, want 10", dist.ErrInvalid},
		"the mean": {map[string][]byte{"data_batch_1.bin": records(1, 10)}, data.CIFARConfig{Transform: data.Transform{Mean: []float32{1}}}, "Mean has 1 numbers", dist.ErrInvalid},
	} {
		c.config.Dir = files(t, c.files)
		if _, err := data.OpenCIFAR(c.config); !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
}

// TestImagesThatAreCutLater belong to a file that another program cuts while it is open.
func TestImagesThatAreCutLater(t *testing.T) {
	dir := files(t, map[string][]byte{"data_batch_1.bin": records(10, 10)})
	m, err := data.OpenCIFAR(data.CIFARConfig{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	path := filepath.Join(dir, "data_batch_1.bin")
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	_, err = data.ReadRows(m, []int{9}, 0, 0)
	_, also := m.Label(9)
	_, sum := m.Digest()
	for _, err := range []error{err, also, sum} {
		if err == nil || !strings.Contains(err.Error(), "the file was cut") {
			t.Errorf("%v", err)
		}
	}
	if !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "image 9 of the file") {
		t.Errorf("%v", err)
	}
}

// TestRandomCropsAreParts of the image with black around it, mirrored or not, at any place, and
// differ between epochs.
func TestRandomCropsAreParts(t *testing.T) {
	const pad = 3
	plain := cifar10(t, 20, data.Transform{})
	random := cifar10(t, 20, data.Transform{Crop: data.CropRandom, Padding: pad, Height: 30, Width: 31, Flip: true, Seed: 5})
	found := map[[3]int]bool{}
	for i := range 20 {
		whole, _ := sample(t, plain, i, 0)
		for epoch := range 10 {
			got, _ := sample(t, random, i, epoch)
			at, ok := locate(got, whole, pad)
			if !ok {
				t.Fatalf("image %d in epoch %d is no part of it", i, epoch)
			}
			found[at] = true
			if again, _ := sample(t, random, i, epoch); !slices.Equal(again, got) {
				t.Fatalf("image %d in epoch %d is another one when it is read again", i, epoch)
			}
		}
	}
	if len(found) < 60 { // 200 draws of 9 * 8 * 2 places
		t.Errorf("%d places", len(found))
	}
}

// locate finds a part of 30x31 pixels in an image of 32x32.
func locate(part, whole []float32, pad int) (at [3]int, ok bool) {
	for mirror := range 2 {
		for top := -pad; top <= 2+pad; top++ {
			for left := -pad; left <= 1+pad; left++ {
				if isPart(part, whole, top, left, mirror == 1) {
					return [3]int{top, left, mirror}, true
				}
			}
		}
	}
	return at, false
}

func isPart(part, whole []float32, top, left int, mirror bool) bool {
	for c := range 3 {
		for y := range 30 {
			for x := range 31 {
				want, from := float32(0), x
				if mirror {
					from = 30 - x
				}
				if r, k := top+y, left+from; r >= 0 && r < 32 && k >= 0 && k < 32 {
					want = whole[(c*32+r)*32+k]
				}
				if part[(c*30+y)*31+x] != want {
					return false
				}
			}
		}
	}
	return true
}

// TestTransformNumbersAreForEver holds random numbers that a checkpoint relies on.
func TestTransformNumbersAreForEver(t *testing.T) {
	b := make([]byte, 3073)
	for i := range 1024 { // red is the column, green the row
		b[1+i], b[1+1024+i] = byte(i%32), byte(i/32)
	}
	all := map[string][]byte{"data_batch_1.bin": b}
	m := cifar(t, all, data.CIFARConfig{Transform: data.Transform{Height: 1, Width: 2, Crop: data.CropRandom, Flip: true, Seed: 42}})
	resized := cifar(t, all, data.CIFARConfig{Transform: data.Transform{Crop: data.CropRandomResized, Seed: 42}})
	var got, corners [][]int
	for epoch := range 4 {
		x, _ := sample(t, m, 0, epoch)
		got = append(got, []int{int(math.Round(float64(x[0] * 255))), int(math.Round(float64(x[1] * 255))), int(math.Round(float64(x[2] * 255)))})
		x, _ = sample(t, resized, 0, epoch)
		corners = append(corners, []int{int(math.Round(float64(x[0] * 255))), int(math.Round(float64(x[1023] * 255))), int(math.Round(float64(x[1024] * 255))), int(math.Round(float64(x[2047] * 255)))})
	}
	if want := [][]int{{16, 15, 2}, {1, 0, 21}, {27, 26, 25}, {19, 20, 23}}; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("columns and rows %v, want %v", got, want)
	}
	if want := [][]int{{16, 27, 17, 28}, {3, 25, 1, 31}, {0, 31, 5, 30}, {0, 28, 2, 28}}; fmt.Sprint(corners) != fmt.Sprint(want) {
		t.Errorf("corners %v, want %v", corners, want)
	}
}

// TestResizedPartsAreInTheImage: the numbers of a scaled part of a smooth image are within those of
// the image, and a scaled image of one colour has that colour.
func TestResizedPartsAreInTheImage(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		h, w := rapid.IntRange(1, 60).Draw(rt, "height"), rapid.IntRange(1, 60).Draw(rt, "width")
		img := image.NewNRGBA(image.Rect(0, 0, w, h))
		one := rapid.Bool().Draw(rt, "one colour")
		for y := range h {
			for x := range w {
				img.SetNRGBA(x, y, color.NRGBA{uint8(50 + x), uint8(60 + y), 70, 255})
				if one {
					img.SetNRGBA(x, y, color.NRGBA{50, 60, 70, 255})
				}
			}
		}
		dir := files(t, nil)
		folder(t, dir, map[string][]byte{"a/x.png": pngOf(t, img)})
		side := rapid.IntRange(1, 40).Draw(rt, "side")
		tr := data.Transform{Height: side, Width: side, Crop: data.CropRandomResized, Flip: true, Seed: rapid.Int64().Draw(rt, "seed"), MinArea: rapid.SampledFrom([]float64{0, 0.3, 1}).Draw(rt, "area")}
		if rapid.Bool().Draw(rt, "center") {
			tr = data.Transform{Height: side, Width: side, Crop: data.CropCenter, Resize: side + rapid.IntRange(0, 20).Draw(rt, "more")}
		}
		f, err := data.OpenImageFolder(data.FolderConfig{Dir: dir, Transform: tr})
		if err != nil {
			rt.Fatal(err)
		}
		pixels, _ := sample(rt, f, 0, rapid.IntRange(0, 1000).Draw(rt, "epoch"))
		most := [3]float64{50 + float64(w-1), 60 + float64(h-1), 70}
		if one {
			most = [3]float64{50, 60, 70}
		}
		for k, v := range pixels {
			c := k / (side * side)
			if b := float64(v) * 255; b < float64(50+10*c)-1.01 || b > most[c]+1.01 { // a byte of rounding
				rt.Fatalf("channel %d has %v, outside %d to %v", c, b, 50+10*c, most[c])
			}
		}
	})
}

// folder writes files below dir.
func folder(t testing.TB, dir string, all map[string][]byte) {
	t.Helper()
	for name, content := range all {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, content, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
}

func pngOf(t testing.TB, m image.Image) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := png.Encode(&b, m); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func jpegOf(t testing.TB, m image.Image) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := jpeg.Encode(&b, m, &jpeg.Options{Quality: 95}); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// flat is an image of one colour.
func flat(h, w int, c color.Color) *image.RGBA {
	m := image.NewRGBA(image.Rect(0, 0, w, h))
	for y := range h {
		for x := range w {
			m.Set(x, y, c)
		}
	}
	return m
}

func TestImageFolderReadsClasses(t *testing.T) {
	dir := t.TempDir()
	grey := image.NewGray(image.Rect(0, 0, 8, 8))
	for i := range grey.Pix {
		grey.Pix[i] = 100
	}
	folder(t, dir, map[string][]byte{
		"cat/1.png": pngOf(t, flat(8, 8, color.RGBA{10, 20, 30, 255})), "cat/deep/2.JPG": jpegOf(t, flat(8, 8, color.RGBA{200, 100, 50, 255})),
		"dog/grey.jpeg": jpegOf(t, grey), "dog/jpeg-in-fact.png": jpegOf(t, grey), "dog/.hidden": nil, "README.txt": []byte("a text"),
	})
	if err := os.Symlink(filepath.Join(dir, "cat"), filepath.Join(dir, "dog", "more")); err != nil {
		t.Fatal(err)
	}
	f, err := data.OpenImageFolder(data.FolderConfig{Dir: dir, Transform: data.Transform{Height: 8, Width: 8}})
	if err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(f.Classes()) != "[cat dog]" || f.Len() != 6 {
		t.Fatalf("classes %v, %d images", f.Classes(), f.Len())
	}
	for i, want := range []struct {
		name  string
		label int
		rgb   [3]float32
	}{
		{"cat/1.png", 0, [3]float32{10, 20, 30}},
		{"cat/deep/2.JPG", 0, [3]float32{200, 100, 50}},
		{"dog/grey.jpeg", 1, [3]float32{100, 100, 100}},
		{"dog/jpeg-in-fact.png", 1, [3]float32{100, 100, 100}},
		{"dog/more/1.png", 1, [3]float32{10, 20, 30}},
		{"dog/more/deep/2.JPG", 1, [3]float32{200, 100, 50}},
	} {
		pixels, label := sample(t, f, i, 0)
		if label != want.label || f.Label(i) != label || f.Path(i) != filepath.Join(dir, want.name) {
			t.Errorf("image %d is %s with label %d", i, f.Path(i), label)
		}
		for k, v := range pixels {
			if d := v*255 - want.rgb[k/64]; d < -2.01 || d > 2.01 { // JPEG rounds
				t.Fatalf("%s has %v in channel %d, want %v", want.name, v*255, k/64, want.rgb[k/64])
			}
		}
	}
	if again, err := data.OpenImageFolder(data.FolderConfig{Dir: dir, Classes: []string{"dog", "none", "cat"}, Transform: data.Transform{Height: 8, Width: 8}}); err != nil || again.Label(0) != 2 || again.Digest() == f.Digest() {
		t.Errorf("labels of given classes: %v", err)
	}
}

func TestDamagedImagesAreNamed(t *testing.T) {
	good := pngOf(t, flat(9, 8, color.RGBA{1, 2, 3, 255}))
	noise := image.NewRGBA(image.Rect(0, 0, 90, 80))
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range noise.Pix {
		noise.Pix[i] = byte(rng.Uint32())
	}
	large := jpegOf(t, noise)
	flipped := slices.Clone(good)
	flipped[len(flipped)-14] ^= 0xff // in the checksum of the pixels
	huge := slices.Clone(good)
	binary.BigEndian.PutUint32(huge[16:], 1<<30)
	for name, c := range map[string]struct {
		file []byte
		want string
	}{
		"truncated.jpg": {large[:len(large)/2], fmt.Sprintf("damaged JPEG at about byte %d of %d: invalid JPEG format: short Huffman data: remove or replace it", len(large)/2, len(large)/2)},
		"truncated.png": {good[:len(good)-20], "damaged PNG at about byte"},
		"flipped.png":   {flipped, "damaged PNG at about byte"},
		"huge.png":      {huge, "damaged PNG"},
		"text.jpg":      {[]byte("some text"), "its first bytes are of no JPEG or PNG: remove"},
		"page.jpg":      {[]byte("<!doctype html><html>"), "its first bytes are of no JPEG or PNG: it is an HTML page"},
		"empty.jpg":     {nil, "its first bytes are of no JPEG or PNG"},
		"size.png":      {good, "the image has 9x8 pixels, a sample 8x8: choose a crop"},
	} {
		dir := t.TempDir()
		folder(t, dir, map[string][]byte{"a/" + name: c.file})
		f, err := data.OpenImageFolder(data.FolderConfig{Dir: dir, Transform: data.Transform{Height: 8, Width: 8}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := data.ReadRows(f, []int{0}, 0, 0); !errors.Is(err, dist.ErrInvalid) || !strings.Contains(err.Error(), filepath.Join(dir, "a", name)) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
	dir := t.TempDir()
	folder(t, dir, map[string][]byte{"a/x.png": good})
	f, err := data.OpenImageFolder(data.FolderConfig{Dir: dir, Transform: data.Transform{Height: 8, Width: 8, Crop: data.CropCenter}})
	if err == nil {
		err = os.Remove(f.Path(0))
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := data.ReadRows(f, []int{0}, 0, 0); !errors.Is(err, os.ErrNotExist) || strings.Count(err.Error(), dir) != 1 {
		t.Errorf("a file that is gone: %v", err)
	}
}

func TestImageFolderRefusesMistakes(t *testing.T) {
	size := data.Transform{Height: 8, Width: 8}
	for name, c := range map[string]struct {
		files   map[string][]byte
		classes []string
		tr      data.Transform
		want    string
	}{
		"nothing":           {nil, nil, size, "has no folder for a class"},
		"no class":          {map[string][]byte{"x.jpg": nil}, nil, size, "x.jpg is in no folder of a class"},
		"an empty class":    {map[string][]byte{"a/x.jpg": nil, "b/.y": nil}, nil, size, "b has no .jpg, .jpeg or .png"},
		"another format":    {map[string][]byte{"a/x.webp": nil}, nil, size, "x.webp does not end in .jpg"},
		"an unknown class":  {map[string][]byte{"a/x.jpg": nil}, []string{"b"}, size, "is not one of the 1 classes"},
		"no size":           {map[string][]byte{"a/x.jpg": nil}, nil, data.Transform{}, "Height and Width are 0"},
		"half a size":       {map[string][]byte{"a/x.jpg": nil}, nil, data.Transform{Height: 8}, "a sample of 8x0 pixels"},
		"too large":         {map[string][]byte{"a/x.jpg": nil}, nil, data.Transform{Height: 1 << 20, Width: 1 << 20}, "a sample of"},
		"a crop":            {map[string][]byte{"a/x.jpg": nil}, nil, data.Transform{Height: 8, Width: 8, Crop: 9}, "unknown crop Crop(9)"},
		"resize":            {map[string][]byte{"a/x.jpg": nil}, nil, data.Transform{Height: 8, Width: 8, Resize: 9}, "Resize 9 with crop none"},
		"a small resize":    {map[string][]byte{"a/x.jpg": nil}, nil, data.Transform{Height: 8, Width: 8, Crop: data.CropCenter, Resize: 7}, "Resize 7 is less"},
		"padding":           {map[string][]byte{"a/x.jpg": nil}, nil, data.Transform{Height: 8, Width: 8, Crop: data.CropRandomResized, Padding: 1}, "Padding 1 with crop random resized"},
		"an area":           {map[string][]byte{"a/x.jpg": nil}, nil, data.Transform{Height: 8, Width: 8, MinArea: 2}, "MinArea 2"},
		"a deviation of 0":  {map[string][]byte{"a/x.jpg": nil}, nil, data.Transform{Height: 8, Width: 8, Std: []float32{1, 0, 1}}, "Std has 0"},
		"a mean of a pixel": {map[string][]byte{"a/x.jpg": nil}, nil, data.Transform{Height: 8, Width: 8, Mean: []float32{1}}, "Mean has 1 numbers"},
	} {
		dir := t.TempDir()
		folder(t, dir, c.files)
		if _, err := data.OpenImageFolder(data.FolderConfig{Dir: dir, Classes: c.classes, Transform: c.tr}); !errors.Is(err, dist.ErrInvalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
	if _, err := data.OpenImageFolder(data.FolderConfig{Dir: filepath.Join(t.TempDir(), "none"), Transform: size}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing folder: %v", err)
	}
	loop := t.TempDir()
	folder(t, loop, map[string][]byte{"a/x.jpg": nil})
	if err := os.Symlink(loop, filepath.Join(loop, "a", "up")); err != nil {
		t.Fatal(err)
	}
	if _, err := data.OpenImageFolder(data.FolderConfig{Dir: loop, Transform: size}); !errors.Is(err, dist.ErrInvalid) {
		t.Errorf("a link to a folder above it: %v", err)
	}
}

// idxFile returns an idx file of bytes.
func idxFile(content []byte, dims ...int) []byte {
	b := []byte{0, 0, 8, byte(len(dims))}
	for _, d := range dims {
		b = binary.BigEndian.AppendUint32(b, uint32(d))
	}
	return append(b, content...)
}

func TestIDXIsADataset(t *testing.T) {
	var zipped bytes.Buffer
	w := gzip.NewWriter(&zipped)
	_, err := w.Write(idxFile([]byte{3, 0}, 2))
	if err = errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	dir := files(t, map[string][]byte{
		"images": idxFile([]byte{0, 1, 2, 3, 255, 5}, 2, 1, 3), "labels.gz": zipped.Bytes(), "three": idxFile([]byte{1, 2, 3}, 3), "cut": idxFile([]byte{1}, 2),
	})
	at := func(name string) string { return filepath.Join(dir, name) }
	m, err := data.OpenIDX(data.IDXConfig{Images: at("images"), Labels: at("labels"), Classes: 4})
	if err != nil {
		t.Fatal(err)
	}
	if pixels, label := sample(t, m, 0, 0); label != 3 || !slices.Equal(pixels, []float32{0, 1. / 255, 2. / 255}) {
		t.Errorf("%v, %d", pixels, label)
	}
	if c, h, w := m.Size(); m.Len() != 2 || c != 1 || h != 1 || w != 3 {
		t.Errorf("%d images of %d %d %d", m.Len(), c, h, w)
	}
	resized, err := data.OpenIDX(data.IDXConfig{Images: at("images"), Labels: at("labels"), Transform: data.Transform{Height: 2, Width: 6, Crop: data.CropRandomResized, MinArea: 1}})
	if err != nil {
		t.Fatal(err)
	}
	if pixels, _ := sample(t, resized, 1, 0); len(pixels) != 12 || slices.Max(pixels) != 1 || slices.Min(pixels) < 3./255 {
		t.Errorf("scaled: %v", pixels)
	}
	sum, err := m.Digest()
	if other, again := resized.Digest(); err != nil || again != nil || sum != other {
		t.Errorf("%s, %s, %v, %v", sum, other, err, again)
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	for want, c := range map[string]data.IDXConfig{
		"images has 2 images":       {Images: at("images"), Labels: at("three")},
		"label 3 of image 0":        {Images: at("images"), Labels: at("labels"), Classes: 3},
		"none and its .gz are miss": {Images: at("none"), Labels: at("labels")},
		"cut is damaged: data ends after 1 of 2 bytes, at byte 9": {Images: at("images"), Labels: at("cut")},
		"Mean has 0 numbers and Std 2":                            {Images: at("images"), Labels: at("labels"), Transform: data.Transform{Std: []float32{1, 2}}},
	} {
		_, err := data.OpenIDX(c)
		if !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if _, err := m.Label(5); !errors.Is(err, dist.ErrInvalid) {
		t.Errorf("label 5: %v", err)
	}
}
