package cuda_test

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/symgrad/symgrad/internal/gpu/cuda"
	"github.com/symgrad/symgrad/internal/gpu/cuda/cudatest"
)

// captured returns the work that queue queues on s as an executable graph.
func captured(t *testing.T, s *cuda.Stream, nodes int, queue func() error) *cuda.GraphExec {
	t.Helper()
	must(t, s.BeginCapture())
	if on, err := s.Capturing(); err != nil || !on {
		t.Errorf("after BeginCapture: capturing %t, %v", on, err)
	}
	must(t, queue())
	g, err := s.EndCapture()
	must(t, err)
	if on, err := s.Capturing(); err != nil || on {
		t.Errorf("after EndCapture: capturing %t, %v", on, err)
	}
	if n, err := g.Nodes(); err != nil || n != nodes {
		t.Errorf("%d nodes, %v, want %d", n, err, nodes)
	}
	x, err := g.Instantiate()
	must(t, err, g.Close(), g.Close())
	t.Cleanup(func() { must(t, x.Close(), x.Close()) })
	return x
}

func TestGraphRepeatsWhatWasCaptured(t *testing.T) {
	v := cudatest.Devices(t, 1)[0]
	f := cudatest.Kernel(t, v, kernels, "increment")
	s := stream(t, v, 0)
	p := alloc(t, v, 16)
	must(t, v.Fill(p, 0, 16))
	var a cuda.Args
	a.Ptr(p)
	a.U32(3)
	x := captured(t, s, 3, func() error {
		err := f.Launch(s, cuda.Launch{}, &a)
		a.Reset() // what was captured keeps its arguments
		a.Ptr(p)
		a.U32(4)
		return errors.Join(err, f.Launch(s, cuda.Launch{}, &a), s.Copy(p+8, p, 8))
	})
	if got := binary.LittleEndian.Uint64(read(t, v, p, 8)); got != 0 {
		t.Errorf("capturing ran something: %d", got)
	}
	must(t, x.Upload(s))
	const times = 50
	for range times {
		must(t, x.Launch(s))
	}
	must(t, s.Synchronize())
	got := read(t, v, p, 16)
	if sum, last := binary.LittleEndian.Uint64(got), binary.LittleEndian.Uint64(got[8:]); sum != 7*times || last != 7*times {
		t.Errorf("%d and %d after %d launches, want %d", sum, last, times, 7*times)
	}
	must(t, v.Enter())
	defer v.Leave()
	var bad error
	if allocs := testing.AllocsPerRun(100, func() { bad = errors.Join(bad, x.Launch(s)) }); allocs != 0 {
		t.Errorf("%v allocations a launch, want 0", allocs)
	}
	must(t, bad, s.Synchronize())
}

func TestGraphHasStreamsThatJoined(t *testing.T) {
	v := cudatest.Devices(t, 1)[0]
	f := cudatest.Kernel(t, v, kernels, "increment")
	s, side := stream(t, v, 0), stream(t, v, 0)
	fork, join := event(t, v), event(t, v)
	p := alloc(t, v, 16)
	must(t, v.Fill(p, 0, 16))
	var a, b cuda.Args
	a.Ptr(p)
	a.U32(1)
	b.Ptr(p + 8)
	b.U32(10)
	x := captured(t, s, 3, func() error {
		return errors.Join(s.Record(fork), side.Wait(fork), f.Launch(side, cuda.Launch{}, &b), f.Launch(s, cuda.Launch{}, &a),
			side.Record(join), s.Wait(join), f.Launch(s, cuda.Launch{}, &a))
	})
	must(t, x.Launch(s), x.Launch(s), s.Synchronize())
	got := read(t, v, p, 16)
	if one, two := binary.LittleEndian.Uint64(got), binary.LittleEndian.Uint64(got[8:]); one != 4 || two != 20 {
		t.Errorf("%d and %d, want 4 and 20", one, two)
	}
}

// Words written and waited for are part of a graph too.
func TestGraphHasStreamMemoryOperations(t *testing.T) {
	v := cudatest.Devices(t, 1)[0]
	s := stream(t, v, 0)
	h := pinned(t, v, 16)
	x := captured(t, s, 2, func() error {
		return errors.Join(s.Wait64(h.Device(), 5), s.Write64(h.Device()+8, 9))
	})
	must(t, x.Launch(s))
	if idle, err := s.Idle(); err != nil || idle {
		t.Errorf("idle %t, %v while it waits", idle, err)
	}
	word(h, 0).Store(5)
	must(t, s.Synchronize())
	if got := word(h, 1).Load(); got != 9 {
		t.Errorf("wrote %d, want 9", got)
	}
}

func TestCaptureThatFailsLeavesTheStreamUsable(t *testing.T) {
	v := cudatest.Devices(t, 1)[0]
	s, other := stream(t, v, 0), stream(t, v, 0)
	p := alloc(t, v, 16)
	must(t, s.BeginCapture(), s.Fill(p, 1, 16))
	var e *cuda.Error
	if err := s.Synchronize(); !errors.As(err, &e) || e.Name != "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED" || e.Fatal() {
		t.Errorf("waiting for a stream that captures: %v", err)
	}
	must(t, other.Fill(p, 2, 16), other.Synchronize()) // others are not concerned
	if g, err := s.EndCapture(); g != nil || !errors.As(err, &e) || e.Name != "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED" {
		t.Errorf("the end of a capture that failed: %v", err)
	}
	must(t, s.Fill(p, 3, 16), s.Synchronize())
	if got := read(t, v, p, 1); got[0] != 3 {
		t.Errorf("the stream wrote %d, want 3", got[0])
	}
	if _, err := s.EndCapture(); !errors.As(err, &e) {
		t.Errorf("the end of no capture: %v", err)
	}
}
