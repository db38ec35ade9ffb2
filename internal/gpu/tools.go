package gpu

import (
	"errors"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

// tools has the objects of a Transport on its device.
type tools struct {
	kernels *kernels
	args    *cuda.Args
	word    uintptr          // 4 bytes of device memory, for barriers that are sums
	stop    *cuda.HostMemory // a word; not 0 ends the waits of streams
	order   *cuda.Event      // between streams
}

// allocate makes the event, memory and kernel arguments.
func (w *tools) allocate(v *cuda.Device) error {
	if err := v.Enter(); err != nil {
		return err
	}
	defer v.Leave()
	var err error
	if w.order, err = v.NewEvent(); err != nil {
		return err
	}
	if w.word, err = v.Alloc(symmetric.Alignment); err != nil {
		return err
	}
	if w.stop, err = v.AllocHost(stopBytes); err != nil {
		return err
	}
	if w.args, err = newArgs(); err != nil {
		return err
	}
	return v.Fill(w.word, 0, symmetric.Alignment)
}

// free releases the results of allocate and loadKernels, also after an error in these. The device
// is entered.
func (w *tools) free(v *cuda.Device) error {
	var errs []error
	if w.order != nil {
		errs = append(errs, w.order.Close())
	}
	if w.word != 0 {
		errs = append(errs, v.Free(w.word))
	}
	if w.stop != nil {
		errs = append(errs, w.stop.Close())
	}
	errs = append(errs, w.kernels.close())
	return errors.Join(errs...)
}

// scale queues dst = src times this rank's factor.
func (w *tools) scale(dst, src tensor.Buffer, f *dist.Scalar, s *cuda.Stream) error {
	at := uintptr(0)
	if !f.At.IsZero() {
		at = address(f.At)
	}
	return w.kernels.launchScale(w.args, s, dst, src, at, f.Bits, false)
}
