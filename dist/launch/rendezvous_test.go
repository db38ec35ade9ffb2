//go:build linux

package launch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/long"
)

// patience is a hang guard, longer than any test takes.
const patience = time.Minute

// met is the result of Rendezvous on one rank.
type met struct {
	store dist.Store
	close io.Closer
	err   error
}

// meetAll lets ranks of the job that env describes meet, as goroutines.
func meetAll(ctx context.Context, env func(rank int) Env, timeout time.Duration, ranks ...int) []met {
	out := make([]met, len(ranks))
	var wg sync.WaitGroup
	for i, rank := range ranks {
		wg.Go(func() {
			m := &out[i]
			m.store, m.close, m.err = Rendezvous(ctx, env(rank), Config{Timeout: timeout})
		})
	}
	wg.Wait()
	return out
}

// onSocket is the ranks of a job of size on one host, whose launcher gives no address.
func onSocket(size int) func(rank int) Env {
	job := randomHex()
	return func(rank int) Env {
		return Env{Rank: rank, Size: size, LocalRank: rank, LocalSize: size, Launcher: OpenMPI, Job: job}
	}
}

// onPort is the ranks of a job of torchrun.
func onPort(t *testing.T, size int) func(rank int) Env {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	master := listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	return func(rank int) Env {
		return Env{Rank: rank, Size: size, LocalRank: rank, LocalSize: size, Launcher: Torchrun, Job: master, Master: master}
	}
}

// underLauncher is the ranks of a job of this project's launcher, whose server it starts.
func underLauncher(t *testing.T, size int) (*Server, func(rank int) Env) {
	t.Helper()
	ca, err := newAuthority()
	if err != nil {
		t.Fatal(err)
	}
	j := serveJob(t, "", size, ca)
	files := make([]*os.File, size)
	for rank := range files {
		secret, err := ca.rank(rank)
		if err == nil {
			files[rank], err = memoryFile("test", secret)
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { files[rank].Close() })
	}
	return j.Server, func(rank int) Env {
		return Env{
			Rank: rank, Size: size, LocalRank: rank, LocalSize: size, Launcher: Symgrad, Job: "job",
			Master: j.Address(), StoreFD: int(files[rank].Fd()),
		}
	}
}

func TestRendezvousGivesAllRanksOneStore(t *testing.T) {
	_, launcher := underLauncher(t, 3)
	for name, env := range map[string]func(int) Env{
		"socket": onSocket(3), "port": onPort(t, 3), "launcher": launcher,
		"alone": func(int) Env { return Env{Size: 1, LocalSize: 1, Launcher: None} },
	} {
		t.Run(name, func(t *testing.T) {
			ranks := []int{0, 1, 2}[:env(0).Size]
			all := meetAll(t.Context(), env, patience, ranks...)
			var wg sync.WaitGroup
			for rank, m := range all {
				if m.err != nil {
					t.Fatal(m.err)
				}
				wg.Go(func() {
					if err := m.store.Set(t.Context(), fmt.Sprint("from ", rank), fmt.Append(nil, rank)); err != nil {
						t.Error(err)
					}
					for peer := range all {
						if v, err := m.store.Get(t.Context(), fmt.Sprint("from ", peer)); string(v) != fmt.Sprint(peer) || err != nil {
							t.Errorf("rank %d got %s, %v from %d", rank, v, err, peer)
						}
					}
					if err := m.close.Close(); err != nil {
						t.Error(err)
					}
					if _, err := m.store.Get(t.Context(), "from 0"); !errors.Is(err, dist.ErrClosed) {
						t.Errorf("rank %d after close: got %v, want dist.ErrClosed", rank, err)
					}
				})
			}
			wg.Wait()
		})
	}
}

// Ranks that close and meet again, without waiting for each other in between, never see the store
// before.
func TestRendezvousCanBeRepeated(t *testing.T) {
	rounds := long.Times(20, 100)
	server, launcher := underLauncher(t, 3)
	for name, env := range map[string]func(int) Env{"socket": onSocket(3), "port": onPort(t, 3), "launcher": launcher} {
		t.Run(name, func(t *testing.T) {
			before := openFiles(t)
			var wg sync.WaitGroup
			for rank := range 3 {
				wg.Go(func() {
					for round := range rounds {
						store, closer, err := Rendezvous(t.Context(), env(rank), Config{Timeout: patience})
						if err != nil {
							t.Errorf("round %d: %v", round, err)
							return
						}
						n, err := store.Add(t.Context(), "n", 1)
						if n < 1 || n > 3 || err != nil {
							t.Errorf("round %d rank %d: counter at %d, %v", round, rank, n, err)
						}
						if err := closer.Close(); err != nil {
							t.Error(err)
						}
					}
				})
			}
			wg.Wait()
			server.drain(t.Context()) // it closes its ends a moment after the ranks close theirs
			if after := openFiles(t); after > before {
				t.Errorf("%d descriptors open, %d before", after, before)
			}
		})
	}
}

// openFiles is the number of descriptors of this process.
func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func TestRankZeroStaysUntilTheOthersHaveLeft(t *testing.T) {
	all := meetAll(t.Context(), onSocket(2), patience, 0, 1)
	host, guest := all[0], all[1]
	if err := errors.Join(host.err, guest.err, host.store.Set(t.Context(), "k", []byte("v"))); err != nil {
		t.Fatal(err)
	}
	closed := make(chan error)
	go func() { closed <- host.close.Close() }()
	if v, err := guest.store.Get(t.Context(), "k"); string(v) != "v" || err != nil {
		t.Errorf("got %s, %v while rank 0 closes", v, err)
	}
	if err := errors.Join(guest.close.Close(), <-closed); err != nil {
		t.Error(err)
	}
}

func TestRendezvousNamesTheMissingRanks(t *testing.T) {
	_, launcher := underLauncher(t, 4)
	for name, env := range map[string]func(int) Env{"socket": onSocket(4), "port": onPort(t, 4), "launcher": launcher} {
		t.Run(name, func(t *testing.T) {
			for rank, m := range meetAll(t.Context(), env, time.Second, 0, 1) {
				// On a machine that is slow enough rank 1 may be missing too.
				if !errors.Is(m.err, dist.ErrTimeout) || !strings.Contains(m.err.Error(), " 2, 3 of 4: timed out after 1s") {
					t.Errorf("rank %d got %v, want ranks 2 and 3", rank, m.err)
				}
			}
		})
	}
	for name, env := range map[string]func(int) Env{"socket": onSocket(4), "port": onPort(t, 4)} {
		m := meetAll(t.Context(), env, 100*time.Millisecond, 3)[0]
		if !errors.Is(m.err, dist.ErrTimeout) || !strings.Contains(m.err.Error(), "waiting for rank 0 of 4") ||
			!strings.Contains(m.err.Error(), "rendezvous of rank 3/4") {
			t.Errorf("%s: got %v, want rank 0", name, m.err)
		}
	}
}

// Ranks that wait hear at once that another has given up, also before the last has come: without it
// no rank meets. The launcher, which stays, tells the last one too.
func TestRankThatGaveUpIsNotMet(t *testing.T) {
	_, launcher := underLauncher(t, 3)
	for name, env := range map[string]func(int) Env{"socket": onSocket(3), "port": onPort(t, 3), "launcher": launcher} {
		t.Run(name, func(t *testing.T) {
			p, err := env(1).place()
			if err != nil {
				t.Fatal(err)
			}
			got := make(chan []met, 1)
			go func() { got <- meetAll(t.Context(), env, patience, 0) }()
			early, err := p.join(t.Context(), env(1))
			if err != nil {
				t.Fatal(err)
			}
			if err := early.Close(); err != nil {
				t.Fatal(err)
			}
			told := <-got
			if name == "launcher" {
				told = append(told, meetAll(t.Context(), env, patience, 2)...)
			}
			for _, m := range told {
				wantDeath(t, m.err, 1, "left before all ranks had come")
			}
		})
	}
}

func TestListRanksShortensALongList(t *testing.T) {
	for want, ranks := range map[string][]int{
		"rank 3":     {3},
		"ranks 2, 3": {2, 3},
		"ranks 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 and 2 more": {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17},
	} {
		if got := listRanks(ranks); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestRankThatDiesWhileOthersMeetIsNamed(t *testing.T) {
	env := onSocket(3)
	p, err := env(1).place()
	if err != nil {
		t.Fatal(err)
	}
	dead := make(chan error, 1)
	go func() {
		c, err := Dial(t.Context(), DialConfig{Address: p.address, Job: p.job, Rank: 1, Size: 3, ByRank0: true})
		if err == nil {
			c.conn.Close()
			c.Close()
		}
		dead <- err
	}()
	m := meetAll(t.Context(), env, patience, 0)[0]
	wantDeath(t, m.err, 1, "connection")
	if err := <-dead; err != nil {
		t.Error(err)
	}

	server, env := underLauncher(t, 3)
	server.Fail(2, "was killed by signal: killed")
	for _, m := range meetAll(t.Context(), env, patience, 0, 1) {
		wantDeath(t, m.err, 2, "was killed by signal: killed")
	}
}

// Rank 0, which learns of the death as well, does not end its store before the others have heard
// who died.
func TestDeathWhileOthersMeetIsNamedToAll(t *testing.T) {
	for range 20 {
		env := onSocket(4)
		p, err := env(1).place()
		if err != nil {
			t.Fatal(err)
		}
		got := make(chan []met, 1)
		go func() { got <- meetAll(t.Context(), env, patience, 0, 2) }()
		c, err := Dial(t.Context(), DialConfig{Address: p.address, Job: p.job, Rank: 1, Size: 4, ByRank0: true})
		if err != nil {
			t.Fatal(err)
		}
		for missing := []int{2}; slices.Contains(missing, 2); {
			if missing, err = c.missing(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		c.conn.Close()
		c.Close()
		for _, m := range <-got {
			wantDeath(t, m.err, 1, "connection")
		}
	}
}

func TestRendezvousEndsWithItsContext(t *testing.T) {
	reason := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(reason)
	_, launcher := underLauncher(t, 2)
	for name, env := range map[string]func(int) Env{"socket": onSocket(2), "port": onPort(t, 2), "launcher": launcher} {
		for _, m := range meetAll(ctx, env, patience, 0, 1) {
			if !errors.Is(m.err, reason) && !errors.Is(m.err, context.Canceled) {
				t.Errorf("%s: got %v, want the context's end", name, m.err)
			}
		}
	}
}

// overdue is a context whose deadline is over, and that may not have noticed yet.
type overdue struct{ context.Context }

func (overdue) Deadline() (time.Time, bool) { return time.Unix(1, 0), true }

func TestDialThatItsDeadlineEndsSaysWhatTheContextSays(t *testing.T) {
	for _, byRank0 := range []bool{false, true} {
		reason := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		go cancel(reason)
		_, err := Dial(overdue{ctx}, DialConfig{Address: socketName(), Job: "job", Rank: 1, Size: 2, ByRank0: byRank0})
		if !errors.Is(err, reason) {
			t.Errorf("by rank 0 %t: got %v, want the context's end", byRank0, err)
		}
	}
}

func TestRendezvousRefusesWhatCannotBeMetSafely(t *testing.T) {
	half := func(e Env) Env { e.Rank, e.Size, e.LocalSize = 1, 4, 2; return e }
	for name, tc := range map[string]struct {
		env  Env
		want error
		says string
	}{
		"torchrun over two hosts": {half(Env{Launcher: Torchrun, Master: "10.0.0.7:29500"}), dist.ErrUnsupported, "2 of 4 ranks on this host, to meet at 10.0.0.7:29500: the store would be open"},
		"mpirun over two hosts":   {half(Env{Launcher: OpenMPI}), dist.ErrUnsupported, "openmpi gives ranks of several hosts no address"},
		"no credentials":          {half(Env{Launcher: Symgrad, Job: "j", Master: "127.0.0.1:1", StoreFD: 1 << 19}), syscall.EBADF, "SYMGRAD_STORE_FD=524288"},
		"a half-made Env":         {Env{Rank: 1, Size: 1, LocalSize: 1}, nil, "rank 1: want 0 to 0"},
	} {
		_, _, err := Rendezvous(t.Context(), tc.env, Config{Timeout: patience})
		if err == nil || !strings.Contains(err.Error(), tc.says) || (tc.want != nil && !errors.Is(err, tc.want)) {
			t.Errorf("%s: got %v, want %q", name, err, tc.says)
		}
	}
	if _, _, err := Rendezvous(t.Context(), Env{Size: 1, LocalSize: 1}, Config{Timeout: -1}); !errors.Is(err, dist.ErrInvalid) {
		t.Errorf("negative timeout: got %v", err)
	}
}

// The port that torchrun names is open to every user of the machine: ranks meet where the kernel
// tells who comes.
func TestJobsWithALoopbackAddressMeetOverASocket(t *testing.T) {
	env := onPort(t, 2)
	for _, m := range meetAll(t.Context(), env, patience, 0, 1) {
		if m.err != nil {
			t.Fatal(m.err)
		}
		defer m.close.Close()
	}
	if conn, err := net.Dial("tcp", env(0).Master); err == nil {
		t.Errorf("%s is served", env(0).Master)
		_ = conn.Close()
	}
}

func TestOneHostJobsWithANetworkAddressMeetOverASocket(t *testing.T) {
	e := Env{Size: 2, LocalSize: 2, Launcher: Torchrun, Job: "j", Master: "10.0.0.7:29500"}
	p, err := e.place()
	if err != nil || !abstract(p.address) {
		t.Errorf("got %+v, %v, want an abstract socket", p, err)
	}
	for name, change := range map[string]func(*Env){
		"job": func(e *Env) { e.Job = "k" }, "launcher": func(e *Env) { e.Launcher = Slurm },
	} {
		other := e
		change(&other)
		if q, err := other.place(); err != nil || q.address == p.address {
			t.Errorf("another %s: got %+v, %v, want another address than %s", name, q, err, p.address)
		}
	}
}

func TestLoopbackGoesByName(t *testing.T) {
	for address, want := range map[string]bool{
		"127.0.0.1:1": true, "127.9.9.9:1": true, "[::1]:1": true, "localhost:1": true,
		"10.0.0.1:1": false, "0.0.0.0:1": false, "node1:1": false, "127.0.0.1": false, "localhost.example:1": false,
	} {
		if got := loopback(address); got != want {
			t.Errorf("loopback(%q) = %v", address, got)
		}
	}
}
