package launch

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/symgrad/symgrad/dist"
	"golang.org/x/sys/unix"
)

// job is one call of Spawn.
type job struct {
	cfg    SpawnConfig
	id     string
	first  int        // rank of this host's first
	size   int        // ranks of the job, on all hosts
	master string     // where the ranks reach the store
	server *Server    // nil if the job is on several hosts
	nodes  *launchers // nil if the job is on this host
	ca     *authority // issues the ranks' certificates
	// handover holds SpawnConfig.Handover for all ranks; nil if that is nil.
	handover   *os.File
	processors [][]int // of each rank; nil if ranks are not bound
	console    *console
	columns    int // width of the terminal on Stdout, or 0

	ranks   []*child       // started ranks, by rank
	exits   chan *child    // ranks that have ended
	ended   atomic.Int64   // number of ended ranks
	waiters sync.WaitGroup // one for each rank
	relays  sync.WaitGroup // two for each rank
	closing chan struct{}  // closed when no rank is left

	restarts *restarts
	marks    *markFile // nil without restarts
}

func spawn(ctx context.Context, cfg SpawnConfig, r *restarts) (end outcome, err error) {
	// Pdeathsig kills a child when the thread that started it ends, not the process. A thread that
	// a goroutine is locked to lives as long as the goroutine, and this one outlives the children.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return outcome{}, fmt.Errorf("launch: prctl(PR_SET_CHILD_SUBREAPER): %w", err)
	}
	j := &job{cfg: cfg, closing: make(chan struct{}), restarts: r}
	j.exits = make(chan *child, cfg.N)
	j.console, j.columns = newConsole(cfg.Stdout, cfg.Stderr)
	if err := j.prepare(); err != nil {
		return outcome{}, err
	}
	defer j.release()
	endStore, err := j.meet(ctx)
	if err != nil {
		return j.unmet(ctx, err)
	}
	defer func() { err = errors.Join(err, endStore()) }()
	j.console.words.size = j.size
	s := newSupervisor(j)
	defer s.close()
	if err := s.start(ctx); err != nil {
		if j.nodes != nil {
			j.nodes.report(report{Kind: kindGone, How: err.Error()})
		}
		for _, c := range j.ranks {
			c.signal(syscall.SIGKILL, true)
		}
		return outcome{}, errors.Join(err, s.finish())
	}
	s.run(ctx)
	err = s.finish()
	end = s.outcome()
	s.report(end.Result)
	end.again = end.again && ctx.Err() == nil && err == nil
	j.announce(end)
	return end, errors.Join(s.cancelled, err)
}

// prepare makes the files that ranks inherit or open, and deals out the cores.
//
// Owns: the caller calls release, unless there is an error.
func (j *job) prepare() (err error) {
	if j.processors, err = j.cfg.deal(); err != nil {
		return err
	}
	if j.cfg.MaxRestarts > 0 || foreign(j.cfg.Program) {
		if j.marks, err = newMarkFile(); err != nil {
			return err
		}
	}
	if j.cfg.Handover == nil {
		return nil
	}
	if j.handover, err = memoryFile("symgrad-handover", j.cfg.Handover); err != nil {
		j.marks.close()
		return fmt.Errorf("launch: %w", err)
	}
	return nil
}

// release frees the files of prepare.
func (j *job) release() {
	j.marks.close()
	if j.handover != nil {
		_ = j.handover.Close() // memory
	}
}

// unmet returns the end of a generation whose launchers did not meet. The loss of a launcher is a
// failure of the job, after which it may begin again.
func (j *job) unmet(ctx context.Context, err error) (outcome, error) {
	if ctx.Err() != nil || !errors.Is(err, dist.ErrAborted) {
		return outcome{}, err
	}
	end := outcome{blame: RankResult{Rank: -1, Step: NoStep, How: err.Error()}}
	if end.again, _ = j.restarts.decide(end.blame); !end.again {
		return outcome{}, err
	}
	j.announce(end)
	return end, nil
}

// announce prints that the job begins again after end, or the reason against it.
func (j *job) announce(end outcome) {
	if end.why != "" {
		j.console.printf("no restart: %s", end.why)
	}
	if !end.again {
		return
	}
	reason := end.blame.How
	if end.blame.Rank >= 0 {
		reason = fmt.Sprintf("rank %d %s", end.blame.Rank, end.blame.How)
	}
	if end.blame.Step != NoStep {
		reason += " at " + stepName(end.blame.Step)
	}
	next := j.restarts.generation + 1
	if next > j.restarts.max { // of several hosts, the number of node 0 counts
		j.console.printf("restart %d: %s", next, reason)
		return
	}
	j.console.printf("restart %d of %d: %s", next, j.restarts.max, reason)
}

// newConsole returns the console over the two writers, and the width of the terminal on stdout.
func newConsole(stdout, stderr io.Writer) (*console, int) {
	columns := Columns(stdout)
	return &console{
		out: sink{w: stdout, terminal: columns > 0},
		err: sink{w: stderr, terminal: columns > 0 && Columns(stderr) > 0},
	}, columns
}

// meet starts the store of the job, or joins that of node 0.
//
// Returns: a function that ends this launcher's part in the store.
func (j *job) meet(ctx context.Context) (end func() error, err error) {
	if j.cfg.Nodes <= 1 {
		return j.serve()
	}
	j.console.printf("node %d of %d waits up to %v for the others at %s", j.cfg.Node, j.cfg.Nodes, j.cfg.Wait, j.cfg.Store)
	n, err := joinNodes(ctx, j.cfg, j.restarts)
	if err != nil {
		return nil, err
	}
	j.nodes, j.id, j.ca, j.master = n, n.layout.Job, n.authority, n.master
	j.first, j.size = n.layout.first(n.node), n.layout.size()
	j.console.printf("all %d nodes have joined: this one starts %d of %d ranks, from rank %d", j.cfg.Nodes, j.cfg.N, j.size, j.first)
	return func() error { n.close(); return nil }, nil
}

// serve starts the store of a job on this host.
func (j *job) serve() (end func() error, err error) {
	if j.ca, err = newAuthority(); err != nil {
		return nil, err
	}
	tlsConfig, err := j.ca.server()
	if err != nil {
		return nil, err
	}
	j.id, j.size = "symgrad-"+hex.EncodeToString(randomBytes(8)), j.cfg.N
	j.server, err = Listen(ServerConfig{Address: j.cfg.Master, Job: j.id, Size: j.size, TLS: tlsConfig, Watched: true})
	if err != nil {
		return nil, fmt.Errorf("launch: %w", err)
	}
	j.master = dialable(j.server.Address())
	return j.server.Close, nil
}

// start starts all ranks. It stops at the first that cannot be started, and when the job is to end.
func (s *supervisor) start(ctx context.Context) error {
	if s.cfg.LogDir != "" {
		if err := os.MkdirAll(s.cfg.LogDir, 0o777); err != nil {
			return fmt.Errorf("launch: log folder: %w", err)
		}
	}
	for local := range s.cfg.N {
		c, err := s.startRank(local)
		if err != nil {
			return fmt.Errorf("launch: rank %d of %d: %w", s.first+local, s.size, err)
		}
		s.ranks = append(s.ranks, c)
		s.waiters.Go(func() { c.wait(&s.ended, s.exits) })
		if s.look(ctx); s.failed || s.ending() {
			break
		}
	}
	if n := s.cfg.N - len(s.ranks); n > 0 && s.nodes != nil {
		s.nodes.report(report{Kind: kindFewer, Count: n})
	}
	return nil
}

func (j *job) startRank(local int) (*child, error) {
	rank := j.first + local
	secret, err := j.ca.rank(rank)
	if err != nil {
		return nil, err
	}
	credentials, err := memoryFile("symgrad-credentials", secret)
	if err != nil {
		return nil, err
	}
	defer credentials.Close()
	output := &rankOutput{number: rank}
	if j.cfg.LogDir != "" {
		if output.log, err = j.openLog(rank); err != nil {
			return nil, err
		}
	}
	variables := rankVariables{
		rank: rank, size: j.size, localRank: local, localSize: j.cfg.N, node: j.cfg.Node, nodes: max(j.cfg.Nodes, 1),
		job: j.id, master: j.master, storeFD: credentialsFD, handoverFD: j.handoverFD(), columns: j.columns, bound: j.processors != nil,
		restarts: j.restarts.generation, marks: j.marks.variable(), foreign: foreign(j.cfg.Program),
	}
	env := variables.env(j.cfg.Env)
	c, err := j.bound(local, func() (*child, error) { return startChild(j.cfg, env, rank, credentials, j.handover) })
	if err != nil {
		if output.log != nil {
			_ = output.log.Close() // empty
		}
		return nil, err
	}
	c.output = output
	prefix := ""
	if rank > 0 {
		prefix = "[" + strconv.Itoa(rank) + "] "
	}
	live := rank == 0 && j.console.out.terminal
	j.relay(c.stdout, &stream{c: j.console, to: &j.console.out, rank: output, prefix: prefix, live: live})
	j.relay(c.stderr, &stream{c: j.console, to: &j.console.err, rank: output, prefix: prefix})
	return c, nil
}

// openLog opens the log of a rank. A restart continues it.
func (j *job) openLog(rank int) (*os.File, error) {
	flags := os.O_WRONLY | os.O_CREATE | os.O_TRUNC
	if j.restarts.generation > 0 {
		flags = os.O_WRONLY | os.O_CREATE | os.O_APPEND
	}
	return os.OpenFile(filepath.Join(j.cfg.LogDir, "rank-"+strconv.Itoa(rank)+".log"), flags, 0o666)
}

// relay copies the output of a rank from r, which it closes at the end.
func (j *job) relay(r *os.File, to *stream) {
	j.relays.Go(func() {
		defer r.Close()
		defer to.end()
		drain(r, to, j.closing)
	})
}

// finish waits until every process of the job has ended and all of its output is passed on.
// Errors: output that could not be written.
func (s *supervisor) finish() error {
	s.waiters.Wait()
	s.sweep()
	// From here on only output is waited for, and a reader that has stopped (| less) can block it
	// without end. So signals get their usual effect again.
	signal.Stop(s.signals)
	close(s.closing)
	for _, c := range s.ranks {
		c.wakeReaders()
	}
	s.relays.Wait()
	var errs []error
	for _, to := range []*sink{&s.console.out, &s.console.err} {
		if to.err != nil {
			errs = append(errs, fmt.Errorf("launch: output of the ranks: %w", to.err))
		}
	}
	for _, c := range s.ranks {
		if c.output.log == nil {
			continue
		}
		if err := errors.Join(c.output.err, c.output.log.Close()); err != nil {
			errs = append(errs, fmt.Errorf("launch: log of rank %d: %w", c.rank, err))
		}
	}
	return errors.Join(errs...)
}

// handoverFD returns a rank's descriptor of the handover, or 0.
func (j *job) handoverFD() int {
	if j.handover == nil {
		return 0
	}
	return credentialsFD + 1
}
