package cudaexec

import (
	"errors"
	"fmt"
	"slices"

	"github.com/symgrad/symgrad/internal/gpu/cuda"
)

// mostGraphs is the number of graphs that are kept, one for each set of bound memory: two for
// staged inputs, times two for a caller that alternates between two sets.
const mostGraphs = 4

// graph is the program as captured with one set of addresses.
type graph struct {
	key  []uintptr // all addresses
	exec *cuda.GraphExec
	turn uint64 // of its last use
}

// graphs are the captured graphs.
type graphs struct {
	list    []*graph
	current *graph
	turns   uint64
}

// get returns the graph for the current addresses, and captures it if needed.
func (g *graphs) get(x *Exec) (*graph, error) {
	if g.current != nil && !x.rebound {
		return g.current, nil
	}
	g.current = nil
	for _, c := range g.list {
		if slices.Equal(c.key, x.addr) {
			g.current = c
		}
	}
	if g.current == nil {
		if err := g.add(x); err != nil {
			return nil, err
		}
	}
	g.turns++
	g.current.turn = g.turns
	x.rebound = false
	return g.current, nil
}

// add captures the program and makes it the current graph. If there are too many, the one that was
// unused for longest is closed.
func (g *graphs) add(x *Exec) error {
	exec, err := x.capture(x.step)
	if err != nil {
		return x.blame(err)
	}
	g.current = &graph{key: slices.Clone(x.addr), exec: exec}
	if len(g.list) < mostGraphs {
		g.list = append(g.list, g.current)
		return nil
	}
	oldest := 0
	for i, c := range g.list {
		if c.turn < g.list[oldest].turn {
			oldest = i
		}
	}
	err = g.list[oldest].exec.Close()
	g.list[oldest] = g.current
	return err
}

// capture captures the program as a graph, on all streams. step queues one step.
//
// Collective: with collectives; the groups compare their operations during the capture.
func (x *Exec) capture(step func(i int) error) (*cuda.GraphExec, error) {
	queue := func() error { return x.queue(step) }
	var g *cuda.Graph
	var err error
	if x.comm == nil {
		g, err = x.home.Capture(queue)
	} else {
		// A group is captured on the stream of its last operation: announce makes that c.stream.
		if err := x.comm.announce(); err != nil {
			return nil, err
		}
		g, err = x.comm.stream.Capture(queue)
	}
	if err != nil {
		return nil, fmt.Errorf("capture: %w", err)
	}
	exec, err := g.Instantiate()
	if err == nil {
		err = exec.Upload(x.home)
	}
	if err = errors.Join(err, g.Close()); err != nil {
		if exec != nil {
			err = errors.Join(err, exec.Close())
		}
		return nil, fmt.Errorf("capture: %w", err)
	}
	return exec, nil
}

// blame runs the program step by step and waits for each step, to find the one on which a capture
// failed with cause. With collectives it returns cause: the ranks would no longer issue the same
// operations.
func (x *Exec) blame(cause error) error {
	var status *cuda.Error
	if x.comm != nil || errors.As(cause, &status) && status.Fatal() {
		return cause
	}
	if err := x.eager(true); err != nil {
		return errors.Join(err, cause)
	}
	return errors.Join(fmt.Errorf("%w; the program runs without a graph: set Eager", cause), x.back.ran(x.home))
}

func (g *graphs) close() error {
	var errs []error
	for _, c := range g.list {
		errs = append(errs, c.exec.Close())
	}
	g.list, g.current = nil, nil
	return errors.Join(errs...)
}
