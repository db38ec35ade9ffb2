package launch

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/symgrad/symgrad/dist"
)

// launchersJob is the name by which launchers join a store; ranks join it by the id of their job.
const launchersJob = "symgrad launchers"

// launchersStore is the subject of the server's certificate for launchers.
const launchersStore = "symgrad-launchers"

// heartbeat is the time between two heartbeats of a launcher.
const heartbeat = time.Second

// patienceOfBeat returns the longest silence of a launcher or its store: three missed heartbeats.
func patienceOfBeat(beat time.Duration) time.Duration { return 3*beat + beat/2 }

// layout is the distribution of a job's ranks over nodes. Ranks are numbered node by node.
type layout struct {
	Job        string
	Nodes      []nodeInfo
	Generation int // number of restarts before
}

// nodeInfo describes one node.
type nodeInfo struct {
	Ranks int
	Host  string // its name

	Generation int // the least that its launcher takes part in
}

// first returns the lowest rank of a node; the number of ranks for the node after the last.
func (l layout) first(node int) int {
	n := 0
	for _, info := range l.Nodes[:node] {
		n += info.Ranks
	}
	return n
}

// size returns the number of ranks.
func (l layout) size() int { return l.first(len(l.Nodes)) }

// nodeOf returns the node of a rank, which is valid.
func (l layout) nodeOf(rank int) int {
	node := 0
	for ; rank >= l.Nodes[node].Ranks; node++ {
		rank -= l.Nodes[node].Ranks
	}
	return node
}

// place returns "node 1 (host-b)".
func (l layout) place(node int) string { return fmt.Sprintf("node %d (%s)", node, l.Nodes[node].Host) }

// The kinds of reports and news.
const (
	kindEnd     = "end"     // report: a rank has ended. News: a rank failed
	kindFewer   = "fewer"   // report: Count ranks were not started
	kindSignal  = "signal"  // a signal ended the job from outside
	kindGone    = "gone"    // a launcher failed or is lost
	kindVerdict = "verdict" // news: the job has ended; the last
)

// report is an event on one node, for the launcher of node 0.
type report struct {
	Kind   string
	End    RankResult // of kindEnd
	Count  int        // of kindFewer
	Signal int        // of kindSignal
	How    string     // of kindGone
}

// news is an event of the job, for all launchers. Key "news/N" of the launchers' store has the Nth.
type news struct {
	Kind   string
	Node   int        // where it happened; -1 for the verdict of a success
	Where  string     // names the node
	End    RankResult // of a failed rank; Rank -1 if none is to blame
	Signal int        // of kindSignal
	How    string     // of kindGone
	Code   int        // of kindVerdict: the exit code of all launchers
	Again  bool       // of kindVerdict: all launchers begin the next generation
	Why    string     // of kindVerdict: the reason against a restart, or ""
}

func newsKey(number int) string { return "news/" + strconv.Itoa(number) }

// nodeDesk is the part of a Server that serves launchers.
type nodeDesk struct {
	size     int
	roster   *roster
	patience time.Duration // the longest silence of a launcher
	lead     *lead
}

// take handles a report of a node's launcher.
func (d *nodeDesk) take(node int, data []byte) error {
	var r report
	if err := json.Unmarshal(data, &r); err != nil {
		return fmt.Errorf("report of node %d: %w: %w", node, err, dist.ErrInvalid)
	}
	return d.lead.take(node, r)
}

// end handles the end of a launcher's connection; err is nil after a goodbye.
func (d *nodeDesk) end(node int, err error) {
	how := "its launcher left"
	if err != nil {
		how = "its launcher is lost: " + describeLoss(err)
		d.roster.vanish(node)
	}
	d.lead.lose(node, how)
}

// launchers is one launcher's part in a job on several nodes.
type launchers struct {
	node      int
	layout    layout
	authority *authority // of the ranks of this job
	master    string     // where ranks of this node reach the store
	store     dist.Store // of the launchers
	leave     func()     // ends this launcher's part
	restarts  *restarts

	send    func(report) error // passes a report to node 0
	outbox  chan report
	news    chan news
	stop    context.CancelFunc // ends the wait for news
	running sync.WaitGroup     // the two goroutines of start
}

// start starts to pass on reports and news.
func (l *launchers) start() {
	ctx, stop := context.WithCancel(context.Background())
	l.stop = stop
	l.news = make(chan news)
	// Ranks end once. Signals and errors are few, and dropped if they are many.
	l.outbox = make(chan report, l.layout.Nodes[l.node].Ranks+16)
	l.running.Go(func() { l.listen(ctx) })
	l.running.Go(func() {
		for r := range l.outbox {
			_ = l.send(r) // the loss of the store is news too
		}
	})
}

// listen passes on the news, until ctx ends or the store is lost.
func (l *launchers) listen(ctx context.Context) {
	for number := 1; ; number++ {
		var n news
		data, err := l.store.Get(ctx, newsKey(number))
		if err == nil {
			err = json.Unmarshal(data, &n)
		}
		if err != nil {
			how := strings.TrimPrefix(err.Error(), fmt.Sprintf("store get %q: ", newsKey(number)))
			n = news{Kind: kindVerdict, Node: -1, End: RankResult{Rank: -1, Step: NoStep}, How: how, Code: ExitPeerLost}
			n.Again, n.Why = l.restarts.decide(n.End)
		}
		select {
		case l.news <- n:
		case <-ctx.Done():
			return
		}
		if n.Kind == kindVerdict {
			return
		}
	}
}

// report queues a report for node 0.
func (l *launchers) report(r report) {
	select {
	case l.outbox <- r:
	default: // only many signals fill the queue
	}
}

// close sends the reports so far and ends this launcher's part in the job.
func (l *launchers) close() {
	close(l.outbox)
	l.stop()
	l.running.Wait()
	l.leave()
}
