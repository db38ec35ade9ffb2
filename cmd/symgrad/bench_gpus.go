package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/backend"
	"github.com/symgrad/symgrad/internal/perf"
)

// engineAuto is the choice of the fastest, among the names of engines.
const engineAuto = "auto"

// onGPUs is one rank of a measurement between GPUs. Libraries are opened once, and each engine has
// a world of its own, in which it does everything.
func (b *bench) onGPUs(ctx context.Context) (err error) {
	g, err := backend.OpenGPUs(ctx, b.flags.world(&b.env))
	if err != nil {
		return blame(&b.env, err)
	}
	defer func() { err = errors.Join(err, g.Close()) }()
	var worlds []*dist.World
	defer func() {
		for i := len(worlds) - 1; i >= 0; i-- {
			if err != nil && !errors.As(err, new(wrongResults)) {
				_ = worlds[i].Abort(err) // fails only if no other rank is left
			}
			err = errors.Join(err, worlds[i].Close())
		}
	}()
	defer func() { err = blame(&b.env, err) }() // by this error, and not by those of worlds that are then closed
	open := func(engine string) (*dist.World, error) {
		w, err := g.World(engine)
		if err == nil {
			worlds = append(worlds, w)
		}
		return w, err
	}
	base, err := open("") // in which ranks meet, because not every engine can do that
	if err != nil {
		return err
	}
	targets, err := targetsOf(base, b.flags.engines, open)
	if err != nil {
		return err
	}
	on := perf.Setup{Device: onlyGPU(g.Device()), Targets: targets, MaxCTAs: b.flags.maxCTAs}
	return b.rank(ctx, base, on, map[string]string{"cuda driver": versionOf(g.Device().Driver().Version())})
}

// targetsOf returns the measured worlds: the base world for the choice, and a world of its own for
// every other engine. Among several, a missing one is a row with the reason.
//
// Collective: all ranks, same engines. Errors: those of open.
func targetsOf(base *dist.World, engines []string, open func(engine string) (*dist.World, error)) ([]perf.Target, error) {
	var targets []perf.Target
	for _, name := range engines {
		t := perf.Target{Engine: name, Group: base.Group}
		if name != engineAuto {
			w, err := open(name)
			missing := errors.Is(err, dist.ErrInvalid) || errors.Is(err, dist.ErrUnsupported)
			switch {
			case err == nil:
				t.Group = w.Group
			case missing && len(engines) > 1:
				t.Group, t.Missing = nil, err.Error()
			default:
				return nil, err
			}
		}
		targets = append(targets, t)
	}
	return targets, nil
}

// versionOf is a version of CUDA: "13.0" of 13000.
func versionOf(v int) string { return fmt.Sprintf("%d.%d", v/1000, v%1000/10) }
