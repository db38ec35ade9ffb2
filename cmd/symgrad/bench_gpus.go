package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/backend"
	"github.com/symgrad/symgrad/internal/tool/perf"
)

// engineAuto is the engine name that means the fastest engine per operation.
const engineAuto = "auto"

// onGPUs is one rank of a measurement between GPUs. Libraries are opened once. Each engine has its
// own world, in which it runs all operations.
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
				_ = worlds[i].Abort(err) // fails only if all peers are gone
			}
			err = errors.Join(err, worlds[i].Close())
		}
	}()
	defer func() { err = blame(&b.env, err) }() // by this error: closing the worlds may add others
	open := func(engine string) (*dist.World, error) {
		w, err := g.World(engine)
		if err == nil {
			worlds = append(worlds, w)
		}
		return w, err
	}
	base, err := open("") // ranks meet here, because not every engine supports that
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

// targetsOf returns the targets of a measurement: the base world for auto, and one world for each
// other engine. An engine that is missing among several becomes a row that says so.
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

// versionOf formats a CUDA version: "13.0" for 13000.
func versionOf(v int) string { return fmt.Sprintf("%d.%d", v/1000, v%1000/10) }
