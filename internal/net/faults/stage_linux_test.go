package faults

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/symgrad/symgrad/internal/net/hosttest"
)

// guard ends a test whose job hangs.
const guard = time.Minute

// last is the time for events after the end of all launchers.
const last = meetingTime + 5*time.Second

// noRank is the sender of the event that a launcher has ended.
const noRank = -1

// storePort is the port of the launchers' store on host 0.
const storePort = 29500

// perHost is the number of ranks on each of the two hosts.
const perHost = 2

// job is a job of four ranks on two hosts, and the test's hold on its processes.
type job struct {
	t         *testing.T
	h         *hosttest.Hosts
	rank      rankArg
	launchers []*process // of each host; with MPI only of host 0
	events    chan stamped
	over      chan struct{} // closed at the end of the test
	late      *time.Timer   // ends the test
	left      int           // launchers that run

	mu    sync.Mutex
	conns [2 * perHost]net.Conn
	seen  []stamped // events so far
}

// stamped is an event and its time.
type stamped struct {
	event
	at time.Time
}

// gone is the kind of the event that a rank's process has ended.
const gone = "gone"

// process is a launcher.
type process struct {
	cmd  *exec.Cmd
	out  buffer
	done chan struct{} // closed at its end
	code int
}

// buffer has the output of a launcher.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// newJob makes the hosts of a job, and extra ones, and listens for its ranks.
func newJob(t *testing.T, phase string, late, extra int) *job {
	t.Helper()
	folder := t.TempDir()
	j := &job{t: t, events: make(chan stamped), over: make(chan struct{}), late: time.NewTimer(guard)}
	j.rank = rankArg{Phase: phase, Late: late, Socket: filepath.Join(folder, "s"), Folder: folder}
	l, err := net.Listen("unix", j.rank.Socket)
	if err != nil {
		t.Fatal(err)
	}
	j.h = hosttest.New(t, 2+extra, hosttest.Options{Share: []string{folder}})
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { j.listen(conn) })
		}
	})
	t.Cleanup(func() { // the hosts still run
		close(j.over)
		l.Close()
		for _, p := range j.launchers {
			_ = p.cmd.Process.Kill() // it has ended, unless the test failed
			<-p.done
		}
		j.h.Close()
		serving.Wait()
	})
	return j
}

// listen passes on the events of one rank.
func (j *job) listen(conn net.Conn) {
	defer conn.Close()
	in, rank := json.NewDecoder(conn), noRank
	for {
		var e event
		if in.Decode(&e) != nil {
			e = event{Rank: rank, Kind: gone}
		}
		if rank = e.Rank; rank == noRank {
			return
		}
		j.mu.Lock()
		j.conns[rank] = conn
		j.mu.Unlock()
		select {
		case j.events <- stamped{e, time.Now()}:
		case <-j.over:
			return
		}
		if e.Kind == gone {
			return
		}
	}
}

// tell sends a command to a rank.
func (j *job) tell(rank int, command string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	_, _ = io.WriteString(j.conns[rank], command+"\n") // it may have ended
}

// own returns a command line of this test binary in a role.
func (j *job) own(role string, arg any) []string {
	j.t.Helper()
	exe, err1 := os.Executable()
	text, err2 := json.Marshal(arg)
	if err1 != nil || err2 != nil {
		j.t.Fatal(err1, err2)
	}
	return []string{exe, role, string(text)}
}

// start starts the launchers: symgrad run on both hosts, or that of MPI under symgrad run on one.
func (j *job) start(by hosttest.MPI, restarts int) {
	j.t.Helper()
	program := j.own("rank", j.rank)
	if by != "" {
		words := j.h.MPIRun(by, []int{perHost, perHost}, program[0], program[1:]...).Args
		at := slices.Index(words, string(by))
		env := words[slices.Index(words, "env"):at]
		j.run(0, append(env[:len(env):len(env)], j.own("launcher", launcher{N: 1, Program: words[at:]})...))
		return
	}
	l := launcher{
		Nodes: 2, N: perHost, Store: fmt.Sprintf("%s:%d", j.h.Name(0), storePort), Secret: secretOf("0123456789abcdef"), Program: program, MaxRestarts: restarts,
	}
	for l.Node = range 2 {
		j.run(l.Node, j.own("launcher", l))
	}
}

// run starts a launcher on a host.
func (j *job) run(host int, words []string) {
	j.t.Helper()
	p := &process{cmd: j.h.Command(host, words[0], words[1:]...), done: make(chan struct{})}
	p.cmd.Env = append(p.cmd.Environ(), "GOMAXPROCS=2", "UCX_NET_DEVICES=eth0")
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.out
	if err := p.cmd.Start(); err != nil {
		j.t.Fatal(err)
	}
	go func() {
		_ = p.cmd.Wait()
		p.code = p.cmd.ProcessState.ExitCode()
		close(p.done)
		select {
		case j.events <- stamped{event{Rank: noRank}, time.Now()}:
		case <-j.over:
		}
	}()
	j.launchers = append(j.launchers, p)
	j.left++
}

// await waits until each rank has had one of the kinds of events since a moment.
func (j *job) await(since int, ranks []int, kinds ...string) {
	j.t.Helper()
	for slices.ContainsFunc(ranks, func(rank int) bool {
		_, ok := j.first(since, rank, kinds...)
		return !ok
	}) {
		j.next(fmt.Sprintf("%v of ranks %v", kinds, ranks))
	}
}

// next waits for the next event.
func (j *job) next(waiting string) {
	j.t.Helper()
	select {
	case e := <-j.events:
		j.seen = append(j.seen, e)
		if e.Rank == noRank {
			j.left--
		}
		if j.left == 0 {
			j.late.Reset(last)
		}
	case <-j.late.C:
		j.t.Fatalf("%s: too late\n%s", waiting, j.state())
	}
}

// first returns the first event of a rank of one of the kinds since a moment.
func (j *job) first(since, rank int, kinds ...string) (stamped, bool) {
	for _, e := range j.seen[since:] {
		if e.Rank == rank && slices.Contains(kinds, e.Kind) {
			return e, true
		}
	}
	return stamped{}, false
}

// exit waits for the end of a launcher and returns its exit code.
func (j *job) exit(p *process) int {
	j.t.Helper()
	for {
		select {
		case <-p.done:
			return p.code
		default:
			j.next("end of a launcher")
		}
	}
}

// state describes the job, for a test that fails.
func (j *job) state() string {
	var b strings.Builder
	for _, e := range j.seen {
		if e.Kind != step && e.Rank != noRank {
			fmt.Fprintf(&b, "%s rank %d %s %s %d\n", e.at.Format("05.000"), e.Rank, e.Kind, e.Text, e.Code)
		}
	}
	for i, p := range j.launchers {
		fmt.Fprintf(&b, "launcher %d:\n%s", i, &p.out)
	}
	return b.String()
}

// States of a socket in /proc/net/tcp.
const (
	established = "01"
	listening   = "0A"
)

// ports returns the own port of each socket of a host in a state.
func (j *job) ports(host int, state string) []int {
	j.t.Helper()
	out, err := j.h.Command(host, "cat", "/proc/net/tcp").Output()
	if err != nil {
		j.t.Fatal(err)
	}
	var found []int
	for line := range strings.Lines(string(out)) {
		words := strings.Fields(line)
		if len(words) < 4 || words[3] != state {
			continue
		}
		_, hex, _ := strings.Cut(words[1], ":")
		if port, err := strconv.ParseUint(hex, 16, 16); err == nil {
			found = append(found, int(port))
		}
	}
	return found
}
