package data

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/symgrad/symgrad/dist"
)

// Order gives the samples of one batch after the other. A Sampler is one.
type Order interface {
	// Next returns the next batch. Its Indices may be valid until the next call only.
	Next() Batch
	// Cursor returns the position of the next batch.
	Cursor() Cursor
	// Seek makes the batch at c the next.
	Seek(c Cursor) error
}

// LoaderConfig has the settings of a Loader.
type LoaderConfig struct {
	Dataset Dataset
	Order   Order // the loader alone uses it until Close
	Rows    int   // of each tensor, those after the samples are 0; 0 means one row for each sample
	Workers int   // goroutines that read samples; 0 means one for each processor that Go uses
	Ahead   int   // batches that are read before Next asks for them; 0 means 2
}

// Validate checks c.
//
// Errors: dist.ErrInvalid naming the field.
func (c LoaderConfig) Validate() error {
	if err := checkDataset(c.Dataset); err != nil {
		return fmt.Errorf("loader: %w", err)
	}
	switch {
	case c.Order == nil:
		return fmt.Errorf("loader: %w: the order is nil: set Order to a Sampler", dist.ErrInvalid)
	case c.Rows < 0 || c.Workers < 0 || c.Ahead < 0:
		return fmt.Errorf("loader: %w: %d rows, %d workers, %d batches ahead; want 0 or more of each", dist.ErrInvalid, c.Rows, c.Workers, c.Ahead)
	}
	return nil
}

// defaultAhead is LoaderConfig.Ahead if that is 0: one batch for the next step, and one for a step
// whose samples take longer than others.
const defaultAhead = 2

// Loader reads the samples of an order ahead of their use, with goroutines. Batches come in the
// order's order, with the same bits for any number of workers. The loader has memory for Ahead
// batches and the one in use, whatever the number of workers. It reuses that memory, so a step
// allocates nothing, except in Dataset.Read: Go's decoders of images allocate.
//
//	l, err := data.NewLoader(data.LoaderConfig{Dataset: set, Order: sampler})
//	defer l.Close()
//	for range steps {
//		rows, err := l.Next()
//		...
//		err = vm.Let(x, rows.Tensor(0))
//		err = vm.RunAll()
//	}
//
// Ranks need no communication: each has a loader with a Sampler of its own.
//
// Not for concurrent use: one goroutine calls its methods.
type Loader struct {
	c       LoaderConfig
	at      Cursor
	all     []*loading
	current *loading // returned by the last Next
	closed  bool

	free    chan *loading
	ready   chan *loading // in order; the samples may still be missing
	jobs    chan job
	stop    chan struct{}
	running sync.WaitGroup
}

// loading is the memory of a batch that is being read.
type loading struct {
	*Rows
	after Cursor        // of the order, after the batch
	left  atomic.Int64  // rows to read
	done  chan struct{} // gets a value when all rows are read
}

// job is a range of rows to read.
type job struct {
	into   *loading
	lo, hi int
}

// NewLoader returns a loader at the order's position, and starts to read.
//
// Owns: the caller closes the loader, before the data set. Errors: dist.ErrInvalid.
func NewLoader(c LoaderConfig) (*Loader, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if c.Workers == 0 {
		c.Workers = runtime.GOMAXPROCS(0)
	}
	if c.Ahead == 0 {
		c.Ahead = defaultAhead
	}
	l := &Loader{c: c, at: c.Order.Cursor()}
	for range c.Ahead + 1 {
		l.all = append(l.all, &loading{Rows: newRows(c.Dataset, c.Rows), done: make(chan struct{}, 1)})
	}
	l.start()
	return l, nil
}

// start starts the goroutines. All memory is free.
func (l *Loader) start() {
	n := len(l.all)
	l.free, l.ready = make(chan *loading, n), make(chan *loading, n)
	l.jobs, l.stop = make(chan job, l.c.Workers), make(chan struct{})
	for _, b := range l.all {
		l.free <- b
	}
	l.running.Go(l.dispatch)
	for range l.c.Workers {
		l.running.Go(l.work)
	}
}

// halt ends the goroutines, after the samples that they are reading.
func (l *Loader) halt() {
	close(l.stop)
	l.running.Wait()
	l.current = nil
	for _, b := range l.all {
		select {
		case <-b.done:
		default:
		}
	}
}

// dispatch takes batches from the order as memory gets free, and cuts them into jobs.
func (l *Loader) dispatch() {
	defer close(l.jobs)
	for {
		select {
		case <-l.stop:
			return
		default:
		}
		var b *loading
		select {
		case <-l.stop:
			return
		case b = <-l.free:
		}
		err := b.hold(l.c.Order.Next())
		b.after = l.c.Order.Cursor()
		n := len(b.Indices)
		if err != nil {
			b.err, b.failed, n = err, 0, 0
		}
		b.left.Store(int64(n))
		l.ready <- b
		if n == 0 {
			b.done <- struct{}{}
		}
		// Several jobs for each worker, so that one slow sample does not hold up a batch.
		for lo, each := 0, max(1, n/(4*l.c.Workers)); lo < n; lo += each {
			select {
			case <-l.stop:
				return
			case l.jobs <- job{b, lo, min(lo+each, n)}:
			}
		}
	}
}

// work reads the rows of jobs.
func (l *Loader) work() {
	for j := range l.jobs {
		for row := j.lo; row < j.hi; row++ {
			select {
			case <-l.stop:
				return
			default:
				j.into.read(l.c.Dataset, row)
			}
		}
		if j.into.left.Add(int64(j.lo-j.hi)) == 0 {
			j.into.done <- struct{}{}
		}
	}
}

// Next returns the next batch. It never ends: the next epoch follows the last batch of an epoch.
//
// A batch whose samples cannot be read is an error of its call, and the next call returns the batch
// after it. Ranks that train together must all stop then, as package train and World.Abort do.
//
// Returns: when all its samples are read. Owns: the loader; the batch is valid until the next call
// of Next, Seek or Close, so a graph must have run by then. A machine on a GPU has copied its
// inputs when RunAll returns. Errors: of the first sample that cannot be read, with its batch,
// epoch and number; dist.ErrInvalid for a batch of more samples than LoaderConfig.Rows;
// dist.ErrClosed.
func (l *Loader) Next() (*Rows, error) {
	if l.closed {
		return nil, fmt.Errorf("loader: %w", dist.ErrClosed)
	}
	if l.current != nil {
		l.free <- l.current
	}
	b := <-l.ready
	<-b.done
	l.current, l.at = b, b.after
	if err := b.failure(); err != nil {
		return nil, fmt.Errorf("loader: %w", err)
	}
	return b.Rows, nil
}

// Cursor returns the position after the last batch of Next, for checkpoints. The order itself is
// further, by the batches that are read ahead.
func (l *Loader) Cursor() Cursor { return l.at }

// Seek makes the batch at c the next.
//
// Errors: those of the order, after which the loader is where it was; dist.ErrClosed.
func (l *Loader) Seek(c Cursor) error {
	if l.closed {
		return fmt.Errorf("loader: %w", dist.ErrClosed)
	}
	l.halt()
	defer l.start()
	if err := l.c.Order.Seek(c); err != nil {
		if back := l.c.Order.Seek(l.at); back != nil {
			return fmt.Errorf("loader: %w, and back: %w", err, back)
		}
		return fmt.Errorf("loader: %w", err)
	}
	l.at = c
	return nil
}

// Close ends the goroutines and waits for them. Idempotent.
func (l *Loader) Close() error {
	if !l.closed {
		l.closed = true
		l.halt()
		l.all = nil
	}
	return nil
}
