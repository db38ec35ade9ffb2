//go:build linux

package launch

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	stageVar = "TEST_STAGE" // the socket at which puppets announce themselves
	nameVar  = "TEST_NAME"  // name of a puppet
)

// stage is where a test meets the puppets that it plays with.
type stage struct {
	t        *testing.T
	listener net.Listener
}

// hand is a test's hold on one puppet. While the connection lasts, the process lives.
type hand struct {
	t    *testing.T
	conn net.Conn
	r    *bufio.Reader
	name string
	rank int
	pid  int
}

func newStage(t *testing.T) *stage {
	t.Helper()
	listener, err := net.Listen("unix", socketName())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	return &stage{t, listener}
}

// environ is the environment of a program that starts puppets, or is one, with role.
func (s *stage) environ(role string) []string {
	return append(os.Environ(), roleVar+"="+role, stageVar+"="+s.listener.Addr().String(), "GORACE=atexit_sleep_ms=0")
}

// enter waits for n puppets and returns them by rank.
func (s *stage) enter(n int) []*hand {
	s.t.Helper()
	if err := s.listener.(*net.UnixListener).SetDeadline(time.Now().Add(patience)); err != nil {
		s.t.Fatal(err)
	}
	var hands []*hand
	for range n {
		conn, err := s.listener.Accept()
		if err != nil {
			s.t.Fatal(err)
		}
		s.t.Cleanup(func() { conn.Close() })
		h := &hand{t: s.t, conn: conn, r: bufio.NewReader(conn)}
		line := h.hear()
		before, after, _ := strings.Cut(line, " rank ")
		if _, err := fmt.Sscanf(after, "%d pid %d", &h.rank, &h.pid); err != nil {
			s.t.Fatalf("%q: %v", line, err)
		}
		h.name = before
		hands = append(hands, h)
	}
	slices.SortStableFunc(hands, func(a, b *hand) int { return cmp.Compare(a.rank, b.rank) })
	return hands
}

// tell gives a command without an answer.
func (h *hand) tell(command string) {
	h.t.Helper()
	if _, err := io.WriteString(h.conn, command+"\n"); err != nil {
		h.t.Fatalf("rank %d %s: %v", h.rank, command, err)
	}
}

// hear returns the puppet's next line.
func (h *hand) hear() string {
	h.t.Helper()
	line, err := h.r.ReadString('\n')
	if err != nil {
		h.t.Fatalf("rank %d: %v", h.rank, err)
	}
	text, err := strconv.Unquote(strings.TrimSuffix(line, "\n"))
	if err != nil {
		h.t.Fatalf("rank %d: %q: %v", h.rank, line, err)
	}
	return text
}

// ask gives a command and returns its answer.
func (h *hand) ask(command string) string {
	h.t.Helper()
	h.tell(command)
	return h.hear()
}

// make gives a command that must succeed.
func (h *hand) make(command string) {
	h.t.Helper()
	if got := h.ask(command); got != "<nil>" {
		h.t.Fatalf("rank %d %s: %s", h.rank, command, got)
	}
}

// gone waits until the process has ended. A process that does not is found by the hang guard.
func (h *hand) gone() {
	h.t.Helper()
	if err := h.conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		h.t.Fatal(err)
	}
	if rest, err := io.ReadAll(h.r); err != nil && !strings.Contains(err.Error(), "reset by peer") {
		h.t.Fatalf("rank %d (%s pid %d) is still there: %q, %v", h.rank, h.name, h.pid, rest, err)
	}
}

// locked is a buffer for the output of a program that a test reads meanwhile.
type locked struct {
	mu      sync.Mutex
	b       bytes.Buffer
	written chan struct{} // closed by the next Write; nil if no test waits
}

func (l *locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.written != nil {
		close(l.written)
		l.written = nil
	}
	return l.b.Write(p)
}

func (l *locked) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// next returns the output so far, and a channel that is closed when there is more.
func (l *locked) next() (string, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.written == nil {
		l.written = make(chan struct{})
	}
	return l.b.String(), l.written
}

// waitFor waits until want has been written.
func (l *locked) waitFor(t *testing.T, want string) {
	t.Helper()
	late := time.After(patience)
	for {
		got, more := l.next()
		if strings.Contains(got, want) {
			return
		}
		select {
		case <-more:
		case <-late:
			t.Fatalf("%q does not come after\n%s", want, got)
		}
	}
}

// spawned is a Spawn of puppets in this process.
type spawned struct {
	t        *testing.T
	out, err locked
	done     chan struct{}
	res      Result
	fail     error
}

// spawn starts cfg.N puppets, with defaults for empty fields of cfg.
func (s *stage) spawn(ctx context.Context, cfg SpawnConfig) (*spawned, []*hand) {
	s.t.Helper()
	exe, err := os.Executable()
	if err != nil {
		s.t.Fatal(err)
	}
	p := &spawned{t: s.t, done: make(chan struct{})}
	cfg.Program = cmp.Or(cfg.Program, exe)
	cfg.Env = append(s.environ("puppet"), cfg.Env...)
	cfg.Grace = cmp.Or(cfg.Grace, patience)
	if cfg.Stdout == nil {
		cfg.Stdout = &p.out
	}
	if cfg.Stderr == nil {
		cfg.Stderr = &p.err
	}
	go func() {
		defer close(p.done)
		p.res, p.fail = Spawn(ctx, cfg)
	}()
	s.t.Cleanup(func() { <-p.done })
	return p, s.enter(cfg.N)
}

// wait waits for the end of Spawn, which must find nothing wrong but failing ranks.
func (p *spawned) wait() Result {
	p.t.Helper()
	<-p.done
	if p.fail != nil {
		p.t.Fatal(p.fail)
	}
	return p.res
}

// program is a launcher as a process of its own.
type program struct {
	t        *testing.T
	cmd      *exec.Cmd
	out, err locked
}

// start runs this test binary in role.
func (s *stage) start(role string, args ...string) *program {
	s.t.Helper()
	return s.startTo(nil, role, args...)
}

// startTo is start with stdout somewhere else than in p.out, if it is not nil.
func (s *stage) startTo(stdout *os.File, role string, args ...string) *program {
	s.t.Helper()
	exe, err := os.Executable()
	if err != nil {
		s.t.Fatal(err)
	}
	p := &program{t: s.t, cmd: exec.Command(exe, args...)}
	p.cmd.Env = s.environ(role)
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.err
	if stdout != nil {
		p.cmd.Stdout = stdout
	}
	if err := p.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	return p
}

// wait is the exit code of the program; -1 if a signal killed it.
func (p *program) wait() int {
	p.t.Helper()
	_ = p.cmd.Wait() // the exit code says it
	return p.cmd.ProcessState.ExitCode()
}

// descendants are the children of this process, dead or alive, that belong to none of the test's
// own programs.
func descendants(t *testing.T) []process {
	t.Helper()
	children, err := childrenOf(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	return children
}
