package shm

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/launch"
	"github.com/symgrad/symgrad/internal/conformance"
	"github.com/symgrad/symgrad/tensor"
)

// roleVar makes the test binary a rank; its value is the role.
const roleVar = "SYMGRAD_TEST_ROLE"

// Exit codes of a rank.
const (
	exitOK      = 0
	exitOther   = 1
	exitAborted = 3
)

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVar); role != "" {
		os.Exit(runRank(role))
	}
	os.Exit(m.Run())
}

// runRank is main of a rank process.
func runRank(role string) int {
	env, err := launch.Current()
	if err != nil {
		fmt.Println("error:", err)
		return exitOther
	}
	store, closer, err := launch.Rendezvous(context.Background(), env, launch.Config{Timeout: time.Minute})
	if err != nil {
		fmt.Println("error:", err)
		return exitOther
	}
	defer closer.Close()
	t, err := Open(context.Background(), env.Rank, env.Size, store, Config{ChunkBytes: 1 << 12})
	if err != nil {
		fmt.Println("error:", err)
		return exitOther
	}
	body := roles[role]
	if role == suiteRole {
		body = func(w *dist.World) error { return conformance.Suite(w, conformance.Options{}) }
	}
	if h, ok := handOvers[role]; ok {
		body = h.stage(t.(*worldTransport).node)
	}
	w, err := dist.NewWorld(t, dist.LocalInfo{}, 0, nil)
	if err == nil {
		err = errors.Join(body(w), w.Close())
	}
	if err != nil {
		fmt.Println("error:", err)
		if errors.Is(err, dist.ErrAborted) {
			return exitAborted
		}
		return exitOther
	}
	return exitOK
}

// suiteRole is the role of a rank that goes through the conformance suite.
const suiteRole = "conformance"

// roles are endless loops for rank processes: they report their start and end only by an error.
var roles = map[string]func(w *dist.World) error{
	"reduce private memory": func(w *dist.World) error {
		buf := tensor.Of(make([]float32, 10000))
		return forever(func() error { return done(w.AllReduce(buf, buf, dist.Sum)) })
	},
	"reduce the heap": func(w *dist.World) error {
		h, err := w.Heap(1 << 20)
		if err != nil {
			return err
		}
		r, err := h.Alloc(1 << 20)
		if err != nil {
			return err
		}
		numbers, err := r.Local().As(tensor.F32)
		if err != nil {
			return err
		}
		return forever(func() error { return done(w.AllReduce(numbers, numbers, dist.Sum)) })
	},
	"barrier": func(w *dist.World) error {
		return forever(func() error { return done(w.Barrier()) })
	},
	"pass on": func(w *dist.World) error {
		buf := tensor.Of(make([]byte, 100000))
		out := tensor.Of(make([]byte, 100000))
		return forever(func() error {
			return done(w.Batch(func(b *dist.Group) error {
				_, err1 := b.Send(out, (w.Rank()+1)%w.Size())
				_, err2 := b.Recv(buf, (w.Rank()+w.Size()-1)%w.Size())
				return errors.Join(err1, err2)
			}))
		})
	},
	"split": func(w *dist.World) error {
		return forever(func() error {
			g, err := w.Split(w.Rank()%2, 0)
			if err != nil {
				return err
			}
			return g.Close()
		})
	},
	"allocate": func(w *dist.World) error {
		h, err := w.Heap(1 << 16)
		if err != nil {
			return err
		}
		return forever(func() error {
			r, err := h.Alloc(1000)
			if err != nil {
				return err
			}
			return h.Free(r)
		})
	},
}

func forever(f func() error) error {
	for i := 0; ; i++ {
		if err := f(); err != nil {
			return err
		}
		if i == 2 {
			fmt.Println("running")
		}
	}
}

// rankProcess is a started rank.
type rankProcess struct {
	cmd     *exec.Cmd
	running chan struct{} // closed when it says so, or ends
	text    string        // its output, complete after wait
	read    sync.WaitGroup
}

func startRanks(t *testing.T, n int, role string) []*rankProcess {
	t.Helper()
	ps := make([]*rankProcess, n)
	for r := range ps {
		p := &rankProcess{cmd: exec.Command(os.Args[0]), running: make(chan struct{})}
		p.cmd.Env = append(os.Environ(), roleVar+"="+role, "GORACE=atexit_sleep_ms=0",
			fmt.Sprintf("SYMGRAD_RANK=%d", r), fmt.Sprintf("SYMGRAD_WORLD_SIZE=%d", n),
			fmt.Sprintf("SYMGRAD_LOCAL_RANK=%d", r), fmt.Sprintf("SYMGRAD_LOCAL_WORLD_SIZE=%d", n),
			fmt.Sprintf("SYMGRAD_JOB=shm-test-%d-%s", os.Getpid(), t.Name()))
		p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		out, err := p.cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		p.cmd.Stderr = p.cmd.Stdout
		if err := p.cmd.Start(); err != nil {
			t.Fatal(err)
		}
		p.read.Go(func() {
			once := sync.OnceFunc(func() { close(p.running) })
			defer once()
			for sc := bufio.NewScanner(out); sc.Scan(); {
				if sc.Text() == "running" {
					once()
					continue
				}
				p.text += sc.Text() + "\n"
			}
		})
		ps[r] = p
	}
	return ps
}

// code waits for the process and returns its exit code, -1 for a signal.
func (p *rankProcess) code() int {
	p.read.Wait()
	_ = p.cmd.Wait()
	return p.cmd.ProcessState.ExitCode()
}

// TestKilledRankIsNamedByAllOthers kills one rank with SIGKILL in the middle of each kind of work.
func TestKilledRankIsNamedByAllOthers(t *testing.T) {
	for role := range roles {
		t.Run(role, func(t *testing.T) {
			const n, victim = 3, 1
			ps := startRanks(t, n, role)
			for _, p := range ps {
				<-p.running
			}
			killed := time.Now()
			if err := ps[victim].cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			for r, p := range ps {
				code := p.code()
				if r == victim {
					continue
				}
				if code != exitAborted || !strings.Contains(p.text, fmt.Sprintf("rank %d died", victim)) {
					t.Errorf("rank %d ended with code %d and %q, want code %d and the death of rank %d", r, code, p.text, exitAborted, victim)
				}
			}
			// It takes some milliseconds, and a second at most; the rest is for busy machines.
			if d := time.Since(killed); d > 20*time.Second {
				t.Errorf("the others ended %v after the death", d)
			}
		})
	}
}

func TestConformanceOfProcesses(t *testing.T) {
	needsMappedMemory(t)
	for _, n := range someRanks() {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			for r, p := range startRanks(t, n, suiteRole) {
				if code := p.code(); code != exitOK {
					t.Errorf("rank %d ended with code %d: %s", r, code, p.text)
				}
			}
		})
	}
}
