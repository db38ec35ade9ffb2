package launch

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/symgrad/symgrad/dist"
)

// verdictSlack is the time between the kill of all ranks and the verdict without their reports.
const verdictSlack = 5 * time.Second

// lead decides, in the launcher of node 0, how a job on several nodes ends. It gets the reports of
// all launchers, and announces news to all.
type lead struct {
	roster          *roster // of the launchers
	grace, patience time.Duration
	restarts        *restarts

	mu      sync.Mutex
	server  *Server  // nil before begin
	table   *meeting // of the launchers
	layout  layout
	number  int          // of the last news
	ends    []RankResult // in the order of arrival
	ended   []bool       // by rank
	running []int        // ranks without an end, by node
	why     *news        // the first event that ends the job
	gone    *news        // the first loss of a node
	halted  bool         // a signal forbids a restart
	over    bool
	timer   *time.Timer // for a verdict without all reports; nil before the first failure
}

func newLead(r *roster, cfg SpawnConfig, restarts *restarts) *lead {
	return &lead{roster: r, grace: cfg.Grace, patience: cfg.Patience, restarts: restarts}
}

// begin makes l ready for reports.
func (l *lead) begin(s *Server, table *meeting, layout layout) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.server, l.table, l.layout = s, table, layout
	l.ended = make([]bool, layout.size())
	for _, info := range layout.Nodes {
		l.running = append(l.running, info.Ranks)
	}
}

// end stops the timer. Later events are ignored.
func (l *lead) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = true
	if l.timer != nil {
		l.timer.Stop()
	}
}

// take handles a report of a node.
func (l *lead) take(node int, r report) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over || l.server == nil {
		return nil
	}
	switch r.Kind {
	case kindEnd:
		if rank := r.End.Rank; rank < 0 || rank >= len(l.ended) || l.layout.nodeOf(rank) != node || l.ended[rank] {
			return fmt.Errorf("report of node %d: rank %d has ended already or is of another node: %w", node, rank, dist.ErrInvalid)
		}
		l.endRank(node, r.End)
	case kindFewer:
		l.running[node] = max(0, l.running[node]-r.Count)
	case kindSignal:
		l.halted = true
		l.announce(news{Kind: kindSignal, Node: node, Signal: r.Signal}, l.patience)
	case kindGone:
		l.loseLocked(node, r.How)
	default:
		return fmt.Errorf("report of node %d: unknown kind %q: %w", node, r.Kind, dist.ErrInvalid)
	}
	l.conclude(false)
	return nil
}

// endRank records the end of a rank. l.mu is held.
func (l *lead) endRank(node int, end RankResult) {
	l.ended[end.Rank] = true
	l.running[node] = max(0, l.running[node]-1)
	l.ends = append(l.ends, end)
	if end.Code == 0 {
		l.server.Exit(end.Rank, end.How)
		return
	}
	l.server.Fail(end.Rank, fmt.Sprintf("%s on %s", end.How, l.layout.place(node)))
	if l.why == nil {
		l.announce(news{Kind: kindEnd, Node: node, End: end}, l.grace)
	}
}

// lose records that a node's launcher has left or is lost, with all its ranks.
func (l *lead) lose(node int, how string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.server == nil: // the launchers are still meeting
		l.roster.fail(&dist.RankError{Rank: node, How: how})
	case !l.over && l.running[node] > 0:
		l.loseLocked(node, how)
		l.conclude(false)
	}
}

func (l *lead) loseLocked(node int, how string) {
	l.running[node] = 0
	n := news{Kind: kindGone, Node: node, How: how}
	if l.gone == nil {
		l.gone = &n
	}
	for rank := l.layout.first(node); rank < l.layout.first(node+1); rank++ {
		if !l.ended[rank] {
			l.server.Fail(rank, fmt.Sprintf("%s is gone: %s", l.layout.place(node), how))
			break // only the first failure counts
		}
	}
	l.server.hangUp(l.layout.first(node), l.layout.first(node+1))
	if l.why == nil {
		l.announce(n, l.grace)
	}
}

// announce publishes n. If it is the first to end the job, the ranks have left to end.
// l.mu is held.
func (l *lead) announce(n news, left time.Duration) {
	if n.Node >= 0 {
		n.Where = l.layout.place(n.Node)
	}
	if l.why == nil && n.Kind != kindVerdict {
		l.why = &n
		l.timer = time.AfterFunc(left+verdictSlack, func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.conclude(true)
		})
	}
	l.number++
	data, err := json.Marshal(n)
	if err != nil {
		return // a struct of numbers and strings
	}
	_ = l.table.Set(context.Background(), newsKey(l.number), data) // the table is open until end
}

// conclude announces the verdict once all ranks have ended, or at once if late. l.mu is held.
func (l *lead) conclude(late bool) {
	if l.over {
		return
	}
	for _, n := range l.running {
		if n > 0 && !late {
			return
		}
	}
	v := l.verdict()
	if v.Code != 0 && !l.halted {
		v.Again, v.Why = l.restarts.decide(v.End)
	}
	l.announce(v, 0)
	l.over = true
}

// verdict returns the end of the job: the exit code of all launchers, and the rank or node to
// blame.
func (l *lead) verdict() news {
	v := news{Kind: kindVerdict, Node: -1, End: RankResult{Rank: -1, Step: NoStep}}
	blame := culprit(l.ends)
	switch {
	case l.why == nil:
		roster, _ := l.server.ranks()
		if err := roster.broken(); err != nil {
			v.Code, v.How = 1, err.Error()
		}
	case l.why.Kind == kindSignal:
		v.Code, v.Node, v.Signal = 128+l.why.Signal, l.why.Node, l.why.Signal
	case l.gone != nil && (l.why.Kind == kindGone || !l.ownFault(blame)):
		v.Code, v.Node, v.How = ExitPeerLost, l.gone.Node, l.gone.How
	default:
		v.Node = l.layout.nodeOf(blame)
		for _, end := range l.ends {
			if end.Rank == blame {
				v.End, v.Code = end, end.Code
			}
		}
	}
	return v
}

// ownFault reports whether a rank failed by itself: neither by the loss of a peer nor by a signal
// of its launcher.
func (l *lead) ownFault(rank int) bool {
	for _, end := range l.ends {
		if end.Rank == rank {
			return end.Code != ExitPeerLost && !end.Stopped
		}
	}
	return false
}
