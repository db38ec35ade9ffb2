package perf

import "time"

// RowBudget limits the time of a row's iterations on the host, with their barriers, if the
// configuration has no number. If ranks share cores, one small operation can take as long as a
// thousand elsewhere.
const RowBudget = time.Second

// warmUpBudget limits the time of the barriers before the first row.
const warmUpBudget = 10 * time.Millisecond

// fewest is the least number of timed iterations, even over the budget.
const fewest = 3

// within returns how many of at most most iterations end within budget, if one takes each.
func within(budget, each time.Duration, most int) int {
	if each <= 0 {
		return most
	}
	return max(min(int(budget/each), most), min(fewest, most))
}

// slowestOf returns the longest of the durations of the ranks.
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

// pace warms c up and returns the number of iterations to time. The warm-up has growing steps,
// timed like the iterations. From these it computes how many iterations fit the budget, unless the
// configuration has a number.
//
// Collective. Returns: also the number of wrong elements.
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

// warmUp runs barriers for some 10 ms, 20,000 at most: a new process is slower, which would affect
// the first row.
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
