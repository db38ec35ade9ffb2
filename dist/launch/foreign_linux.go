package launch

import (
	"strings"
	"time"
)

// foreignLook is the time between two looks at the marks of ranks that another launcher started.
const foreignLook = 250 * time.Millisecond

// foreignFailure returns a channel of times at which to look for a failure of ranks that another
// launcher started; nil for ranks of this one. mpirun and mpiexec wait without end for a host that
// is gone, also after all other ranks have ended.
func (s *supervisor) foreignFailure() (looks <-chan time.Time, stop func()) {
	if !foreign(s.cfg.Program) {
		return nil, func() {}
	}
	tick := time.NewTicker(foreignLook)
	return tick.C, tick.Stop
}

// endForeign ends a launcher whose rank has marked a failure, unless it ends in time by itself.
func (s *supervisor) endForeign() {
	if s.marks.failed() && !s.failing() && !s.ending() {
		s.failed = true
		s.endAfterFailure()
	}
}

// unmarked reports whether the mark of success is missing, of ranks that another launcher started.
// Without restarts only programs with other marks need it.
func (s *supervisor) unmarked() bool {
	return foreign(s.cfg.Program) && !s.marks.succeeded() && (s.cfg.MaxRestarts > 0 || s.marks.failed() || s.marks.step(0) != NoStep)
}

// mistrust returns the end of a launcher whose exit code 0 lacks the mark of success.
func (s *supervisor) mistrust(r RankResult) RankResult {
	if r.Code == 0 {
		r.Code, r.How = 1, "exited with code 0 without the mark of success, see launch.Marks"
	}
	return r
}

// foreignResult returns the end of a launcher, one of whose ranks marked a failure. That the
// launcher was stopped here, or hides the failure, is not the cause.
func (s *supervisor) foreignResult(r RankResult) RankResult {
	if s.marks.failed() && (r.Stopped || r.Code == 0) && foreign(s.cfg.Program) {
		r.How = strings.TrimSpace(r.How) + " after a failure of its ranks"
		r.Code = ExitPeerLost
	}
	return r
}
