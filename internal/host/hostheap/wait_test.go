package hostheap

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

// TestWaitEnds puts a wait to sleep and then ends it.
func TestWaitEnds(t *testing.T) {
	stop := errors.New("stopped by the test")
	for name, c := range map[string]struct {
		do   func(t *testing.T, h *Heap, o *host, r symmetric.Region, cancel context.CancelCauseFunc)
		want error // nil for a value
	}{
		"by a signal": {func(t *testing.T, _ *Heap, _ *host, r symmetric.Region, _ context.CancelCauseFunc) {
			if err := r.Signal(1, 8, symmetric.SignalAdd, 7); err != nil {
				t.Error(err)
			}
		}, nil},
		"by a put": {func(t *testing.T, _ *Heap, _ *host, r symmetric.Region, _ context.CancelCauseFunc) {
			if err := r.Put(1, 0, tensor.Of([]uint64{3, 7, 5})); err != nil {
				t.Error(err)
			}
		}, nil},
		"by its context": {func(_ *testing.T, _ *Heap, _ *host, _ symmetric.Region, cancel context.CancelCauseFunc) {
			cancel(stop)
		}, stop},
		"by the end of the group": {func(_ *testing.T, _ *Heap, o *host, _ symmetric.Region, _ context.CancelCauseFunc) {
			o.broken.Store(&stop)
			o.Ring(0, 0, 0)
		}, stop},
		"by Close": {func(t *testing.T, h *Heap, o *host, _ symmetric.Region, _ context.CancelCauseFunc) {
			if err := h.Close(); err != nil || !o.unmapped.Load() {
				t.Errorf("close: %v, unmapped %v", err, o.unmapped.Load())
			}
		}, dist.ErrClosed},
		"by Free": {func(t *testing.T, h *Heap, o *host, r symmetric.Region, _ context.CancelCauseFunc) {
			if err := h.Free(r); err != nil {
				t.Error(err)
			}
			o.Ring(1, 0, 8)
		}, symmetric.ErrNotAllocated},
	} {
		t.Run(name, func(t *testing.T) {
			h, o := newHeap(t)
			r := alloc(t, h, 64)
			ctx, cancel := context.WithCancelCause(context.Background())
			defer cancel(nil)
			type end struct {
				v   uint64
				err error
			}
			ended := make(chan end)
			go func() {
				v, err := symmetric.SignalWait(ctx, r, 8, symmetric.Eq, 7)
				ended <- end{v, err}
			}()
			<-o.asleep
			c.do(t, h, o, r, cancel)
			got := <-ended
			if !errors.Is(got.err, c.want) || c.want == nil && got.v != 7 {
				t.Errorf("%d, error %v, want %v", got.v, got.err, c.want)
			}
			if got.err != nil && !strings.Contains(got.err.Error(), "for == 7, not 0") {
				t.Errorf("error %q does not tell what it waited for", got.err)
			}
		})
	}
}

// failing is a host whose Free fails when a wait has been woken by it, and whose waits end only
// then.
type failing struct {
	*host
	woken, failed chan struct{}
}

func (o *failing) Free(int64, int64) error {
	o.Ring(1, 0, 8)
	<-o.woken
	return dist.ErrAborted
}

func (o *failing) Await(ctx context.Context, off, n int64, done, leave func() bool) error {
	err := o.host.Await(ctx, off, n, done, leave)
	close(o.woken)
	<-o.failed
	return err
}

// A wait that a Free has ended returns that error even if the Free then fails.
func TestWaitEndsByAFreeThatFails(t *testing.T) {
	h, o := newHeap(t)
	f := &failing{o, make(chan struct{}), make(chan struct{})}
	h.host = f
	r := alloc(t, h, 64)
	ended := make(chan error)
	go func() {
		_, err := symmetric.SignalWait(context.Background(), r, 8, symmetric.Eq, 7)
		ended <- err
	}()
	<-o.asleep
	if err := h.Free(r); !errors.Is(err, dist.ErrAborted) {
		t.Errorf("free: %v", err)
	}
	close(f.failed)
	if err := <-ended; !errors.Is(err, symmetric.ErrNotAllocated) {
		t.Errorf("wait: error %v, want ErrNotAllocated", err)
	}
}

func TestClosedHeapRefusesEverything(t *testing.T) {
	h, o := newHeap(t)
	r := alloc(t, h, 64)
	if err := errors.Join(h.Close(), h.Close()); err != nil || !o.unmapped.Load() {
		t.Fatalf("%v, unmapped %v", err, o.unmapped.Load())
	}
	_, sliceErr := r.Slice(0, 8)
	_, allocErr := h.Alloc(8)
	for what, err := range map[string]error{
		"put": r.Put(0, 0, tensor.Of([]uint64{1})), "signal": r.Signal(0, 0, symmetric.SignalSet, 1), "slice": sliceErr,
		"alloc": allocErr, "free": h.Free(r), "fence": h.Fence(), "quiet": h.Quiet(),
	} {
		if !errors.Is(err, dist.ErrClosed) {
			t.Errorf("%s: error %v, want ErrClosed", what, err)
		}
	}
	if r.Local().Bytes() != 0 {
		t.Error("there is a view of unmapped memory")
	}
}

// words are what a wait or test looks at, of each type, with a value above and one below in that
// type's order.
func TestWatchComparesInTheOrderOfItsType(t *testing.T) {
	h, _ := newHeap(t)
	r := alloc(t, h, 64)
	if err := symmetric.P(r, 1, 0, int64(-5)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		dt   tensor.DType
		cmp  symmetric.Comparison
		v    uint64
		hits bool
	}{
		{tensor.I64, symmetric.Lt, 0, true},
		{tensor.U64, symmetric.Lt, 0, false},
		{tensor.U64, symmetric.Gt, 1 << 63, true},
		{tensor.I32, symmetric.Le, 0, true},
		{tensor.U32, symmetric.Le, 0, false},
		{tensor.U32, symmetric.Eq, 0xfffffffb, true},
		{tensor.I32, symmetric.Eq, ^uint64(4), true},
	} {
		hit, err := r.Test(symmetric.Watch{Count: 1, DType: c.dt, Cmp: c.cmp, Value: c.v})
		if err != nil || (hit.Index == 0) != c.hits {
			t.Errorf("%v %v %#x: %+v, %v", c.dt, c.cmp, c.v, hit, err)
		}
	}
}

func TestWrongWatchesAreRefused(t *testing.T) {
	h, _ := newHeap(t)
	r := alloc(t, h, 64)
	good := symmetric.Watch{At: 8, Count: 2, DType: tensor.U64, Cmp: symmetric.Eq, Value: 1}
	for name, c := range map[string]struct {
		spoil func(w *symmetric.Watch)
		want  error
	}{
		"float":          {func(w *symmetric.Watch) { w.DType = tensor.F64 }, dist.ErrDType},
		"short":          {func(w *symmetric.Watch) { w.DType = tensor.U8 }, dist.ErrDType},
		"no type":        {func(w *symmetric.Watch) { w.DType = tensor.Invalid }, dist.ErrDType},
		"no comparison":  {func(w *symmetric.Watch) { w.Cmp = symmetric.CmpInvalid }, dist.ErrInvalid},
		"no words":       {func(w *symmetric.Watch) { w.Count = 0 }, dist.ErrCount},
		"minus words":    {func(w *symmetric.Watch) { w.Count = -1 }, dist.ErrCount},
		"words too many": {func(w *symmetric.Watch) { w.Count = 8 }, dist.ErrCount},
		"all memory":     {func(w *symmetric.Watch) { w.Count = 1<<61 + 1 }, dist.ErrCount},
		"misaligned":     {func(w *symmetric.Watch) { w.At = 12 }, symmetric.ErrAlignment},
		"before":         {func(w *symmetric.Watch) { w.At = -8 }, dist.ErrCount},
	} {
		w := good
		c.spoil(&w)
		_, testErr := r.Test(w)
		_, waitErr := r.Wait(context.Background(), w)
		for _, err := range []error{testErr, waitErr} {
			var access *symmetric.AccessError
			if !errors.Is(err, c.want) || !errors.As(err, &access) {
				t.Errorf("%s: error %v, want %v", name, err, c.want)
			}
		}
	}
	if hit, err := r.Test(good); err != nil || hit.Index != -1 {
		t.Errorf("the good one: %+v, %v", hit, err)
	}
}
