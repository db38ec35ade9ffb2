package cuda

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"unsafe"
)

// launching is a device of a driver that records launches, with a kernel that takes one number of
// 8 B.
func launching(t *testing.T, major int) (*Function, *[]string, *launchConfig) {
	t.Helper()
	calls, config := new([]string), new(launchConfig)
	d := &Driver{front: texts()}
	d.api.ctxPush = answers(t, func(_, _, _, _ uintptr) int32 { return success })
	d.api.ctxPop = d.api.ctxPush
	d.api.launch = answers(t, func(f, _, _, _ uintptr) int32 { *calls = append(*calls, "plain"); return success })
	d.api.launchCoop = answers(t, func(f, _, _, _ uintptr) int32 { *calls = append(*calls, "together"); return success })
	d.api.launchEx = answers(t, func(c, f, params, extra uintptr) int32 {
		*calls = append(*calls, "early")
		*config = **(**launchConfig)(unsafe.Pointer(&c))
		a := **(**launchAttribute)(unsafe.Pointer(&config.attributes))
		if f != 9 || params == 0 || extra != 0 || a.id != attributeEarly || a.value[0] != 1 {
			t.Errorf("cuLaunchKernelEx of %d with parameters at %#x and %#x, attribute %+v", f, params, extra, a)
		}
		return success
	})
	m := &Module{v: &Device{d: d, major: major}}
	m.h.Store(8)
	return &Function{m: m, name: "f", h: 9, params: []uint16{8}, known: true}, calls, config
}

func TestLaunchesThatMayBeginEarlySayTheSame(t *testing.T) {
	for _, c := range []struct {
		major  int
		launch Launch
		want   string
	}{
		{9, Launch{Early: true, Grid: [3]uint32{3, 0, 5}, Block: [3]uint32{7, 2}, Shared: 11}, "early"},
		{9, Launch{}, "plain"},
		{8, Launch{Early: true}, "plain"},
		{9, Launch{Early: true, Together: true}, "together"},
	} {
		f, calls, config := launching(t, c.major)
		var args Args
		args.U64(1)
		if err := f.Launch(f.m.v.BorrowStream(6), c.launch, &args); err != nil || !slices.Equal(*calls, []string{c.want}) {
			t.Errorf("%+v of compute capability %d: %v, calls %v, want %s", c.launch, c.major, err, *calls, c.want)
		}
		if c.want == "early" && (config.grid != [3]uint32{3, 1, 5} || config.block != [3]uint32{7, 2, 1} || config.shared != 11 || config.stream != 6 || config.count != 1) {
			t.Errorf("%+v is told as %+v", c.launch, *config)
		}
	}
}

// keeping is a driver for graphs of one kernel: it records the last node and closed objects, and
// returns the configured status.
type keeping struct {
	node   kernelNode
	closed []uintptr
	code   int32
}

func newKeeping(t *testing.T, f *Function) *keeping {
	t.Helper()
	k := new(keeping)
	api := &f.m.v.d.api
	api.graphCreate = func(out *uintptr, flags uint32) int32 { *out = 77; return success }
	api.graphKernel = func(out *uintptr, graph uintptr, after *uintptr, n uint64, p *kernelNode) int32 {
		if graph != 77 || after != nil || n != 0 {
			t.Errorf("a node of graph %d behind %d others", graph, n)
		}
		*out, k.node = 79, *p
		return k.code
	}
	api.graphInst = func(out *uintptr, graph uintptr, flags uint64) int32 {
		if graph != 77 || flags != 0 {
			t.Errorf("graph %d is made ready with flags %d: the stream's priority counts", graph, flags)
		}
		*out = 78
		return success
	}
	api.graphSet = func(exec, at uintptr, p *kernelNode) int32 {
		if exec != 78 || at != 79 {
			t.Errorf("node %d of %d is set", at, exec)
		}
		k.node = *p
		return k.code
	}
	api.execDestroy = func(exec uintptr) int32 { k.closed = append(k.closed, exec); return success }
	api.graphDestroy = func(graph uintptr) int32 { k.closed = append(k.closed, graph); return success }
	return k
}

func TestWhatIsKeptIsAGraphOfOneKernel(t *testing.T) {
	f, _, _ := launching(t, 9)
	k := newKeeping(t, f)
	var args Args
	args.U64(1)
	x, err := f.Keep(Launch{Grid: [3]uint32{4}, Block: [3]uint32{64}, Shared: 5}, &args)
	if err != nil || x.exec.h.Load() != 78 || len(k.closed) > 0 {
		t.Fatalf("%v, %v closed", err, k.closed)
	}
	if want := (kernelNode{function: 9, grid: [3]uint32{4, 1, 1}, block: [3]uint32{64, 1, 1}, shared: 5, params: uintptr(unsafe.Pointer(&args.b.params[0]))}); k.node != want {
		t.Errorf("the kernel is %+v, want %+v", k.node, want)
	}
	if err := errors.Join(x.Close(), x.Close()); err != nil || !slices.Equal(k.closed, []uintptr{78, 77}) {
		t.Errorf("%v, %v closed", err, k.closed)
	}
	if _, err := f.Keep(Launch{}, nil); !errors.Is(err, ErrInvalid) {
		t.Errorf("without its argument: %v", err)
	}
	k.code, k.closed = codeInvalidValue, nil
	if x, err := f.Keep(Launch{}, &args); x != nil || err == nil || !strings.Contains(err.Error(), `kernel "f"`) || !slices.Equal(k.closed, []uintptr{77}) {
		t.Errorf("what the driver refuses: %v, graph %v closed", err, k.closed)
	}
}

func TestWhatIsKeptBecomesAnotherLaunch(t *testing.T) {
	f, _, _ := launching(t, 9)
	k := newKeeping(t, f)
	var args Args
	args.U64(1)
	x, err := f.Keep(Launch{Grid: [3]uint32{4}, Block: [3]uint32{64}}, &args)
	if err != nil {
		t.Fatal(err)
	}
	another := func() error { return x.Set(f, Launch{Grid: [3]uint32{8}, Shared: 3}, &args) }
	if err := another(); err != nil {
		t.Fatal(err)
	}
	if want := (kernelNode{function: 9, grid: [3]uint32{8, 1, 1}, block: [3]uint32{1, 1, 1}, shared: 3, params: uintptr(unsafe.Pointer(&args.b.params[0]))}); k.node != want {
		t.Errorf("the kernel is %+v, want %+v", k.node, want)
	}
	if err := x.Set(f, Launch{}, nil); !errors.Is(err, ErrInvalid) {
		t.Errorf("without its argument: %v", err)
	}
	k.code = codeInvalidValue
	if err := another(); err == nil || !strings.Contains(err.Error(), `kernel "f"`) {
		t.Errorf("what the driver refuses: %v", err)
	}
	if err := x.Close(); err != nil {
		t.Fatal(err)
	}
	if err := another(); !errors.Is(err, ErrClosed) {
		t.Errorf("in what is closed: %v", err)
	}
}

func TestStreamsKnowThatTheyAreCaptured(t *testing.T) {
	f, _, _ := launching(t, 9)
	v := f.m.v
	code := int32(success)
	v.d.api.captureBegin = func(uintptr, int32) int32 { return code }
	v.d.api.captureEnd = func(_ uintptr, graph *uintptr) int32 { *graph = 5; return code }
	v.d.api.graphDestroy = func(uintptr) int32 { return success }
	s := v.BorrowStream(6)
	if s.Recording() || s.BeginCapture() != nil || !s.Recording() {
		t.Error("a stream that is captured does not know it")
	}
	if _, err := s.EndCapture(); err != nil || s.Recording() {
		t.Errorf("behind the end: recording %t, %v", s.Recording(), err)
	}
	code = codeInvalidValue
	if err := s.BeginCapture(); err == nil || s.Recording() {
		t.Errorf("a capture that was refused: recording %t, %v", s.Recording(), err)
	}
}
