package cuda

import (
	"errors"
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/symgrad/symgrad/internal/dl"
)

// Handles of default streams: the legacy one, which 0 also means (CU_STREAM_LEGACY), and the
// thread's (CU_STREAM_PER_THREAD).
const (
	streamLegacy    = 1
	streamPerThread = 2
)

// Stream is a queue of work on a device. Its work runs in order, and concurrently with other
// streams and the device's default stream.
//
// Methods that queue return when the work is queued, and allocate nothing. They are fastest between
// the device's Enter and Leave. After Close they return ErrClosed. An *Error may be that of an
// earlier kernel.
type Stream struct {
	v         *Device
	h         atomic.Uintptr // CUstream; 0 when closed
	borrowed  bool           // Close does not destroy the CUstream
	priority  int
	recording atomic.Bool // see Recording
}

// NewStream makes a stream. priority is in PriorityRange, where a smaller number is a higher
// priority; the driver rounds it to a supported one.
//
// Owns: the caller closes it. Errors: *Error.
func (v *Device) NewStream(priority int) (*Stream, error) {
	var h uintptr
	var got int32
	if err := v.Enter(); err != nil {
		return nil, err
	}
	defer v.Leave()
	if err := v.d.check("cuStreamCreateWithPriority", v.d.api.streamCreate(&h, streamNonBlocking, int32(priority))); err != nil {
		return nil, err
	}
	s := &Stream{v: v}
	s.h.Store(h)
	if err := v.d.check("cuStreamGetPriority", v.d.api.streamPrio(h, &got)); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	s.priority = int(got)
	return s, nil
}

// BorrowStream wraps another library's CUstream of this device; 0 is the default stream. Its Close
// does not destroy the CUstream.
func (v *Device) BorrowStream(handle uintptr) *Stream {
	if handle == 0 {
		handle = streamLegacy
	}
	s := &Stream{v: v, borrowed: true}
	s.h.Store(handle)
	return s
}

// Borrowed reports whether the stream is from BorrowStream.
func (s *Stream) Borrowed() bool { return s.borrowed }

// Handle returns the CUstream; 0 after Close.
func (s *Stream) Handle() uintptr { return s.h.Load() }

// Device returns the device of the stream.
func (s *Stream) Device() *Device { return s.v }

// Priority returns the driver's choice for the priority of NewStream.
func (s *Stream) Priority() int { return s.priority }

// errStreamClosed is allocated once, because the hot path returns it.
var errStreamClosed = fmt.Errorf("cuda: the stream: %w", ErrClosed)

// call is Device.call for the stream. A default stream belongs to the current context, so it needs
// Enter.
func (s *Stream) call(p *dl.Proc, name string, words ...uintptr) error {
	if s.h.Load() > streamPerThread {
		return s.v.call(p, name, words...)
	}
	if err := s.v.Enter(); err != nil {
		return err
	}
	defer s.v.Leave()
	return s.v.call(p, name, words...)
}

// Synchronize waits until all queued work is done. Errors: *Error, including those of failed
// kernels; ErrClosed.
func (s *Stream) Synchronize() error {
	h := s.h.Load()
	if h == 0 {
		return errStreamClosed
	}
	return s.call(&s.v.d.api.streamSync, "cuStreamSynchronize", h)
}

// Idle reports whether all queued work is done. Errors: as Synchronize.
func (s *Stream) Idle() (bool, error) {
	h := s.h.Load()
	if h == 0 {
		return false, errStreamClosed
	}
	if h <= streamPerThread {
		if err := s.v.Enter(); err != nil {
			return false, err
		}
		defer s.v.Leave()
	}
	return s.v.poll(&s.v.d.api.streamQuery, "cuStreamQuery", h)
}

// Record records e after the work queued so far. Errors: *Error, ErrClosed.
func (s *Stream) Record(e *Event) error {
	h, event := s.h.Load(), e.h.Load()
	switch {
	case h == 0:
		return errStreamClosed
	case event == 0:
		return errEventClosed
	}
	return s.call(&s.v.d.api.eventRecord, "cuEventRecord", event, h)
}

// Wait makes later work wait for the last record of e; without a record it waits for nothing. e may
// be of another device of this process. Errors: *Error, ErrClosed.
func (s *Stream) Wait(e *Event) error {
	h, event := s.h.Load(), e.h.Load()
	switch {
	case h == 0:
		return errStreamClosed
	case event == 0:
		return errEventClosed
	}
	return s.call(&s.v.d.api.streamWait, "cuStreamWaitEvent", h, event, 0)
}

// Copy queues a copy of bytes bytes from src to dst: addresses of any devices of this process, or
// of HostMemory. Errors: *Error, ErrInvalid, ErrClosed.
func (s *Stream) Copy(dst, src uintptr, bytes int64) error {
	h := s.h.Load()
	if h == 0 || bytes <= 0 {
		return s.nothing("copy", h, bytes)
	}
	err := s.call(&s.v.d.api.copyAsync, "cuMemcpyAsync", dst, src, uintptr(bytes), h)
	if n := cut(err, bytes, dst, src); n > 0 {
		if err = s.Copy(dst, src, n); err == nil {
			err = s.Copy(dst+uintptr(n), src+uintptr(n), bytes-n)
		}
	}
	return err
}

// CopyToHost queues a copy from a device at src to the host at dst. Only a copy to HostMemory is
// asynchronous: for other memory the call returns when the copy is done. Errors: as Copy.
func (s *Stream) CopyToHost(dst unsafe.Pointer, src uintptr, bytes int64) error {
	h := s.h.Load()
	if h == 0 || bytes <= 0 {
		return s.nothing("copy to the host", h, bytes)
	}
	err := s.host(&s.v.d.api.copyFromAsync, "cuMemcpyDtoHAsync_v2", uintptr(dst), src, uintptr(bytes), h)
	if n := cut(err, bytes, src, 0); n > 0 {
		if err = s.CopyToHost(dst, src, n); err == nil {
			err = s.CopyToHost(unsafe.Add(dst, n), src+uintptr(n), bytes-n)
		}
	}
	return err
}

// CopyFromHost queues a copy from the host at src to a device at dst. Only HostMemory is read
// later: other memory may change when the call returns. Errors: as Copy.
func (s *Stream) CopyFromHost(dst uintptr, src unsafe.Pointer, bytes int64) error {
	h := s.h.Load()
	if h == 0 || bytes <= 0 {
		return s.nothing("copy from the host", h, bytes)
	}
	err := s.host(&s.v.d.api.copyToAsync, "cuMemcpyHtoDAsync_v2", dst, uintptr(src), uintptr(bytes), h)
	if n := cut(err, bytes, dst, 0); n > 0 {
		if err = s.CopyFromHost(dst, src, n); err == nil {
			err = s.CopyFromHost(dst+uintptr(n), unsafe.Add(src, n), bytes-n)
		}
	}
	return err
}

// host is call with an address of Go memory among the words. The pragma keeps that memory alive and
// off the stack until the call returns.
//
//go:uintptrescapes
func (s *Stream) host(p *dl.Proc, name string, dst, src, bytes, h uintptr) error {
	return s.call(p, name, dst, src, bytes, h)
}

// Fill queues the setting of bytes bytes of device memory at p to b. Errors: as Copy.
func (s *Stream) Fill(p uintptr, b byte, bytes int64) error {
	h := s.h.Load()
	if h == 0 || bytes <= 0 {
		return s.nothing("fill", h, bytes)
	}
	err := s.call(&s.v.d.api.fillAsync, "cuMemsetD8Async", p, uintptr(b), uintptr(bytes), h)
	if n := cut(err, bytes, p, 0); n > 0 {
		if err = s.Fill(p, b, n); err == nil {
			err = s.Fill(p+uintptr(n), b, bytes-n)
		}
	}
	return err
}

// granularity is the size of the pieces of incrementally mapped memory
// (CU_MEM_ALLOC_GRANULARITY_RECOMMENDED on all GPUs so far).
const granularity = 2 << 20

// cut returns where to split a copy of bytes bytes at the addresses a and b (0 for none) after the
// error err. The driver rejects a range that spans separately mapped pieces of memory, such as
// NVSHMEM's heap after it has grown. It returns 0 for other errors, and if nothing can be split.
func cut(err error, bytes int64, a, b uintptr) int64 {
	if err == nil {
		return 0
	}
	var e *Error
	if !errors.As(err, &e) || e.Code != codeInvalidValue {
		return 0
	}
	for _, p := range [...]uintptr{a, b} {
		if p == 0 {
			continue
		}
		end := p + uintptr(bytes)
		if seam := (p + uintptr(bytes)/2) &^ (granularity - 1); seam > p {
			return int64(seam - p)
		}
		if seam := (p &^ (granularity - 1)) + granularity; seam < end {
			return int64(seam - p)
		}
	}
	return 0
}

// nothing returns the result of a call on a closed stream, or with bytes < 1.
func (s *Stream) nothing(what string, h uintptr, bytes int64) error {
	if h == 0 {
		return errStreamClosed
	}
	return extent(what, bytes)
}

// Write64 queues *p = v, visible to the host and to all devices after the earlier work of the
// stream. p is a multiple of 8, in device memory or HostMemory. Errors: dl.ErrUnsupported if the
// device cannot, *Error, ErrClosed.
func (s *Stream) Write64(p uintptr, v uint64) error {
	h := s.h.Load()
	if h == 0 {
		return errStreamClosed
	}
	return s.call(&s.v.d.api.write64, "cuStreamWriteValue64_v2", h, p, uintptr(v), 0)
}

// Wait64 makes later work wait until *p >= v. It compares by the sign of the 64-bit difference, so
// counters may wrap. p is as for Write64. Nothing else ends the wait. Errors: as Write64.
func (s *Stream) Wait64(p uintptr, v uint64) error {
	h := s.h.Load()
	if h == 0 {
		return errStreamClosed
	}
	return s.call(&s.v.d.api.wait64, "cuStreamWaitValue64_v2", h, p, uintptr(v), waitAtLeast)
}

// Close destroys the stream; the device still runs the queued work. Idempotent. Errors: *Error.
func (s *Stream) Close() error {
	h := s.h.Swap(0)
	if h == 0 || s.borrowed {
		return nil
	}
	return s.v.inside("cuStreamDestroy_v2", func() int32 { return s.v.d.api.streamDestroy(h) })
}
