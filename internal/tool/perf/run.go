package perf

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"

	"github.com/symgrad/symgrad/dist"
)

// Reporter gets the progress of a measurement, on rank 0.
type Reporter interface {
	// Begin is called once, with everything except the rows.
	Begin(r Result)
	// Row is called for each row after its measurement.
	Row(row Row)
}

// Run measures the cases of cfg on the ranks of w, on the host. Rank 0 reports to rep; other ranks
// do not use rep.
//
// Collective: all ranks, the same cfg. Returns: the Result, without libraries; its rows are the
// same on all ranks. Errors: those of Config.Validate; dist.ErrMismatch if the ranks'
// configurations differ; those of the operations.
func Run(w *dist.World, cfg Config, rep Reporter) (Result, error) { return RunOn(w, Setup{}, cfg, rep) }

// RunOn is Run for the device and the targets of on.
//
// An operation that a target does not support gives a row with the reason. Collective, Returns: as
// Run. Errors: those of Run; dist.ErrUnsupported and dist.ErrInvalid for settings that do not fit
// together; those of on's functions.
func RunOn(w *dist.World, on Setup, cfg Config, rep Reporter) (res Result, err error) {
	if on.Device != nil {
		cfg.device, cfg.Queued = true, true
	}
	if err := cfg.Validate(w.Size()); err != nil {
		return Result{}, err
	}
	if err := on.check(cfg, w.Device()); err != nil {
		return Result{}, err
	}
	cfg = cfg.withDefaults()
	ex, err := openExchange(w.Group, on.Device)
	if err != nil {
		return Result{}, err
	}
	defer func() { err = errors.Join(err, ex.Close()) }()
	if err := agree(ex, cfg, on.engines()); err != nil {
		return Result{}, err
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	core := -1
	if cfg.Pin && w.Local().Size == w.Size() { // hosts may be parts of one machine, with the same cores
		var undo func()
		core, undo = pinThread(w.Local().Rank, w.Local().Size, on.Device != nil)
		defer undo()
	}
	cases := cfg.cases(w.Size())
	largest := slices.MaxFunc(cases, func(a, b Case) int { return cmp.Compare(a.Bytes, b.Bytes) }).Bytes
	if err := privateFits(largest, w.Local().Size, thisMachine()); err != nil && cfg.Private && on.Device == nil {
		return Result{}, err
	}
	x := &session{cfg: cfg, ex: ex, targets: on.targets()}
	defer func() { err = errors.Join(err, x.close()) }()
	if err := x.open(w.Group, on.Device, largest); err != nil {
		return Result{}, err
	}
	if res, err = x.describe(w, on, core); err != nil {
		return Result{}, err
	}
	if w.Rank() == 0 {
		rep.Begin(res)
	}
	if err := x.warmUp(); err != nil {
		return res, err
	}
	for rows, err := range x.rows(cases) {
		if err != nil {
			return res, err
		}
		res.Rows = append(res.Rows, rows...)
		for _, row := range rows {
			if w.Rank() == 0 {
				rep.Row(row)
			}
		}
	}
	return res, nil
}

// agree compares the configurations of the ranks.
func agree(ex *exchange, cfg Config, engines []string) error {
	hashes, err := ex.numbers(cfg.hash(engines))
	if err != nil {
		return err
	}
	for r, h := range hashes {
		if h != hashes[0] {
			return fmt.Errorf("bench: rank %d has other flags than rank 0: %w", r, dist.ErrMismatch)
		}
	}
	return nil
}

// describe returns the Result before any row.
func (x *session) describe(w *dist.World, on Setup, core int) (Result, error) {
	cfg := x.cfg
	res := Result{
		Machine: thisMachine(),
		Settings: Settings{
			Backend: w.Backend(), Ranks: w.Size(), Style: cfg.Style,
			Fresh: cfg.Fresh, Private: cfg.Private, Queued: cfg.Queued, Checks: max(cfg.Checks, 0),
			Symmetric: cfg.Symmetric && !cfg.Private, Graph: cfg.Graph, Rounds: cfg.Rounds, Engines: on.engines(), MaxCTAs: on.MaxCTAs,
		},
		Clock: Clock{Name: x.clock.name(), ReadNS: round(x.clock.readNS)},
	}
	own := make([]byte, 2*nameBytes)
	var launch float64 // microseconds
	copy(own[:nameBytes], res.Machine.Host)
	if on.Device != nil {
		name, err := on.Device.Name(w.Device())
		if err != nil {
			return Result{}, fmt.Errorf("bench: %w", err)
		}
		took, err := on.Device.LaunchTime(w.Stream())
		if err != nil {
			return Result{}, fmt.Errorf("bench: time of a launch: %w", err)
		}
		launch = round(float64(took.Nanoseconds()) / 1e3)
		res.Settings.Timing = "events"
		copy(own[nameBytes:], name)
	}
	names, err := x.ex.bytes(own)
	if err != nil {
		return Result{}, err
	}
	const each = 3
	numbers, err := x.ex.numbers(uint64(os.Getpid()), uint64(int64(core)), math.Float64bits(launch))
	if err != nil {
		return Result{}, err
	}
	for rank := range w.Size() {
		host, device := names[2*nameBytes*rank:][:nameBytes], names[2*nameBytes*rank+nameBytes:][:nameBytes]
		of := numbers[each*rank:][:each]
		res.Ranks = append(res.Ranks, Rank{rank, upToZero(host), int(of[0]), int(int64(of[1])), upToZero(device), math.Float64frombits(of[2])})
	}
	return res, nil
}

// nameBytes is the exchanged length of a host's or device's name.
const nameBytes = 64

// upToZero returns the bytes before the first zero.
func upToZero(b []byte) string {
	if end := bytes.IndexByte(b, 0); end >= 0 {
		b = b[:end]
	}
	return string(b)
}

// wait returns the result of an operation: the error of queueing it, or of its Work.
func wait(w dist.Work, err error) error {
	if err != nil {
		return err
	}
	return w.Wait()
}
