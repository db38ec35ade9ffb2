package data

import (
	"fmt"
	"slices"

	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
)

// Dataset is a set of samples that can be read in any order. Every sample has one value for each
// field, so a batch of them is one tensor for each field.
//
// Concurrency: all methods from any number of goroutines.
type Dataset interface {
	// Len returns the number of samples, at least 1.
	Len() int
	// Fields returns the fields of each sample.
	Fields() []Field
	// Read writes sample i to row, which has the memory of each field. It writes all elements.
	// Random changes of a sample depend on a seed of the data set, the epoch and i alone.
	//
	// Errors: those of the file, naming it and the place in it.
	Read(i, epoch int, row []Values) error
}

// Field is one tensor of a sample.
type Field struct {
	Name  string        // "image", "label"
	DType gtensor.Dtype // gtensor.Float32 or gtensor.Int
	Shape []int         // of one sample; empty for a single number
}

// Values are the elements of a field: the slice of its dtype is set, the other one is nil.
type Values struct {
	Float32 []float32
	Int     []int
}

// size returns the number of elements of a sample.
func (f Field) size() int {
	n := 1
	for _, d := range f.Shape {
		n *= d
	}
	return n
}

// make returns zeros for n samples.
func (f Field) make(n int) Values {
	if f.DType == gtensor.Int {
		return Values{Int: make([]int, n*f.size())}
	}
	return Values{Float32: make([]float32, n*f.size())}
}

// slice returns the elements from lo to hi.
func (v Values) slice(lo, hi int) Values {
	if v.Int != nil {
		return Values{Int: v.Int[lo:hi:hi]}
	}
	return Values{Float32: v.Float32[lo:hi:hi]}
}

// clear sets all elements to 0.
func (v Values) clear() {
	clear(v.Float32)
	clear(v.Int)
}

// checkDataset rejects a data set without samples, and fields of a dtype or shape that Rows cannot
// hold.
func checkDataset(ds Dataset) error {
	if ds == nil {
		return fmt.Errorf("%w: the data set is nil", dist.ErrInvalid)
	}
	if n := ds.Len(); n < 1 {
		return fmt.Errorf("%w: a data set of %d samples, want at least 1", dist.ErrInvalid, n)
	}
	for _, f := range ds.Fields() {
		if f.DType != gtensor.Float32 && f.DType != gtensor.Int {
			return fmt.Errorf("%w: field %q has dtype %v, want float32 or int", dist.ErrInvalid, f.Name, f.DType)
		}
		if slices.ContainsFunc(f.Shape, func(d int) bool { return d < 1 }) {
			return fmt.Errorf("%w: field %q has shape %v, want positive sizes", dist.ErrInvalid, f.Name, f.Shape)
		}
	}
	return nil
}

// subset is a range of the samples of a data set.
type subset struct {
	Dataset
	first, n int
}

// Subset returns the n samples of ds from first on, as sample 0 to n-1. They are the same samples:
// their random changes keep the numbers that they have in ds.
//
// Errors: dist.ErrInvalid for a range that is empty or outside ds.
func Subset(ds Dataset, first, n int) (Dataset, error) {
	if first < 0 || n < 1 || n > ds.Len() || first > ds.Len()-n {
		return nil, fmt.Errorf("subset: %w: %d samples from number %d of %d", dist.ErrInvalid, n, first, ds.Len())
	}
	return subset{ds, first, n}, nil
}

// Len returns the number of samples of the range.
func (s subset) Len() int { return s.n }

// Read reads sample first+i of the data set.
func (s subset) Read(i, epoch int, row []Values) error {
	if i < 0 || i >= s.n {
		return fmt.Errorf("subset: %w: sample %d of %d", dist.ErrInvalid, i, s.n)
	}
	return s.Dataset.Read(s.first+i, epoch, row)
}

// OneHot writes labels as one-hot rows: into[i*classes+labels[i]] is 1, all other elements are 0.
//
// Shapes: into has classes elements for each label. Errors: dist.ErrInvalid for another length, and
// for a label outside 0 to classes-1, naming its place.
func OneHot(into []float32, labels []int, classes int) error {
	if classes < 1 || len(into) != len(labels)*classes {
		return fmt.Errorf("one-hot: %w: %d labels of %d classes into %d elements", dist.ErrInvalid, len(labels), classes, len(into))
	}
	clear(into)
	for i, l := range labels {
		if l < 0 || l >= classes {
			return fmt.Errorf("one-hot: %w: label %d in place %d; there are %d classes", dist.ErrInvalid, l, i, classes)
		}
		into[i*classes+l] = 1
	}
	return nil
}
