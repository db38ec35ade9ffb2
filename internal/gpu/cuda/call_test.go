package cuda

import (
	"errors"
	"strings"
	"testing"
	"unsafe"

	"github.com/symgrad/symgrad/internal/dl"
)

// Sizes of cuda.h: CUuuid has 16 bytes, CUipcMemHandle 64, CUgraphEdgeData 8, a list of kernel
// parameters is one of pointers, and CUresult, CUdevice and the enumerations are ints. Of
// CUlaunchConfig, CUlaunchAttribute and CUDA_KERNEL_NODE_PARAMS_v2 the places of fields are those
// that a C compiler gives.
func TestStructsHaveCUDAsLayout(t *testing.T) {
	var b argBlock
	got := [...]uintptr{
		unsafe.Sizeof(uuid{}), unsafe.Alignof(uuid{}), unsafe.Sizeof(ipcHandle{}), unsafe.Alignof(ipcHandle{}),
		unsafe.Sizeof(b.params[0]), unsafe.Offsetof(b.params), unsafe.Sizeof(b.params) / mostArgs,
		unsafe.Sizeof(Device{}.dev), unsafe.Sizeof(Attribute(0)), unsafe.Sizeof(FunctionAttribute(0)),
		unsafe.Sizeof(edgeData{}), unsafe.Alignof(edgeData{}),
	}
	if want := [...]uintptr{16, 1, 64, 1, 8, 0, 8, 4, 4, 4, 8, 1}; got != want {
		t.Errorf("sizes, alignments and offsets %v, want %v", got, want)
	}
	var c launchConfig
	var a launchAttribute
	var k kernelNode
	got2 := [...]uintptr{
		unsafe.Sizeof(c), unsafe.Offsetof(c.grid), unsafe.Offsetof(c.block), unsafe.Offsetof(c.shared), unsafe.Offsetof(c.stream),
		unsafe.Offsetof(c.attributes), unsafe.Offsetof(c.count),
		unsafe.Sizeof(a), unsafe.Offsetof(a.id), unsafe.Offsetof(a.value),
		unsafe.Sizeof(k), unsafe.Offsetof(k.function), unsafe.Offsetof(k.grid), unsafe.Offsetof(k.block), unsafe.Offsetof(k.shared),
		unsafe.Offsetof(k.params), unsafe.Offsetof(k.extra), unsafe.Offsetof(k.kernel), unsafe.Offsetof(k.context),
	}
	if want := [...]uintptr{56, 0, 12, 24, 32, 40, 48, 72, 0, 8, 72, 0, 8, 20, 32, 40, 48, 56, 64}; got2 != want {
		t.Errorf("sizes and offsets of a launch %v, want %v", got2, want)
	}
}

// answers makes a C function that records its arguments and returns the result of answer.
func answers(t *testing.T, answer func(a, b, c, d uintptr) int32) dl.Proc {
	t.Helper()
	addr, err := dl.Callback(func(a, b, c, d uintptr) uintptr { return uintptr(uint32(answer(a, b, c, d))) })
	if err != nil {
		t.Skipf("no callbacks on this platform: %v", err)
	}
	return dl.ProcAt(addr, "callback")
}

// texts is a front whose errors are "E<code>" without a text of their own.
func texts() front {
	name := []byte("E\x00")
	return front{
		errorName: func(code int32, out *unsafe.Pointer) int32 {
			*out = unsafe.Pointer(&name[0])
			return success
		},
		errorString: func(code int32, out *unsafe.Pointer) int32 { return codeInvalidValue },
	}
}

func TestCallOnAThreadWithoutContextIsMadeAgainInside(t *testing.T) {
	var log []string
	inside := 0
	note := func(what string) { log = append(log, what) }
	d := &Driver{name: "CUDA 13.0 (callbacks)", front: texts()}
	d.api.ctxPush = answers(t, func(ctx, _, _, _ uintptr) int32 {
		if ctx != 0x77 {
			t.Errorf("context %#x is made current, want 0x77", ctx)
		}
		inside++
		note("push")
		return success
	})
	d.api.ctxPop = answers(t, func(_, _, _, _ uintptr) int32 { inside--; note("pop"); return success })
	record := answers(t, func(event, stream, _, _ uintptr) int32 {
		note("record")
		if event != 5 || stream != 6 {
			t.Errorf("called with %d and %d, want 5 and 6", event, stream)
		}
		if inside == 0 {
			return codeInvalidContext
		}
		return success
	})
	d.api.eventRecord = record
	v := &Device{d: d, ctx: 0x77}
	s, e := v.BorrowStream(6), v.BorrowEvent(5, false)
	if err := s.Record(e); err != nil || strings.Join(log, " ") != "record push record pop" {
		t.Errorf("outside: %v, calls %v", err, log)
	}
	log = nil
	if err := s.Wait(e); !errors.Is(err, dl.ErrUnsupported) || log != nil {
		t.Errorf("a function that the driver lacks: %v, calls %v", err, log)
	}
	if err := v.Enter(); err != nil {
		t.Fatal(err)
	}
	if err := s.Record(e); err != nil {
		t.Error(err)
	}
	v.Leave()
	if strings.Join(log, " ") != "push record pop" {
		t.Errorf("inside: calls %v", log)
	}
}

// A default stream belongs to the current context: its handle does not name a device.
func TestCallsOnDefaultStreamsAreMadeInside(t *testing.T) {
	var log []string
	note := func(what string) func(a, b, c, d uintptr) int32 {
		return func(_, _, _, _ uintptr) int32 { log = append(log, what); return success }
	}
	d := &Driver{name: "CUDA 13.0 (callbacks)", front: texts()}
	d.api.ctxPush, d.api.ctxPop = answers(t, note("push")), answers(t, note("pop"))
	d.api.eventRecord, d.api.graphLaunch = answers(t, note("record")), answers(t, note("launch"))
	d.api.streamQuery = answers(t, note("query"))
	v := &Device{d: d, ctx: 0x77}
	e, x := v.BorrowEvent(5, false), &GraphExec{v: v}
	x.h.Store(9)
	for _, c := range []struct {
		handle uintptr
		inside bool
	}{{0, true}, {streamLegacy, true}, {streamPerThread, true}, {streamPerThread + 1, false}} {
		s := v.BorrowStream(c.handle)
		for what, call := range map[string]func() error{
			"record": func() error { return s.Record(e) },
			"launch": func() error { return x.Launch(s) },
			"query":  func() error { _, err := s.Idle(); return err },
		} {
			want := what
			if c.inside {
				want = "push " + what + " pop"
			}
			log = nil
			if err := call(); err != nil || strings.Join(log, " ") != want {
				t.Errorf("stream %d: %v, calls %v, want %s", c.handle, err, log, want)
			}
		}
		if !s.Borrowed() {
			t.Errorf("stream %d is not borrowed", c.handle)
		}
	}
}

func TestCallThatFailsHasTheDriversWords(t *testing.T) {
	d := &Driver{name: "CUDA 13.0 (callbacks)", front: texts()}
	code := int32(719)
	d.api.streamSync = answers(t, func(_, _, _, _ uintptr) int32 { return code })
	d.api.streamQuery = d.api.streamSync
	v := &Device{d: d}
	s := v.BorrowStream(6)
	err := s.Synchronize()
	var e *Error
	if !errors.As(err, &e) || e.Call != "cuStreamSynchronize" || e.Code != 719 || e.Name != "E" || e.Text != "the driver has no text for it" || e.Library != d.name || !e.Fatal() {
		t.Errorf("got %+v", err)
	}
	if idle, err := s.Idle(); idle || !errors.As(err, &e) || e.Call != "cuStreamQuery" {
		t.Errorf("Idle = %t, %v", idle, err)
	}
	code = codeNotReady
	if idle, err := s.Idle(); idle || err != nil {
		t.Errorf("not ready: Idle = %t, %v", idle, err)
	}
	code = success
	if idle, err := s.Idle(); !idle || err != nil {
		t.Errorf("success: Idle = %t, %v", idle, err)
	}
}

func TestWhatIsClosedAnswersSo(t *testing.T) {
	d := &Driver{name: "CUDA 13.0"}
	v := &Device{d: d}
	s, e := v.BorrowStream(6), v.BorrowEvent(5, true)
	open := v.BorrowStream(7)
	if err := errors.Join(s.Close(), s.Close(), e.Close(), e.Close()); err != nil {
		t.Fatal(err)
	}
	m, g, x := &Module{v: v}, &Graph{v: v}, &GraphExec{v: v}
	f := &Function{m: m}
	if err := errors.Join(m.Close(), g.Close(), x.Close()); err != nil {
		t.Fatal(err)
	}
	closed := map[string]func() error{
		"Synchronize":      s.Synchronize,
		"Idle":             func() error { _, err := s.Idle(); return err },
		"Record":           func() error { return s.Record(e) },
		"Record of":        func() error { return open.Record(e) },
		"Wait":             func() error { return s.Wait(e) },
		"Wait for":         func() error { return open.Wait(e) },
		"Copy":             func() error { return s.Copy(1, 2, 3) },
		"CopyToHost":       func() error { return s.CopyToHost(nil, 2, 3) },
		"CopyFromHost":     func() error { return s.CopyFromHost(1, nil, 3) },
		"Fill":             func() error { return s.Fill(1, 2, 3) },
		"Fill of nothing":  func() error { return s.Fill(1, 2, 0) },
		"Write64":          func() error { return s.Write64(8, 1) },
		"Wait64":           func() error { return s.Wait64(8, 1) },
		"BeginCapture":     s.BeginCapture,
		"EndCapture":       func() error { _, err := s.EndCapture(); return err },
		"Capturing":        func() error { _, err := s.Capturing(); return err },
		"Done":             func() error { _, err := e.Done(); return err },
		"Event":            e.Synchronize,
		"Since":            func() error { _, err := e.Since(e); return err },
		"Function":         func() error { _, err := m.Function("f"); return err },
		"Global":           func() error { _, _, err := m.Global("g"); return err },
		"Attribute":        func() error { _, err := f.Attribute(FunctionRegisters); return err },
		"AllowShared":      func() error { return f.AllowShared(1) },
		"Resident":         func() error { _, err := f.Resident(32, 0); return err },
		"Launch":           func() error { return f.Launch(open, Launch{}, nil) },
		"Launch on":        func() error { return f.Launch(s, Launch{}, nil) },
		"Keep":             func() error { _, err := f.Keep(Launch{}, nil); return err },
		"Nodes":            func() error { _, err := g.Nodes(); return err },
		"Instantiate":      func() error { _, err := g.Instantiate(); return err },
		"GraphExec":        func() error { return x.Launch(open) },
		"GraphExec Upload": func() error { return x.Upload(open) },
	}
	for name, call := range closed {
		if err := call(); !errors.Is(err, ErrClosed) {
			t.Errorf("%s: %v, want ErrClosed", name, err)
		}
	}
	if s.Handle() != 0 || e.Handle() != 0 {
		t.Error("a closed handle is not 0")
	}
	d.closed.Store(true)
	for name, call := range map[string]func() error{
		"Enter":  v.Enter,
		"Alloc":  func() error { _, err := v.Alloc(8); return err },
		"Stream": func() error { _, err := v.NewStream(0); return err },
		"Event":  func() error { _, err := v.NewEvent(); return err },
		"Load":   func() error { _, err := v.Load([]byte{1}); return err },
		"Fill":   func() error { return open.Fill(1, 2, 3) },
		"Idle":   func() error { _, err := open.Idle(); return err },
	} {
		if err := call(); !errors.Is(err, ErrClosed) {
			t.Errorf("%s of a closed driver: %v, want ErrClosed", name, err)
		}
	}
}

func TestLengthsThatCannotBeAreRefused(t *testing.T) {
	v := &Device{d: &Driver{}}
	s := v.BorrowStream(0)
	if s.Handle() != streamLegacy {
		t.Errorf("the default stream's handle is %d, want %d, which is not that of a closed one", s.Handle(), streamLegacy)
	}
	for name, call := range map[string]func(n int64) error{
		"copy":               func(n int64) error { return s.Copy(1, 2, n) },
		"copy to the host":   func(n int64) error { return s.CopyToHost(nil, 2, n) },
		"copy from the host": func(n int64) error { return s.CopyFromHost(1, nil, n) },
		"fill":               func(n int64) error { return s.Fill(1, 2, n) },
	} {
		if err := call(-1); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), name+" of -1 B") {
			t.Errorf("%s of -1 B: %v", name, err)
		}
		if err := call(0); err != nil {
			t.Errorf("%s of nothing: %v", name, err)
		}
	}
	for _, n := range []int64{0, -1} {
		if _, err := v.Alloc(n); !errors.Is(err, ErrInvalid) {
			t.Errorf("Alloc(%d): %v", n, err)
		}
		if _, err := v.AllocHost(n); !errors.Is(err, ErrInvalid) {
			t.Errorf("AllocHost(%d): %v", n, err)
		}
	}
	if _, err := v.Load(nil); !errors.Is(err, ErrInvalid) {
		t.Errorf("Load of nothing: %v", err)
	}
	if err := errors.Join(v.Free(0), v.CloseIPC(0)); err != nil {
		t.Errorf("of address 0: %v", err)
	}
	e := v.BorrowEvent(5, false)
	if _, err := e.Since(e); !errors.Is(err, ErrInvalid) {
		t.Errorf("Since of an event without a time: %v", err)
	}
}

// The handle of OpenIPC goes by value: in C the 64 bytes lie on the stack, while the pointer and
// the flags are in the first two registers. A function of 14 words has its last eight in the same
// place.
func TestIPCHandleIsPassedByValue(t *testing.T) {
	var h [64]byte
	for i := range h {
		h[i] = byte(i + 1)
	}
	callback, err := dl.Callback(func(out *uintptr, flags, c, d, e, f, w0, w1, w2, w3, w4, w5, w6, w7 uintptr) uintptr {
		words := [8]uintptr{w0, w1, w2, w3, w4, w5, w6, w7}
		if got := *(*[64]byte)(unsafe.Pointer(&words)); got != h || flags != ipcLazyPeer {
			t.Errorf("the function got flags %d and % x", flags, got)
			return codeInvalidValue
		}
		*out = 0xabcd
		return success
	})
	if err != nil {
		t.Skipf("no callbacks on this platform: %v", err)
	}
	d := &Driver{front: texts()}
	d.api.ctxPush = answers(t, func(_, _, _, _ uintptr) int32 { return success })
	d.api.ctxPop = d.api.ctxPush
	d.api.ipcOpen = dl.ProcAt(callback, "callback")
	if p, err := (&Device{d: d}).OpenIPC(h); err != nil || p != 0xabcd {
		t.Errorf("OpenIPC = %#x, %v", p, err)
	}
}

// The hot path's own cost is measured with a function of the C library that always returns 0.
func TestHotPathDoesNotAllocate(t *testing.T) {
	zero := library(t, "libc.so.6").Proc("sched_yield", "")
	d := &Driver{}
	for _, p := range []*dl.Proc{
		&d.api.ctxPush, &d.api.ctxPop, &d.api.streamSync, &d.api.streamQuery, &d.api.streamWait, &d.api.copyAsync,
		&d.api.copyToAsync, &d.api.copyFromAsync, &d.api.fillAsync, &d.api.write64, &d.api.wait64, &d.api.eventRecord, &d.api.eventQuery,
		&d.api.eventSync, &d.api.launch, &d.api.launchCoop, &d.api.launchEx, &d.api.graphLaunch,
	} {
		*p = zero
	}
	v := &Device{d: d, major: 9}
	s, e := v.BorrowStream(6), v.BorrowEvent(5, false)
	x := &GraphExec{v: v}
	x.h.Store(7)
	m := &Module{v: v}
	m.h.Store(8)
	f := &Function{m: m, params: []uint16{8, 4}, known: true}
	args, err := NewArgs(2)
	if err != nil {
		t.Fatal(err)
	}
	host := make([]byte, 8)
	var idle, done bool
	calls := map[string]func() error{
		"Enter and Leave": func() error { err := v.Enter(); v.Leave(); return err },
		"Synchronize":     s.Synchronize,
		"Idle":            func() (err error) { idle, err = s.Idle(); return err },
		"Record":          func() error { return s.Record(e) },
		"Wait":            func() error { return s.Wait(e) },
		"Copy":            func() error { return s.Copy(1, 2, 3) },
		"CopyToHost":      func() error { return s.CopyToHost(unsafe.Pointer(&host[0]), 2, 3) },
		"CopyFromHost":    func() error { return s.CopyFromHost(1, unsafe.Pointer(&host[0]), 3) },
		"Fill":            func() error { return s.Fill(1, 2, 3) },
		"Write64":         func() error { return s.Write64(8, 1) },
		"Wait64":          func() error { return s.Wait64(8, 1) },
		"Done":            func() (err error) { done, err = e.Done(); return err },
		"Event":           e.Synchronize,
		"GraphExec":       func() error { return x.Launch(s) },
		"Launch": func() error {
			args.Reset()
			args.Ptr(1)
			args.I32(2)
			return f.Launch(s, Launch{Grid: [3]uint32{7}, Block: [3]uint32{256}, Shared: 1024}, args)
		},
		"Launch together": func() error {
			args.Reset()
			args.Ptr(1)
			args.U32(2)
			return f.Launch(s, Launch{Together: true}, args)
		},
		"Launch early": func() error {
			args.Reset()
			args.Ptr(1)
			args.U32(2)
			return f.Launch(s, Launch{Early: true}, args)
		},
	}
	for name, call := range calls {
		var bad error
		allocs := testing.AllocsPerRun(200, func() { bad = errors.Join(bad, call()) })
		if bad != nil {
			t.Errorf("%s: %v", name, bad)
		}
		if allocs != 0 && !raceEnabled {
			t.Errorf("%s: %v allocations, want 0", name, allocs)
		}
	}
	if !idle || !done {
		t.Error("success is not idle and done")
	}
	// labs returns the handle that it is given.
	d.api.streamQuery = library(t, "libc.so.6").Proc("labs", "")
	busy := v.BorrowStream(codeNotReady)
	if allocs := testing.AllocsPerRun(200, func() {
		if i, err := busy.Idle(); i || err != nil {
			t.Errorf("not ready: Idle = %t, %v", i, err)
		}
	}); allocs != 0 && !raceEnabled {
		t.Errorf("asking a busy stream: %v allocations, want 0", allocs)
	}
}

// A copy that the driver refuses as a whole is cut at seams until nothing is left to cut.
func TestCutsAreAtSeams(t *testing.T) {
	const m = granularity
	refused := &Error{Code: codeInvalidValue}
	for _, tt := range []struct {
		err   error
		bytes int64
		a, b  uintptr
		want  int64
	}{
		{nil, 8 * m, 16 * m, 0, 0},
		{&Error{Code: codeNotReady}, 8 * m, 16 * m, 0, 0},
		{refused, 8 * m, 16 * m, 0, 4 * m},
		{refused, 8*m + 6, 16*m + 2, 0, 4*m - 2},
		{refused, 2 * m, 16 * m, 0, m},
		{refused, m, 16 * m, 0, 0},              // one piece
		{refused, m, 16*m + 8, 0, m - 8},        // the seam is not in the middle
		{refused, m, 16 * m, 32*m + 16, m - 16}, // only the other address has one
		{refused, 8, 16*m - 4, 0, 4},
	} {
		if got := cut(tt.err, tt.bytes, tt.a, tt.b); got != tt.want {
			t.Errorf("%d B at %#x and %#x (%v) are cut at %d, want %d", tt.bytes, tt.a, tt.b, tt.err, got, tt.want)
		}
	}
}
