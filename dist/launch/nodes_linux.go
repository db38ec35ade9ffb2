package launch

import (
	"syscall"
	"time"
)

// bulletin returns the channel of news from the other hosts; nil without other hosts.
func (s *supervisor) bulletin() <-chan news {
	if s.nodes == nil {
		return nil
	}
	return s.nodes.news
}

// reportSignal passes on to the other hosts that a signal ends the job.
func (s *supervisor) reportSignal(sig syscall.Signal) {
	if s.nodes != nil {
		s.nodes.report(report{Kind: kindSignal, Signal: int(sig)})
	}
}

// hear ends the ranks of this host because of an event on another one.
func (s *supervisor) hear(n news) {
	switch {
	case n.Kind == kindVerdict:
		s.verdict = &n
		if n.Code != 0 && !s.failing() && !s.ending() { // the store is lost
			s.elsewhere = &n
			s.endAfterFailure()
		}
	case n.Node == s.nodes.node:
	case n.Kind == kindSignal && n.Signal == int(syscall.SIGKILL):
		s.signalAll(syscall.SIGKILL)
	case s.failing() || s.ending():
	case n.Kind == kindSignal:
		s.asked = syscall.Signal(n.Signal)
		s.say("%v on %s ends %d ranks here, which have %v", s.asked, n.Where, len(s.ranks)-len(s.past), s.cfg.Patience)
		sig := s.asked
		if sig == syscall.SIGPIPE { // which Go programs ignore
			sig = syscall.SIGTERM
		}
		s.signalAll(sig)
		s.follow([]step{{time.Now().Add(s.cfg.Patience), syscall.SIGKILL}})
	default:
		s.elsewhere = &n
		s.endAfterFailure()
	}
}

// reportElsewhere prints the failure of a job whose culprit is not on this host.
func (s *supervisor) reportElsewhere(res Result) {
	v := s.verdict
	switch {
	case v.End.Rank >= 0:
		s.console.printf("rank %d (pid %d) on %s %s; the launcher there has its last lines", v.End.Rank, v.End.PID, v.Where, v.End.How)
	case v.Signal != 0 && v.Node != s.nodes.node:
		s.console.printf("%s got the signal %v, which ended the job", v.Where, syscall.Signal(v.Signal))
	case v.How != "" && v.Where != "":
		s.console.printf("%s: %s", v.Where, v.How)
	case v.How != "":
		s.console.printf("the job did not end well: %s", v.How)
	}
	for _, r := range res.Ranks {
		if r.Code != 0 {
			s.console.printf("rank %d (pid %d) %s%s", r.Rank, r.PID, r.How, reason(r))
		}
	}
}
