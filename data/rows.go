package data

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
)

// Rows is a batch of samples in memory, one row for each, and one tensor for each field.
type Rows struct {
	Batch // of the samples; Indices has their numbers, in the order of the rows

	fields  []Field
	height  int      // rows of the tensors
	pad     int      // height, if it does not depend on the batch; else 0
	values  []Values // of all rows, by field
	rows    [][]Values
	used    int              // rows that may have other elements than 0
	tensors []*gtensor.Dense // by field, of Tensor
	shaped  []*gtensor.Dense // by field, of the last TensorAs
	indices []int

	mu     sync.Mutex
	err    error // of the first row that has one
	failed int   // that row
}

func newRows(ds Dataset, pad int) *Rows {
	fields := ds.Fields()
	r := &Rows{fields: fields, pad: pad, values: make([]Values, len(fields)), tensors: make([]*gtensor.Dense, len(fields)), shaped: make([]*gtensor.Dense, len(fields))}
	r.grow(pad)
	return r
}

// grow makes memory for at least n rows.
func (r *Rows) grow(n int) {
	if n <= len(r.rows) {
		return
	}
	r.rows, r.used = make([][]Values, n), 0
	for f, field := range r.fields {
		r.values[f] = field.make(n)
		r.tensors[f], r.shaped[f] = nil, nil
	}
	for i := range r.rows {
		r.rows[i] = make([]Values, len(r.fields))
		for f, field := range r.fields {
			r.rows[i][f] = r.values[f].slice(i*field.size(), (i+1)*field.size())
		}
	}
}

// hold prepares the rows for the samples of b. The rows after them become 0.
//
// Errors: dist.ErrInvalid for more samples than rows.
func (r *Rows) hold(b Batch) error {
	n := len(b.Indices)
	r.indices = append(r.indices[:0], b.Indices...)
	r.Batch, r.err = b, nil
	r.Indices = r.indices
	if r.pad > 0 && n > r.pad {
		return fmt.Errorf("%w: %d samples for tensors of %d rows", dist.ErrInvalid, n, r.pad)
	}
	r.grow(n)
	if r.height = r.pad; r.pad == 0 {
		r.height = n
	}
	if r.used > n {
		for f, field := range r.fields {
			r.values[f].slice(n*field.size(), r.used*field.size()).clear()
		}
	}
	r.used = n
	return nil
}

// read reads the sample of a row. An error is kept for failure.
func (r *Rows) read(ds Dataset, row int) {
	err := readSample(ds, r.Indices[row], r.Epoch, r.rows[row])
	if err == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil || row < r.failed { // the same error for any number of workers
		r.err, r.failed = err, row
	}
}

// readSample is Dataset.Read. A panic is an error, because it would end the process in a goroutine
// of the loader.
func readSample(ds Dataset, i, epoch int, row []Values) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("sample %d: panic in Dataset.Read of %T: %v", i, ds, p)
		}
	}()
	if n := ds.Len(); i < 0 || i >= n {
		return fmt.Errorf("sample %d: %w: the data set has samples 0 to %d", i, dist.ErrInvalid, n-1)
	}
	if err := ds.Read(i, epoch, row); err != nil {
		return fmt.Errorf("sample %d: %w", i, err)
	}
	return nil
}

// failure returns the error of the first row that has one, with the place in the order of samples.
func (r *Rows) failure() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil {
		return nil
	}
	return fmt.Errorf("batch %d of epoch %d: %w", r.Step, r.Epoch, r.err)
}

// Len returns the number of samples.
func (r *Rows) Len() int { return len(r.Indices) }

// Fields returns the fields, in the order of Tensor and Values.
func (r *Rows) Fields() []Field { return slices.Clone(r.fields) }

// Values returns the elements of a field, row after row, over the memory of the batch.
func (r *Rows) Values(field int) Values {
	return r.values[field].slice(0, r.height*r.fields[field].size())
}

// Tensor returns a field as a tensor over the memory of the batch, for gorgonia.Let or Machine.Let:
// they do not copy it.
//
// Shapes: rows, then the field's shape; without padding a row for each sample. Returns: nil for a
// batch without rows, because Gorgonia has no empty tensors. Owns: the batch, so the elements
// change with its memory.
func (r *Rows) Tensor(field int) *gtensor.Dense {
	if r.height == 0 {
		return nil
	}
	t := r.tensors[field]
	if t != nil && t.Shape()[0] == r.height {
		return t
	}
	t = r.over(field, append([]int{r.height}, r.fields[field].Shape...))
	r.tensors[field] = t
	return t
}

// TensorAs is Tensor with another shape of equally many elements, such as rows*context for tokens
// of rows x context.
//
// Errors: dist.ErrInvalid for a shape of another number of elements, or a batch without rows.
func (r *Rows) TensorAs(field int, shape ...int) (*gtensor.Dense, error) {
	n := 1
	for _, d := range shape {
		n *= d
	}
	f := r.fields[field]
	if n != r.height*f.size() || r.height == 0 {
		return nil, fmt.Errorf("rows: %w: field %q has %d rows of %v, not %v", dist.ErrInvalid, f.Name, r.height, f.Shape, shape)
	}
	if t := r.shaped[field]; t != nil && slices.Equal(t.Shape(), shape) {
		return t, nil
	}
	t := r.over(field, slices.Clone(shape))
	r.shaped[field] = t
	return t, nil
}

// over returns a tensor over the memory of a field.
func (r *Rows) over(field int, shape []int) *gtensor.Dense {
	var backing any = r.Values(field).Float32
	if r.fields[field].DType == gtensor.Int {
		backing = r.Values(field).Int
	}
	return gtensor.New(gtensor.WithShape(shape...), gtensor.WithBacking(backing))
}

// ReadRows reads samples of an epoch into new memory, on all processors that Go uses: for tests and
// single batches. A Loader reads many batches.
//
// Shapes: the tensors have the given number of rows, those after the samples are 0; 0 means one row
// for each sample. Owns: the caller. Errors: dist.ErrInvalid for more samples than rows and for an
// index outside the data set; those of the first sample that cannot be read.
func ReadRows(ds Dataset, indices []int, epoch, rows int) (*Rows, error) {
	if err := checkDataset(ds); err != nil {
		return nil, fmt.Errorf("rows: %w", err)
	}
	r := newRows(ds, max(rows, 0))
	if err := r.hold(Batch{Indices: indices, Weight: float64(len(indices)), Global: len(indices), Epoch: epoch}); err != nil {
		return nil, fmt.Errorf("rows: %w", err)
	}
	var next atomic.Int64
	var all sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(indices)) {
		all.Go(func() {
			for row := int(next.Add(1)) - 1; row < len(indices); row = int(next.Add(1)) - 1 {
				r.read(ds, row)
			}
		})
	}
	all.Wait()
	if r.err != nil {
		return nil, fmt.Errorf("rows: %w", r.err)
	}
	return r, nil
}
