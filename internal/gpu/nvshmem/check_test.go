package nvshmem

import (
	"errors"
	"strings"
	"testing"
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/dl"
	"github.com/symgrad/symgrad/internal/gpu"
	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

func TestHeapFindsWhatLiesInOneAllocation(t *testing.T) {
	var h heap
	if h.has(1000, 1) {
		t.Error("an empty heap has memory")
	}
	h.add(block{4000, 100})
	h.add(block{1000, 100})
	h.add(block{1100, 50}) // adjacent
	for _, c := range []struct {
		addr  uintptr
		bytes int64
		want  bool
	}{
		{1000, 100, true},
		{1000, 101, false}, // into the next allocation
		{1099, 1, true},
		{1100, 50, true},
		{1150, 0, true},
		{1151, 0, false},
		{999, 1, false},
		{4050, 50, true},
		{4050, 51, false},
		{4000, -1, false},
		{^uintptr(0), 1, false},
	} {
		if got := h.has(c.addr, c.bytes); got != c.want {
			t.Errorf("%d B at %d: %v", c.bytes, c.addr, got)
		}
	}
	if h.remove(1001) || !h.remove(1000) || h.remove(1000) || h.has(1000, 1) || !h.has(4000, 1) {
		t.Error("remove takes something else than the allocation that begins there, once")
	}
	if h.clear(); h.has(4000, 1) {
		t.Error("an allocation is left after clear")
	}
	if n := testing.AllocsPerRun(100, func() { h.has(4000, 1) }); n != 0 {
		t.Errorf("has allocates %v times", n)
	}
}

func TestGrant(t *testing.T) {
	cfg := Config{}.defaults()
	const mib, gib = 1 << 20, 1 << 30
	for _, c := range []struct {
		name string
		all  []allocRequest
		kind error
		want string
	}{
		{"enough", []allocRequest{{mib, 10 * gib, 0}, {mib, 9 * gib, gib}}, nil, ""},
		{"exactly one step", []allocRequest{{mib, 512 * mib, 0}}, nil, ""},
		{"nothing", []allocRequest{{0, gib, 0}}, dist.ErrInvalid, "0 B"},
		{"negative", []allocRequest{{-1, gib, 0}}, dist.ErrInvalid, "-1 B"},
		{"sizes differ", []allocRequest{{mib, gib, 0}, {2 * mib, gib, 0}}, dist.ErrMismatch, "rank 1 for 2097152 B"},
		{"one GPU is full", []allocRequest{{mib, gib, 0}, {mib, 500 * mib, 0}}, symmetric.ErrNoSpace, "the GPU of rank 1 has 524288000 B free"},
		{"a page more than a step", []allocRequest{{512 * mib, 600 * mib, 0}}, symmetric.ErrNoSpace, "may grow by 1073741824 B"},
		{"the heap is at its end", []allocRequest{{mib, 10 * gib, 0}, {mib, 10 * gib, 128*gib - 512*mib}}, symmetric.ErrNoSpace, "raise HeapBytes"},
		{"more than the heap can ever be", []allocRequest{{200 * gib, 300 * gib, 0}}, dist.ErrInvalid, "want 1 to"},
	} {
		lines := make([][]byte, len(c.all))
		for i, w := range c.all {
			lines[i] = w.encode()
			if len(lines[i]) != allocRequestBytes || decodeAllocRequest(lines[i]) != w {
				t.Fatalf("%+v does not survive the wire", w)
			}
		}
		err := grant(lines, cfg)
		switch {
		case c.kind == nil && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case c.kind != nil && (!errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: error %v, want %v with %q", c.name, err, c.kind, c.want)
		}
	}
}

// bare is a runtime of four ranks with one allocation and no library, for checks that
// precede a call.
func bare() *Runtime {
	rt := newRuntime(&Library{cfg: Config{}.defaults()}, &gpu.Member{Rank: 1, Size: 4, World: []int{0, 1, 2, 3}})
	rt.heap.add(block{4096, 1000})
	return rt
}

func TestTransfersAreCheckedBeforeTheLibraryIsCalled(t *testing.T) {
	rt := bare()
	for _, c := range []struct {
		name          string
		rank          int
		local, remote uintptr
		bytes         int64
		kind          error
	}{
		{"fine", 3, 4096, 4096, 1000, nil},
		{"to itself", 1, 4096, 4196, 100, nil},
		{"nothing at all", 0, 0, 0, 0, nil},
		{"no such rank", 4, 4096, 4096, 8, dist.ErrRoot},
		{"negative rank", -1, 4096, 4096, 8, dist.ErrRoot},
		{"negative length", 0, 4096, 4096, -8, dist.ErrCount},
		{"beyond the end", 0, 4096, 5000, 100, dist.ErrCount},
		{"outside", 0, 4096, 10000, 8, symmetric.ErrNotAllocated},
		{"nil", 0, 4096, 0, 8, symmetric.ErrNotAllocated},
	} {
		err := rt.checkMove("put", c.rank, c.local, c.remote, c.bytes)
		if c.kind == nil && err != nil || c.kind != nil && !errors.Is(err, c.kind) {
			t.Errorf("%s: error %v, want %v", c.name, err, c.kind)
		}
	}
	for _, c := range []struct {
		name string
		rank int
		sig  Signal
		kind error
	}{
		{"fine", 0, Signal{4096, SignalSet, 1}, nil},
		{"add", 3, Signal{4104, SignalAdd, 1}, nil},
		{"no such rank", 7, Signal{4096, SignalSet, 1}, dist.ErrRoot},
		{"no operation", 0, Signal{4096, 0, 1}, dist.ErrInvalid},
		{"misaligned", 0, Signal{4100, SignalSet, 1}, symmetric.ErrAlignment},
		{"half outside", 0, Signal{5096, SignalSet, 1}, symmetric.ErrNotAllocated},
		{"nil", 0, Signal{0, SignalSet, 1}, symmetric.ErrNotAllocated},
	} {
		err := rt.checkSignal("signal", c.rank, c.sig)
		if c.kind == nil && err != nil || c.kind != nil && !errors.Is(err, c.kind) {
			t.Errorf("%s: error %v, want %v", c.name, err, c.kind)
		}
	}
}

func TestNothingIsCalledOnAClosedOrFailedRuntime(t *testing.T) {
	closed := bare()
	closed.end.closed.Store(true)
	closed.end.once.Do(func() {})
	failed := bare()
	first := errors.New("the first error")
	failed.fail(first)
	failed.fail(errors.New("a later one"))
	for _, c := range []struct {
		name string
		rt   *Runtime
		kind error
	}{{"closed", closed, dist.ErrClosed}, {"failed", failed, first}} {
		rt := c.rt
		for what, err := range map[string]error{
			"put":           rt.Put(nil, 0, Transfer{4096, 4096, 8}),
			"put nbi":       rt.PutNBI(nil, 0, Transfer{4096, 4096, 8}),
			"get":           rt.Get(nil, 0, Transfer{4096, 4096, 8}),
			"get nbi":       rt.GetNBI(nil, 0, Transfer{4096, 4096, 8}),
			"put signal":    rt.PutSignal(nil, 0, Transfer{4096, 4096, 8}, Signal{4096, SignalSet, 1}),
			"nbi signal":    rt.PutSignalNBI(nil, 0, Transfer{4096, 4096, 8}, Signal{4096, SignalSet, 1}),
			"signal":        rt.Signal(nil, 0, Signal{4096, SignalSet, 1}),
			"signal wait":   rt.SignalWait(nil, 4096, Equal, 1),
			"quiet":         rt.Quiet(nil),
			"barrier":       rt.Barrier(nil),
			"sync":          rt.Sync(nil),
			"health":        rt.healthy("alloc"),
			"peer's memory": func() error { _, err := rt.Peer(0, 4096); return err }(),
		} {
			if !errors.Is(err, c.kind) {
				t.Errorf("%s, %s: error %v, want %v", c.name, what, err, c.kind)
			}
		}
	}
	if closed.Close() != nil {
		t.Error("a second Close is an error")
	}
	stuck := bare()
	stuck.remains.stuck.Store(true)
	if err := stuck.healthy("alloc"); !errors.Is(err, dist.ErrAborted) {
		t.Errorf("error %v while operations of an aborted group may wait, want ErrAborted", err)
	}
}

func TestAProcessHasOneRuntime(t *testing.T) {
	status := int32(0)
	lib := &Library{front: front{status: func() int32 { return status }}}
	a, b := newRuntime(lib, new(gpu.Member)), newRuntime(lib, new(gpu.Member))
	if err := claim(a); err != nil {
		t.Fatal(err)
	}
	if err := claim(b); !errors.Is(err, dist.ErrInvalid) || !strings.Contains(err.Error(), "close it") {
		t.Errorf("a second runtime: error %v, want ErrInvalid with the remedy", err)
	}
	release(b) // of no effect: it is not the one
	if err := claim(b); err == nil {
		t.Error("the second runtime was let in")
	}
	release(a)
	status = statusReady
	if err := claim(b); !errors.Is(err, dist.ErrInvalid) || !strings.Contains(err.Error(), "something else") {
		t.Errorf("a library that somebody else has started: error %v, want ErrInvalid", err)
	}
	status = 0
	if err := claim(b); err != nil {
		t.Fatal(err)
	}
	b.touch()
	release(b)
	other := newRuntime(&Library{front: lib.front, cfg: Config{MaxTeams: 33}}, new(gpu.Member))
	if err := claim(other); !errors.Is(err, dist.ErrInvalid) || !strings.Contains(err.Error(), "settings") {
		t.Errorf("other settings than those that were read: error %v, want ErrInvalid", err)
	}
	if err := claim(b); err != nil {
		t.Fatal(err)
	}
	b.leave(errors.New("rank 2 died"))
	release(b)
	if err := claim(a); !errors.Is(err, dist.ErrInvalid) || !strings.Contains(err.Error(), "rank 2 died") {
		t.Errorf("after a death: error %v, want ErrInvalid with the cause", err)
	}
	process.broken, process.settings = nil, 0
}

// engineOf is an engine of n ranks over a library with or without the reductions; no
// function of it is called.
func engineOf(n int, have bool) *engine {
	rt := bare()
	rt.why = errors.New("no compiler")
	if have {
		for dt := range rt.lib.red.reduce {
			for red := range rt.lib.red.reduce[dt] {
				rt.lib.red.reduce[dt][red], rt.lib.red.scatter[dt][red] = dl.ProcAt(1, "reduce"), dl.ProcAt(1, "scatter")
			}
		}
		rt.lib.nccl = &innerNCCL{}
	}
	e := &engine{rt: rt, size: n}
	if n > 1 {
		e.team = &team{area: area{part: 1 << 20, slot: 1 << 18}}
	}
	return e
}

func buffer(t *testing.T, dt tensor.DType, n int) tensor.Buffer {
	t.Helper()
	addr := uintptr(1 << 20)
	b, err := tensor.FromPointer(*(*unsafe.Pointer)(unsafe.Pointer(&addr)), n, dt, tensor.CUDA(0))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestCan(t *testing.T) {
	scaled := engineOf(4, true)
	scaled.rt.scale = &scaler{}
	few := engineOf(4, true)
	few.team.area.slot = 0
	many := engineOf(200000, true)
	for _, c := range []struct {
		name string
		e    *engine
		kind dist.Kind
		dt   tensor.DType
		red  dist.RedKind
		want string // in the error; "" for none
	}{
		{"sum", engineOf(4, true), dist.KindAllReduce, tensor.F32, dist.RedSum, ""},
		{"max of bf16", engineOf(4, true), dist.KindReduceScatter, tensor.BF16, dist.RedMax, ""},
		{"product of int16", engineOf(4, true), dist.KindReduce, tensor.I16, dist.RedProd, ""},
		{"missing symbol", engineOf(4, false), dist.KindAllReduce, tensor.F32, dist.RedSum, "allreduce f32 sum"},
		{"avg without kernels", engineOf(4, true), dist.KindAllReduce, tensor.F32, dist.RedAvg, "no compiler"},
		{"premulsum without kernels", engineOf(4, true), dist.KindReduceScatter, tensor.F32, dist.RedPreMulSum, "no compiler"},
		{"avg", scaled, dist.KindAllReduce, tensor.I32, dist.RedAvg, ""},
		{"premulsum", scaled, dist.KindReduce, tensor.F16, dist.RedPreMulSum, ""},
		{"avg of one", engineOf(1, false), dist.KindAllReduce, tensor.F32, dist.RedAvg, ""},
		{"sum of one", engineOf(1, false), dist.KindAllReduce, tensor.F32, dist.RedSum, ""},
		{"premulsum of one", engineOf(1, false), dist.KindAllReduce, tensor.F32, dist.RedPreMulSum, "no compiler"},
		{"int16 of very many", many, dist.KindReduceScatter, tensor.I16, dist.RedSum, "too small for 200000 ranks"},
		{"gather", engineOf(4, true), dist.KindGather, tensor.F32, 0, ""},
		{"send", engineOf(4, true), dist.KindSend, tensor.F32, 0, ""},
		{"send among too many", few, dist.KindSend, tensor.F32, 0, "mailboxes"},
		{"alloc", engineOf(4, true), dist.KindAlloc, tensor.F32, 0, "no such operation"},
	} {
		op := &dist.Op{Kind: c.kind, Red: dist.RedOp{Kind: c.red}, Count: 1, Src: buffer(t, c.dt, 1), Dst: buffer(t, c.dt, 1)}
		err := c.e.Can(op)
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case c.want != "" && (!errors.Is(err, dist.ErrUnsupported) || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: error %v, want ErrUnsupported with %q", c.name, err, c.want)
		}
		batch := &dist.Op{Kind: dist.KindBatch, Ops: []dist.Op{{Kind: dist.KindBarrier}, *op}}
		if got := c.e.Can(batch); errors.Is(got, dist.ErrUnsupported) != (c.want != "") {
			t.Errorf("%s in a group call: %v", c.name, got)
		}
	}
}

func TestReduceScatterWithoutNCCLFitsTheScratchMemory(t *testing.T) {
	e := engineOf(4, true)
	if n := e.scatterLimit(tensor.F32, dist.RedSum); n < 1<<30 {
		t.Errorf("%d floats at a time with NCCL", n)
	}
	if n := e.scatterLimit(tensor.I16, dist.RedSum); n*4*2 > scratchBytes/2 || n < 1 {
		t.Errorf("%d 16-bit integers of each of 4 ranks at a time", n)
	}
	if n := e.scatterLimit(tensor.U8, dist.RedXor); n*4 > scratchBytes/2 || n < 1 {
		t.Errorf("%d bytes of each of 4 ranks at a time for a reduction that NCCL does not have", n)
	}
	e.rt.lib.nccl = nil
	if n := e.scatterLimit(tensor.F64, dist.RedSum); n*4*8 > scratchBytes/2 || n < 1 {
		t.Errorf("%d doubles of each of 4 ranks at a time without NCCL", n)
	}
}

func TestMessagesOfABatch(t *testing.T) {
	e := engineOf(4, true)
	e.rank = 1
	for _, c := range []struct {
		name     string
		messages []message
		want     bool
	}{
		{"none", nil, true},
		{"one each way", []message{{false, 0, 1, 8}, {true, 0, 2, 8}, {false, 2, 3, 8}}, true},
		{"two to one rank", []message{{false, 0, 1, 8}, {false, 0, 2, 8}}, false},
		{"two from one rank", []message{{true, 3, 1, 8}, {true, 3, 2, 8}}, false},
		{"larger than a mailbox", []message{{false, 0, 1, 1<<18 + 1}}, false},
		{"large, to itself", []message{{false, 1, 1, 1 << 30}, {true, 1, 2, 1 << 30}}, true},
	} {
		e.batch.messages = c.messages
		if got := e.oneEach(); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
	for _, messages := range [][]message{
		{{false, 1, 1, 8}},
		{{true, 1, 1, 8}},
		{{false, 1, 1, 8}, {true, 1, 2, 16}},
	} {
		e.batch.messages = messages
		if err := e.toMyself(nil); !errors.Is(err, dist.ErrMismatch) {
			t.Errorf("%v: error %v, want ErrMismatch", messages, err)
		}
	}
}

func TestAnAbortedEngineRefuses(t *testing.T) {
	e := engineOf(4, true)
	e.rt.split.teams.add(e.team)
	e.rt.split.teams.take(e.team, e)
	e.Abort()
	e.Abort()
	if err := e.Enqueue(&dist.Op{Kind: dist.KindBarrier}, nil); !errors.Is(err, dist.ErrAborted) {
		t.Errorf("error %v, want ErrAborted", err)
	}
	if !errors.Is(e.Failed(), dist.ErrAborted) {
		t.Errorf("Failed is %v, want ErrAborted", e.Failed())
	}
	if _, err := e.Split(nil); !errors.Is(err, dist.ErrClosed) {
		t.Errorf("split: error %v, want ErrClosed", err)
	}
	if e.rt.remains.any() || e.team.user != nil {
		t.Error("an engine that was never used leaves nothing behind")
	}
	if err := errors.Join(e.Close(), e.Close()); err != nil {
		t.Error(err)
	}
	other := engineOf(4, true)
	if err := other.Close(); err != nil {
		t.Error(err)
	}
	if err := other.Enqueue(&dist.Op{Kind: dist.KindBarrier}, nil); !errors.Is(err, dist.ErrClosed) {
		t.Errorf("error %v, want ErrClosed", err)
	}
}
