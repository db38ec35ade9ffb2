package cudaexec

import (
	"errors"
	"slices"

	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
)

// makeStreams makes the streams of Compute and Side, of which Compute has the higher priority, and
// the events between all streams.
func (x *Exec) makeStreams() error {
	least, greatest, err := x.dev.PriorityRange()
	if err != nil {
		return err
	}
	aside := slices.Contains(x.order.on, program.Side)
	priority := least
	if aside {
		priority = max(least-1, greatest)
	}
	compute, err := x.dev.NewStream(priority)
	if err != nil {
		return err
	}
	x.streams = [streams]*cuda.Stream{compute, compute, compute}
	x.home = compute
	if aside {
		if x.streams[program.Side], err = x.dev.NewStream(least); err != nil {
			return err
		}
	}
	if x.comm != nil {
		x.home = x.comm.stream.CUDA()
		x.streams[program.Comm] = x.home
	}
	for range x.order.events {
		e, err := x.dev.NewEvent()
		if err != nil {
			return err
		}
		x.events = append(x.events, e)
	}
	if x.fork, err = x.dev.NewEvent(); err != nil {
		return err
	}
	for s := range x.joins {
		if x.joins[s], err = x.dev.NewEvent(); err != nil {
			return err
		}
	}
	return nil
}

// others returns the streams other than home, by number; nil for home and for repeated streams.
func (x *Exec) others() (list [streams]*cuda.Stream) {
	for k, s := range x.streams {
		if s != x.home && !slices.Contains(list[:], s) {
			list[k] = s
		}
	}
	return list
}

// begins makes all streams wait for the beginning of the run on home.
func (x *Exec) begins() error {
	recorded := false
	for _, s := range x.others() {
		if s == nil {
			continue
		}
		if !recorded {
			if err := x.home.Record(x.fork); err != nil {
				return err
			}
			recorded = true
		}
		if err := s.Wait(x.fork); err != nil {
			return err
		}
	}
	return nil
}

// ends makes home wait for all streams.
func (x *Exec) ends() error {
	var err error
	for k, s := range x.others() {
		if s != nil {
			err = errors.Join(err, s.Record(x.joins[k]), x.home.Wait(x.joins[k]))
		}
	}
	return err
}
