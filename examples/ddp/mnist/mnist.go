// Package mnist reads the MNIST images and labels, or any data set in the same four idx files
// (Fashion-MNIST, KMNIST), and converts samples into tensors for a model.
//
// Source: yann.lecun.com/exdb/mnist (file format and the four file names).
package mnist

import (
	"crypto/sha256"
	"fmt"
	"path/filepath"

	"gonum.org/v1/gonum/stat"

	"github.com/symgrad/symgrad/data"
)

// Classes is the number of labels.
const Classes = 10

// Data is a training and a test set.
type Data struct {
	Train, Test *Set
}

// Set has images and their labels. Pixels are scaled to zero mean and unit variance of the training
// set.
type Set struct {
	Rows, Cols  int
	pixels      []byte // one image after the other, row by row
	labels      []byte
	mean, scale float32 // of a byte
}

// The four files, without .gz.
const (
	trainPrefix  = "train"
	testPrefix   = "t10k"
	imagesSuffix = "-images-idx3-ubyte"
	labelsSuffix = "-labels-idx1-ubyte"
)

// Find checks that the four files exist, without reading them, before ranks start.
//
// Errors: the first missing file, with the command that gets it.
func Find(dir string) error {
	for _, prefix := range []string{trainPrefix, testPrefix} {
		for _, suffix := range []string{imagesSuffix, labelsSuffix} {
			if _, err := data.FindIDX(filepath.Join(dir, prefix+suffix)); err != nil {
				return remedy(err)
			}
		}
	}
	return nil
}

// Load reads the four files train-images-idx3-ubyte, train-labels-idx1-ubyte,
// t10k-images-idx3-ubyte and t10k-labels-idx1-ubyte, each plain or with .gz, from dir.
//
// Errors: a file that is missing, truncated, damaged, or inconsistent with the others, with the
// command that gets it.
func Load(dir string) (*Data, error) {
	train, err := loadSet(dir, trainPrefix)
	if err != nil {
		return nil, remedy(err)
	}
	test, err := loadSet(dir, testPrefix)
	if err != nil {
		return nil, remedy(err)
	}
	if train.Rows != test.Rows || train.Cols != test.Cols {
		return nil, remedy(fmt.Errorf("training images are %dx%d, test images %dx%d", train.Rows, train.Cols, test.Rows, test.Cols))
	}
	mean, std := moments(train.pixels)
	for _, s := range []*Set{train, test} {
		s.mean, s.scale = float32(mean), float32(1/std)
	}
	return &Data{Train: train, Test: test}, nil
}

func remedy(err error) error {
	return fmt.Errorf("mnist: %w; run `make data`, or set data.path to a folder with the four idx files", err)
}

func loadSet(dir, prefix string) (*Set, error) {
	images, err := data.ReadIDX(filepath.Join(dir, prefix+imagesSuffix), 3)
	if err != nil {
		return nil, err
	}
	labels, err := data.ReadIDX(filepath.Join(dir, prefix+labelsSuffix), 1)
	if err != nil {
		return nil, err
	}
	if images.Dims[0] != labels.Dims[0] {
		return nil, fmt.Errorf("%s has %d images but %d labels", prefix, images.Dims[0], labels.Dims[0])
	}
	for i, l := range labels.Data {
		if l >= Classes {
			return nil, fmt.Errorf("%s label %d is %d, not 0 to %d, at byte %d of %s", prefix, i, l, Classes-1, 8+i, labels.Path)
		}
	}
	return &Set{Rows: images.Dims[1], Cols: images.Dims[2], pixels: images.Data, labels: labels.Data, scale: 1}, nil
}

// moments returns mean and standard deviation of all bytes, by their histogram; the deviation of a
// constant is 1.
func moments(pixels []byte) (mean, std float64) {
	var values, counts [256]float64
	for i := range values {
		values[i] = float64(i)
	}
	for _, p := range pixels {
		counts[p]++
	}
	mean, std = stat.PopMeanStdDev(values[:], counts[:])
	if std == 0 {
		std = 1
	}
	return mean, std
}

// SHA256 identifies the data: dimensions, pixels and labels of both sets.
func (d *Data) SHA256() [sha256.Size]byte {
	h := sha256.New()
	for _, s := range []*Set{d.Train, d.Test} {
		fmt.Fprintf(h, "%d %d %d\n", s.Len(), s.Rows, s.Cols) // writing to a hash cannot fail
		h.Write(s.pixels)
		h.Write(s.labels)
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// First returns the first n samples of s, or all if there are fewer, over the same memory. Pixels
// keep their scale.
func (s *Set) First(n int) *Set {
	n = max(0, min(n, s.Len()))
	part := *s
	part.pixels, part.labels = s.pixels[:n*s.Pixels()], s.labels[:n]
	return &part
}

// Len returns the number of samples.
func (s *Set) Len() int { return len(s.labels) }

// Pixels returns the number of pixels of an image.
func (s *Set) Pixels() int { return s.Rows * s.Cols }

// Label returns the class of sample i.
func (s *Set) Label(i int) int { return int(s.labels[i]) }

// Fill writes the samples at the given indices to the first rows of x, their labels to y as one-hot
// rows, and 1/len to the first entries of w. The remaining rows are zero, with weight zero. So a
// loss that sums w[i]*loss[i] is the mean over the samples, and zero if there are none.
//
// Shapes: x has rows of Pixels, y rows of Classes, w one entry per row; at least len(indices) rows.
// Errors: an index out of range, or buffers that do not fit.
func (s *Set) Fill(x, y, w []float32, indices []int) error {
	rows, px := len(w), s.Pixels()
	if len(x) != rows*px || len(y) != rows*Classes || len(indices) > rows {
		return fmt.Errorf("mnist: %d samples into buffers of %d, %d and %d elements", len(indices), len(x), len(y), len(w))
	}
	clear(y)
	clear(w)
	clear(x[len(indices)*px:])
	for r, i := range indices {
		if i < 0 || i >= s.Len() {
			return fmt.Errorf("mnist: sample %d of %d", i, s.Len())
		}
		row := x[r*px : (r+1)*px]
		for j, p := range s.pixels[i*px : (i+1)*px] {
			row[j] = (float32(p) - s.mean) * s.scale
		}
		y[r*Classes+int(s.labels[i])] = 1
		w[r] = 1 / float32(len(indices))
	}
	return nil
}
