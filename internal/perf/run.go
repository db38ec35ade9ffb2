package perf

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

// Reporter is told on rank 0 how a measurement goes.
type Reporter interface {
	// Begin is called once, with everything but rows.
	Begin(r Result)
	// Row is called for each row when it has been measured.
	Row(row Row)
}

// Run measures what cfg says on the ranks of w. Rank 0 tells rep about it; on other ranks rep is not used.
//
// Collective: all ranks, the same cfg. Returns: the Result, without libraries; its rows are the same on all ranks. Errors: those of Config.Validate; dist.ErrMismatch when the ranks' configurations differ; those of the
// operations.
func Run(w *dist.World, cfg Config, rep Reporter) (res Result, err error) {
	if err := cfg.Validate(w.Size()); err != nil {
		return Result{}, err
	}
	cfg = cfg.withDefaults()
	if err := agree(w.Group, cfg); err != nil {
		return Result{}, err
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	core := -1
	if cfg.Pin {
		var undo func()
		core, undo = pinThread(w.Local().Rank, w.Local().Size)
		defer undo()
	}
	cases := cfg.cases(w.Size())
	var largest int64
	for _, c := range cases {
		largest = max(largest, c.Bytes)
	}
	m, err := newMemory(w.Group, largest, cfg.Private)
	if err != nil {
		return Result{}, err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	r := newRig(cfg, w.Group, m, newClock())
	if res, err = r.describe(core); err != nil {
		return Result{}, err
	}
	if w.Rank() == 0 {
		rep.Begin(res)
	}
	for _, c := range cases {
		row, err := r.row(c)
		if err != nil {
			return res, fmt.Errorf("bench: %s: %w", newRow(c).key(), err)
		}
		res.Rows = append(res.Rows, row)
		if w.Rank() == 0 {
			rep.Row(row)
		}
	}
	return res, nil
}

// agree compares the configurations of the ranks.
func agree(g *dist.Group, cfg Config) error {
	hashes := make([]uint64, g.Size())
	w, err := g.AllGather(tensor.Of(hashes), tensor.Of([]uint64{cfg.hash()}))
	if err != nil {
		return err
	}
	if err := w.Wait(); err != nil {
		return err
	}
	for r, h := range hashes {
		if h != hashes[0] {
			return fmt.Errorf("bench: rank %d was given other flags than rank 0: %w", r, dist.ErrMismatch)
		}
	}
	return nil
}

// describe is the Result before any row.
func (r *rig) describe(core int) (Result, error) {
	res := Result{
		Machine: thisMachine(),
		Settings: Settings{
			Backend: r.g.Backend(), Ranks: r.g.Size(), Style: r.cfg.Style,
			Fresh: r.cfg.Fresh, Private: r.cfg.Private, Queued: r.cfg.Queued, Checks: max(r.cfg.Checks, 0),
		},
		Clock: Clock{Name: r.clock.name(), ReadNS: round(r.clock.readNS)},
	}
	const hostBytes = 64
	own := make([]uint8, hostBytes)
	copy(own, res.Machine.Host)
	hosts := make([]uint8, hostBytes*r.g.Size())
	numbers := make([]int64, 2*r.g.Size())
	err := errors.Join(
		wait(r.g.AllGather(tensor.Of(hosts), tensor.Of(own))),
		wait(r.g.AllGather(tensor.Of(numbers), tensor.Of([]int64{int64(os.Getpid()), int64(core)}))))
	if err != nil {
		return Result{}, err
	}
	for rank := range r.g.Size() {
		host := hosts[rank*hostBytes:][:hostBytes]
		if end := slices.Index(host, 0); end >= 0 {
			host = host[:end]
		}
		res.Ranks = append(res.Ranks, Rank{rank, string(host), int(numbers[2*rank]), int(numbers[2*rank+1])})
	}
	return res, nil
}

// row measures c on all ranks. What a rank found wrong itself counts even if the exchange of the numbers is broken too.
func (r *rig) row(c Case) (Row, error) {
	own, wrong, err := r.measure(c)
	if err != nil {
		return Row{}, err
	}
	n := r.g.Size()
	const numbers = 4
	ranks := make([]float64, numbers*n)
	wrongs := make([]int64, n)
	err = errors.Join(
		wait(r.g.AllGather(tensor.Of(ranks), tensor.Of([]float64{own.mean, own.least, own.median, own.most}))),
		wait(r.g.AllGather(tensor.Of(wrongs), tensor.Of([]int64{wrong}))))
	if err != nil {
		return Row{}, err
	}
	all := make([]times, n)
	for i := range all {
		t := ranks[numbers*i:]
		all[i] = times{t[0], t[1], t[2], t[3]}
	}
	wrongs[r.g.Rank()] = wrong
	row := newRow(c)
	row.Iters = r.cfg.iters(c)
	bus := 0.0
	if f := c.Op.trait().bus; f != nil {
		bus = f(float64(n))
	}
	t := c.Op.trait()
	if t.oneSide && !t.rate {
		all = all[:1] // the others waited, or did the same
	}
	row.setTimes(combine(all), bus)
	if t.rate && row.TimeUS > 0 {
		row.Rate = round(float64(n) / row.TimeUS)
	}
	if r.cfg.Checks > 0 {
		total := int64(0)
		for _, w := range wrongs {
			total += w
		}
		row.Wrong = &total
	}
	return row, nil
}

// wait is the outcome of an operation that was, or was not, queued.
func wait(w dist.Work, err error) error {
	if err != nil {
		return err
	}
	return w.Wait()
}
