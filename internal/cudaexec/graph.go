package cudaexec

import (
	"errors"
	"fmt"
	"slices"

	"github.com/symgrad/symgrad/internal/cuda"
)

// mostGraphs is how many sets of bound memory have a graph at a time: two for inputs that are
// staged, and as many for a caller who changes between two sets of its own.
const mostGraphs = 4

// graph is the program as it was captured with one set of addresses.
type graph struct {
	key  []uintptr // all addresses
	exec *cuda.GraphExec
	turn uint64 // when it was last taken
}

// graphs has the captured graphs.
type graphs struct {
	list    []*graph
	current *graph
	turns   uint64
}

// get is the graph for the present addresses, which it captures if there is none.
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

// add captures the program and makes it current. Of too many graphs the one goes that was not used
// for longest.
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

// capture is the program as a graph, on the streams of both kinds of steps. step queues one of
// them.
//
// Collective: with collectives; the groups compare their operations once, now.
func (x *Exec) capture(step func(i int) error) (*cuda.GraphExec, error) {
	queue := func() error { return x.queue(step) }
	var g *cuda.Graph
	var err error
	if x.comm == nil {
		g, err = x.home.Capture(queue)
	} else {
		// A group is captured on the stream of its last operation, which may have been another one.
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

// blame runs the program step by step, and waits for each step, to find the one that a capture has
// failed on with cause. With collectives it does not: the ranks would no longer do the same.
func (x *Exec) blame(cause error) error {
	var status *cuda.Error
	if x.comm != nil || errors.As(cause, &status) && status.Fatal() {
		return cause
	}
	if err := x.eager(true); err != nil {
		return errors.Join(err, cause)
	}
	return errors.Join(fmt.Errorf("%w; step by step the program runs: set Eager to do without a graph", cause), x.back.ran(x.home))
}

func (g *graphs) close() error {
	var errs []error
	for _, c := range g.list {
		errs = append(errs, c.exec.Close())
	}
	g.list, g.current = nil, nil
	return errors.Join(errs...)
}
