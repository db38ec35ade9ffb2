package launch

import "fmt"

// culprit returns the rank to blame, of ranks in the order in which they ended: the first that
// failed by itself. Otherwise it is the first that failed because it lost a peer, since that peer
// is not among them; otherwise the first that failed.
func culprit(ends []RankResult) int {
	for _, blame := range []func(RankResult) bool{
		func(r RankResult) bool { return r.Code != 0 && r.Code != ExitPeerLost && !r.Stopped },
		func(r RankResult) bool { return r.Code != 0 && !r.Stopped },
		func(r RankResult) bool { return r.Code != 0 },
	} {
		for _, r := range ends {
			if blame(r) {
				return r.Rank
			}
		}
	}
	return -1
}

// failureReport returns the lines of the report on a failed job: the culprit, its last lines, and
// every other rank.
func failureReport(res Result, last []string) []string {
	var c RankResult
	for _, r := range res.Ranks {
		if r.Rank == res.Culprit {
			c = r
		}
	}
	head := fmt.Sprintf("rank %d (pid %d) %s", c.Rank, c.PID, c.How)
	if len(last) > 0 {
		head += "; its last lines:"
	}
	lines := []string{head}
	for _, l := range last {
		lines = append(lines, fmt.Sprintf("  [%d] %s", c.Rank, l))
	}
	for _, r := range res.Ranks {
		if r.Rank != c.Rank {
			lines = append(lines, fmt.Sprintf("rank %d (pid %d) %s%s", r.Rank, r.PID, r.How, reason(r)))
		}
	}
	return lines
}

// reason explains the end of a rank, if known.
func reason(r RankResult) string {
	switch {
	case r.Stopped:
		return ", stopped by the launcher"
	case r.Code == ExitPeerLost:
		return ": it lost a peer"
	default:
		return ""
	}
}
