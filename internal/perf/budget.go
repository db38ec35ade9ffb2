package perf

import "time"

// RowBudget bounds the timed iterations of a row on the host, with the barriers before them, where
// the configuration does not say how many there are. Where ranks share cores one small operation
// takes as long as a thousand elsewhere.
const RowBudget = time.Second

// warmUpBudget bounds the barriers before the first row.
const warmUpBudget = 10 * time.Millisecond

// fewest is how many iterations are timed even if they take longer than the budget.
const fewest = 3

// within returns how many of at most most iterations end within budget, if one takes each.
func within(budget, each time.Duration, most int) int {
	if each <= 0 {
		return most
	}
	return max(min(int(budget/each), most), min(fewest, most))
}

// slowestOf returns the longest of the durations that the ranks of r's group bring.
//
// Collective.
func (r *rig) slowestOf(own time.Duration) (time.Duration, error) {
	all, err := r.ex.numbers(uint64(own))
	if err != nil {
		return 0, err
	}
	for _, d := range all {
		own = max(own, time.Duration(d))
	}
	return own, nil
}

// pace warms c up and returns how many iterations are timed. The warm-up is done in growing steps,
// which are timed as the iterations will be. They tell how many iterations the budget has time for,
// unless the configuration says the number.
//
// Collective. Returns: the wrong elements that were found, too.
func (r *rig) pace(c Case, l *layout, do, settle verb) (timed int, wrong int64, err error) {
	warm, timed := r.cfg.warmup(c), r.cfg.iters(c)
	if r.cfg.Iters > 0 || warm == 0 {
		for range warm {
			if err := do(); err != nil {
				return 0, 0, err
			}
		}
		return timed, 0, nil
	}
	var took, each time.Duration
	for n, done := 2, 0; done < warm && took < r.budget/10; n *= 2 {
		n = min(n, warm-done)
		begin := time.Now()
		bad, err := r.iterate(n, l, do, settle)
		if err != nil {
			return 0, 0, err
		}
		step, err := r.slowestOf(time.Since(begin))
		if err != nil {
			return 0, 0, err
		}
		took, each, done, wrong = took+step, step/time.Duration(n), done+n, wrong+bad
	}
	return within(r.budget, each, timed), wrong, nil
}

// iterate does n iterations in the style of the configuration; their times are in r.samples, or in
// r.whole.
func (r *rig) iterate(n int, l *layout, do, settle verb) (wrong int64, err error) {
	if r.cfg.Style == BackToBack {
		r.whole, err = r.backToBack(n, do)
		return 0, err
	}
	return r.apart(n, l, do, settle)
}

// warmUp spends some 10 ms with barriers, 20,000 at most: a process that has just started is
// slower, and the first row would pay for that.
//
// Collective.
func (r *rig) warmUp() error {
	begin := time.Now()
	for n, done := 64, 0; done < 20000; done += n {
		for range n {
			if err := r.barrier(); err != nil {
				return err
			}
		}
		took, err := r.slowestOf(time.Since(begin))
		if err != nil || took > warmUpBudget {
			return err
		}
		n = min(2*n, 20000-done)
	}
	return nil
}
