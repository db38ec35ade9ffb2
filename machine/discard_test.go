package machine

import (
	"errors"
	"fmt"
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/compile/cudaexec"
	"github.com/symgrad/symgrad/internal/compile/lower"
	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/tensor"
)

// ended is a runner of which only Close is called.
type ended struct {
	program.Runner
	err    error
	closed int
}

func (r *ended) Close() error {
	r.closed++
	return r.err
}

// TestNobodyWaitsForADiscardedProgram discards the program that ran last, and another.
func TestNobodyWaitsForADiscardedProgram(t *testing.T) {
	last, r := &cudaexec.Exec{}, &ended{}
	m := &Machine{device: &device{turns: turns{current: last}}}
	m.programs.m = m
	if err := m.discard(&compiled{Lowered: &lower.Lowered{}, runner: r, gpu: &onDevice{exec: &cudaexec.Exec{}}}); err != nil || m.device.current != last {
		t.Errorf("after another one was discarded: %v, the last one is %p, want %p", err, m.device.current, last)
	}
	if err := m.discard(&compiled{Lowered: &lower.Lowered{}, runner: r, gpu: &onDevice{exec: last}}); err != nil || m.device.current != nil {
		t.Errorf("after the last one was discarded: %v, the last one is %p, want none", err, m.device.current)
	}
	if r.closed != 2 {
		t.Errorf("%d programs were closed, want 2", r.closed)
	}
}

// TestCloseLeavesAStuckDeviceAlone closes a machine whose GPU waits for a dead rank: freeing memory
// would wait too.
func TestCloseLeavesAStuckDeviceAlone(t *testing.T) {
	r := &ended{err: fmt.Errorf("%w: %w", cudaexec.ErrStuck, dist.ErrAborted)}
	d := &device{own: make([]tensor.Buffer, 3)}
	m := &Machine{programs: programs{all: []*compiled{{Lowered: &lower.Lowered{}, runner: r}}}, device: d}
	if err := m.Close(); !errors.Is(err, dist.ErrAborted) || len(d.own) != 3 {
		t.Errorf("close: %v, %d buffers left, want the error of the runner and 3", err, len(d.own))
	}
	if err := m.Close(); err != nil || r.closed != 1 {
		t.Errorf("a second close: %v, the runner was closed %d times", err, r.closed)
	}
}
