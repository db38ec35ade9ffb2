package launch

import (
	"cmp"
	"context"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

// passedOn are the signals that end a job from outside.
var passedOn = [...]syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT}

// supervisor starts, signals and waits for the ranks of a job. It runs on the goroutine of Spawn.
type supervisor struct {
	*job
	past      []*child // ranks that have ended
	failed    bool     // a rank failed while the job was not being ended
	elsewhere *news    // the failure on another host that ends the job; nil without
	verdict   *news    // the end of a job on several hosts; nil before
	asked     syscall.Signal
	halted    bool  // a signal, or the end of the output's reader, forbids a restart
	cancelled error // why ctx ended, if that ended the job
	plan      []step
	timer     *time.Timer // for the first step of plan
	memory    *memoryWatch

	signals  chan os.Signal
	children chan os.Signal // SIGCHLD
	pipes    chan os.Signal // SIGPIPE; only received to disable its default
	unread   chan struct{}  // the output has no reader left
}

// step is a planned signal to all ranks.
type step struct {
	at  time.Time
	sig syscall.Signal
}

func newSupervisor(j *job) *supervisor {
	s := &supervisor{
		job: j, timer: time.NewTimer(0), memory: newMemoryWatch(textOf),
		signals: make(chan os.Signal, len(passedOn)), children: make(chan os.Signal, 1),
		pipes: make(chan os.Signal, 1), unread: make(chan struct{}, 1),
	}
	s.timer.Stop()
	for _, sig := range passedOn {
		if !signal.Ignored(sig) { // nohup, or a shell's background job
			signal.Notify(s.signals, sig)
		}
	}
	signal.Notify(s.children, syscall.SIGCHLD)
	if !signal.Ignored(syscall.SIGPIPE) {
		// The runtime ends a program that writes to a stdout without a reader, unless it receives
		// the signal: processes of the ranks would survive. Sockets of dead ranks cause the signal
		// too, so only the write error counts.
		signal.Notify(s.pipes, syscall.SIGPIPE)
		j.console.out.unread, j.console.err.unread = s.unread, s.unread
	}
	return s
}

// close restores the handling of signals.
func (s *supervisor) close() {
	signal.Stop(s.signals)
	signal.Stop(s.children)
	signal.Stop(s.pipes)
	s.timer.Stop()
}

// look handles the events so far that may end the job.
func (s *supervisor) look(ctx context.Context) {
	for {
		select {
		case c := <-s.exits:
			s.bury(c)
		case sig := <-s.signals:
			s.interrupt(sig.(syscall.Signal))
		case n := <-s.bulletin():
			s.hear(n)
		default:
			if ctx.Err() != nil {
				s.cancel(context.Cause(ctx))
			}
			return
		}
	}
}

// run returns when all ranks have ended, also those of other hosts.
func (s *supervisor) run(ctx context.Context) {
	done := ctx.Done()
	if s.cancelled != nil {
		done = nil
	}
	looks, stop := s.foreignFailure()
	defer stop()
	for len(s.past) < len(s.ranks) || (s.nodes != nil && s.verdict == nil) {
		select {
		case c := <-s.exits:
			s.bury(c)
		case sig := <-s.signals:
			s.interrupt(sig.(syscall.Signal))
		case n := <-s.bulletin():
			s.hear(n)
		case <-s.unread:
			s.hangUp()
		case <-done:
			done = nil
			s.cancel(context.Cause(ctx))
		case <-s.timer.C:
			s.signalAll(s.plan[0].sig)
			s.follow(s.plan[1:])
		case <-s.children:
			s.reapOrphans()
		case <-looks:
			s.endForeign()
		}
	}
}

// bury records the end of a rank, notifies the others, and starts to end them if it was a failure.
func (s *supervisor) bury(c *child) {
	s.past = append(s.past, c)
	if c.code() != 0 && c.unasked() {
		c.memory = s.memory.explain()
	}
	switch {
	case s.nodes != nil:
		s.nodes.report(report{Kind: kindEnd, End: s.resultOf(c)})
	case c.code() == 0:
		s.server.Exit(c.rank, c.how())
	default:
		s.server.Fail(c.rank, c.how())
	}
	if c.code() == 0 || s.failing() || s.ending() {
		return
	}
	s.failed = true
	s.endAfterFailure()
}

// endAfterFailure plans the end of the ranks that do not end by themselves.
func (s *supervisor) endAfterFailure() {
	now, grace := time.Now(), s.cfg.Grace
	s.follow([]step{{now.Add(grace / 2), syscall.SIGTERM}, {now.Add(patienceOf(grace)), syscall.SIGKILL}})
}

// failing reports whether a failure, here or on another host, has ended the job.
func (s *supervisor) failing() bool { return s.failed || s.elsewhere != nil }

// patienceOf returns seven eighths of grace, the time after which ranks are killed.
func patienceOf(grace time.Duration) time.Duration { return grace - grace/8 }

// ending reports whether a signal or ctx has ended the job.
func (s *supervisor) ending() bool { return s.asked != 0 || s.cancelled != nil }

// interrupt passes on the first signal. It kills on the second, or if the ranks are already being
// ended.
func (s *supervisor) interrupt(sig syscall.Signal) {
	s.halted = true
	if s.asked != 0 || s.failing() {
		s.reportSignal(syscall.SIGKILL)
		s.signalAll(syscall.SIGKILL)
		return
	}
	s.asked = sig
	s.reportSignal(sig)
	s.say("%v: passed on to %d ranks, which have %v to end; once more kills them",
		sig, len(s.ranks)-len(s.past), s.cfg.Patience)
	s.signalAll(sig)
	if s.cancelled == nil { // else the ranks have less time
		s.follow([]step{{time.Now().Add(s.cfg.Patience), syscall.SIGKILL}})
	}
}

// hangUp ends the ranks because their output has no reader. They get SIGTERM: a Go program ignores
// SIGPIPE.
func (s *supervisor) hangUp() {
	s.halted = true
	if s.failing() || s.ending() {
		return
	}
	s.asked = syscall.SIGPIPE
	s.reportSignal(s.asked)
	s.say("the output has no reader any more: %d ranks get SIGTERM, and have %v to end",
		len(s.ranks)-len(s.past), s.cfg.Patience)
	s.signalAll(syscall.SIGTERM)
	s.follow([]step{{time.Now().Add(s.cfg.Patience), syscall.SIGKILL}})
}

// cancel ends the ranks because ctx has ended. If they were already asked to end, they get no more
// time than that.
func (s *supervisor) cancel(cause error) {
	if s.failing() {
		return
	}
	s.cancelled = cause
	s.reportSignal(syscall.SIGTERM)
	s.signalAll(syscall.SIGTERM)
	end := time.Now().Add(patienceOf(s.cfg.Grace))
	if len(s.plan) > 0 && s.plan[0].at.Before(end) {
		end = s.plan[0].at
	}
	s.follow([]step{{end, syscall.SIGKILL}})
}

// say prints a line without waiting for it: output may be blocked by a reader that has stopped (|
// less), and the ranks must end nevertheless.
func (s *supervisor) say(format string, args ...any) {
	s.relays.Go(func() { s.console.printf(format, args...) })
}

// follow replaces the plan of signals.
func (s *supervisor) follow(plan []step) {
	s.plan = plan
	s.timer.Stop()
	if len(plan) > 0 {
		s.timer.Reset(time.Until(plan[0].at))
	}
}

// signalAll sends all running ranks a signal to end.
func (s *supervisor) signalAll(sig syscall.Signal) {
	for _, c := range s.ranks {
		c.signal(sig, true)
	}
}

// result returns the end of the job.
func (s *supervisor) result() Result {
	select {
	case <-s.unread: // the last output found no reader, after the ranks had ended
		if !s.failing() && !s.ending() {
			s.asked = syscall.SIGPIPE
		}
	default:
	}
	res := Result{Culprit: -1, Ranks: make([]RankResult, len(s.ranks))}
	var ends []RankResult
	slices.SortFunc(s.past, func(a, b *child) int { return cmp.Compare(a.order, b.order) })
	for _, c := range s.past {
		r := s.foreignResult(s.resultOf(c))
		res.Ranks[c.rank-s.first] = r
		ends = append(ends, r)
	}
	switch {
	case s.verdict != nil:
		res.Code, res.Culprit = s.verdict.Code, s.verdict.End.Rank
	case s.failed:
		res.Culprit = culprit(ends)
		res.Code = res.Ranks[res.Culprit-s.first].Code
	case s.cancelled != nil && s.asked == 0:
		res.Code = 128 + int(syscall.SIGTERM)
	}
	if res.Code == 0 && s.asked != 0 {
		res.Code = 128 + int(s.asked)
	}
	return res
}

// outcome returns the end of this generation.
func (s *supervisor) outcome() outcome {
	end := outcome{Result: s.result(), blame: RankResult{Rank: -1, Step: NoStep}}
	switch local := end.Culprit - s.first; {
	case s.verdict != nil:
		end.blame, end.again, end.why = s.verdict.End, s.verdict.Again, s.verdict.Why
		if end.blame.Rank < 0 {
			end.blame.How = strings.TrimPrefix(s.verdict.Where+": "+s.verdict.How, ": ")
		}
	case end.Code == 0 && s.unmarked():
		end.Ranks[0] = s.mistrust(end.Ranks[0])
		end.blame = end.Ranks[0]
		end.Code, end.Culprit = end.blame.Code, 0
		end.again, end.why = s.restarts.decide(end.blame)
	case s.failed:
		end.blame = end.Ranks[local]
		end.again, end.why = s.restarts.decide(end.blame)
	}
	if s.halted || s.ending() {
		end.again, end.why = false, ""
	}
	return end
}

// result returns the end of an ended rank.
func (j *job) resultOf(c *child) RankResult {
	return RankResult{Rank: c.rank, PID: c.pid(), Code: c.code(), How: c.how(), Stopped: c.stopped, Step: j.marks.step(c.rank)}
}

// report prints the failure of the job, if any.
func (s *supervisor) report(res Result) {
	for _, line := range s.console.words.shared() {
		s.console.printf("%s", line)
	}
	local := res.Culprit - s.first
	if s.verdict != nil && (res.Culprit < 0 || local < 0 || local >= len(res.Ranks)) {
		s.reportElsewhere(res)
		return
	}
	if res.Culprit < 0 {
		for _, r := range res.Ranks {
			if r.Stopped && r.Code == 128+int(syscall.SIGKILL) {
				s.console.printf("rank %d (pid %d) did not end and was killed", r.Rank, r.PID)
			}
		}
		return
	}
	var last []string
	if s.size > 1 { // else they are the lines above
		output := s.ranks[local].output
		if last = output.tail.last(); !s.console.words.of(res.Culprit) {
			last = append(last, output.words...)
		}
	}
	for _, line := range failureReport(res, last) {
		s.console.printf("%s", line)
	}
}
