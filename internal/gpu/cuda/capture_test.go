package cuda

import (
	"errors"
	"strings"
	"testing"
	"unsafe"
)

// capturing is a driver with a stream in capture: the answers it gives, and the changes it
// receives.
type capturing struct {
	status int32
	nodes  []uintptr // behind which what comes next is
	kinds  map[uintptr]int32
	count  uint64 // of all nodes
	asked  int    // for the nodes behind which what comes next is

	on    uintptr // the stream that was altered
	added []uintptr
	edges []edgeData
	flags uint32
}

const captureGraph = 77

// device is a device of c's driver.
func (c *capturing) device(t *testing.T) *Device {
	d := &Driver{front: texts()}
	d.api.ctxPush = answers(t, func(_, _, _, _ uintptr) int32 { return success })
	d.api.ctxPop = d.api.ctxPush
	d.api.captureInfo = func(_ uintptr, status *int32, _ *uint64, graph *uintptr, nodes *unsafe.Pointer, n *uint64) int32 {
		*status, *graph = c.status, captureGraph
		if nodes == nil && n == nil {
			return success
		}
		c.asked++
		*n = uint64(len(c.nodes))
		if len(c.nodes) > 0 {
			*nodes = unsafe.Pointer(&c.nodes[0])
		}
		return success
	}
	d.api.graphNodes = func(graph, list uintptr, n *uint64) int32 {
		if graph != captureGraph || list != 0 {
			return codeInvalidValue
		}
		*n = c.count
		return success
	}
	d.api.nodeType = func(node uintptr, kind *int32) int32 {
		k, ok := c.kinds[node]
		if !ok {
			return codeInvalidValue
		}
		*kind = k
		return success
	}
	d.api.captureAlter = func(s uintptr, nodes *uintptr, edges *edgeData, n uint64, flags uint32) int32 {
		c.on, c.flags = s, flags
		c.added, c.edges = append(c.added, unsafe.Slice(nodes, n)...), append(c.edges, unsafe.Slice(edges, n)...)
		return success
	}
	return &Device{d: d}
}

func TestWaitBegunIsAnEdgeFromTheBeginningOfTheNewestKernel(t *testing.T) {
	const none, active, invalidated = 0, 1, 2 // CUstreamCaptureStatus
	const kernel, fill = 0, 2                 // CUgraphNodeType
	for _, tt := range []struct {
		name     string
		c        capturing
		old      bool // a driver that knows no such edges
		captured int
		want     bool
	}{
		{"a kernel", capturing{status: active, nodes: []uintptr{5}, kinds: map[uintptr]int32{5: kernel}, count: 3}, false, 3, true},
		{"an old driver", capturing{status: active, nodes: []uintptr{5}, kinds: map[uintptr]int32{5: kernel}, count: 3}, true, 3, false},
		{"a fill", capturing{status: active, nodes: []uintptr{5}, kinds: map[uintptr]int32{5: fill}, count: 1}, false, 1, false},
		{"two kernels", capturing{status: active, nodes: []uintptr{5, 6}, kinds: map[uintptr]int32{5: kernel, 6: kernel}, count: 2}, false, 2, false},
		{"nothing yet", capturing{status: active}, false, 0, false},
		{"no capture", capturing{status: none, nodes: []uintptr{5}, count: 9}, false, 0, false},
		{"a capture that has failed", capturing{status: invalidated, nodes: []uintptr{5}, count: 9}, false, 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v := tt.c.device(t)
			if tt.old {
				v.d.api.captureAlter = nil
			}
			comm, compute := v.BorrowStream(8), v.BorrowStream(9)
			if n, err := comm.Captured(); n != tt.captured || err != nil || tt.c.asked != 0 {
				t.Errorf("%d operations captured, %v, asked %d times for nodes, want %d", n, err, tt.c.asked, tt.captured)
			}
			if ok, err := compute.WaitBegun(comm); ok != tt.want || err != nil {
				t.Errorf("WaitBegun says %t, %v", ok, err)
			}
			switch {
			case !tt.want && len(tt.c.added) == 0:
			case !tt.want || tt.c.on != 9 || tt.c.flags != 0 || len(tt.c.added) != 1 || tt.c.added[0] != 5 || tt.c.edges[0] != edgeData{2}:
				t.Errorf("stream %d waits for nodes %v by edges %v, flags %d", tt.c.on, tt.c.added, tt.c.edges, tt.c.flags)
			}
		})
	}
}

func TestWaitBegunTellsWhatTheDriverRefuses(t *testing.T) {
	c := capturing{status: captureActive, nodes: []uintptr{5}}
	v := c.device(t)
	var refused *Error
	if ok, err := v.BorrowStream(9).WaitBegun(v.BorrowStream(8)); ok || !errors.As(err, &refused) || !strings.Contains(err.Error(), "cuGraphNodeGetType") {
		t.Errorf("a node that the driver does not know: %t, %v", ok, err)
	}
	closed := v.BorrowStream(7)
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	for name, call := range map[string]func() error{
		"Captured":              func() error { _, err := closed.Captured(); return err },
		"WaitBegun of":          func() error { _, err := v.BorrowStream(9).WaitBegun(closed); return err },
		"WaitBegun on a closed": func() error { _, err := closed.WaitBegun(v.BorrowStream(8)); return err },
	} {
		if err := call(); !errors.Is(err, ErrClosed) {
			t.Errorf("%s: %v, want ErrClosed", name, err)
		}
	}
}
