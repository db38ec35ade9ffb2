//go:build linux

package launch

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/symgrad/symgrad/dist"
)

// testJob is a server with the settings to join it.
type testJob struct {
	*Server
	dial DialConfig
	ca   *authority // nil without TLS
}

// socketName is the name of an abstract unix socket that no other test uses.
func socketName() string { return "@symgrad-test-" + randomHex() }

// networks are the ways in which a store can be served.
var networks = map[string]func(t *testing.T, size int) *testJob{
	"tcp":  func(t *testing.T, size int) *testJob { return serveJob(t, "", size, nil) },
	"unix": func(t *testing.T, size int) *testJob { return serveJob(t, socketName(), size, nil) },
	"tls": func(t *testing.T, size int) *testJob {
		ca, err := newAuthority()
		if err != nil {
			t.Fatal(err)
		}
		return serveJob(t, "", size, ca)
	},
}

func serveJob(t *testing.T, address string, size int, ca *authority) *testJob {
	t.Helper()
	cfg := ServerConfig{Address: address, Job: "job", Size: size}
	if ca != nil {
		var err error
		if cfg.TLS, err = ca.server(); err != nil {
			t.Fatal(err)
		}
	}
	s, err := Listen(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return &testJob{Server: s, ca: ca, dial: DialConfig{Address: s.Address(), Job: "job", Size: size}}
}

// config returns the settings to join as rank.
func (j *testJob) config(t *testing.T, rank int) DialConfig {
	t.Helper()
	cfg := j.dial
	cfg.Rank = rank
	if j.ca != nil {
		cfg.TLS = clientTLS(t, j.ca, rank)
	}
	return cfg
}

func clientTLS(t *testing.T, ca *authority, rank int) *tls.Config {
	t.Helper()
	secret, err := ca.rank(rank)
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := parseCredentials(secret)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// join joins as rank. The client is closed at the end of the test, if not before.
func (j *testJob) join(t *testing.T, rank int) *Client {
	t.Helper()
	c, err := Dial(t.Context(), j.config(t, rank))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// inEachNetwork runs test as a subtest with a job of size ranks in each network.
func inEachNetwork(t *testing.T, size int, test func(t *testing.T, j *testJob)) {
	for _, name := range []string{"tcp", "unix", "tls"} {
		t.Run(name, func(t *testing.T) { test(t, networks[name](t, size)) })
	}
}

func wantDeath(t *testing.T, err error, rank int, how string) {
	t.Helper()
	var dead *dist.RankError
	if !errors.As(err, &dead) || dead.Rank != rank || !strings.Contains(dead.How, how) || !errors.Is(err, dist.ErrAborted) {
		t.Errorf("got %v, want the death of rank %d: ...%s...", err, rank, how)
	}
}

func TestClientIsAStore(t *testing.T) {
	for _, name := range []string{"tcp", "unix", "tls"} {
		t.Run(name, func(t *testing.T) {
			storeSuite(t, func(t *testing.T) (dist.Store, dist.Store) {
				j := networks[name](t, 2)
				return j.join(t, 0), j.join(t, 1)
			})
		})
	}
}

func TestEndWithoutGoodbyeFailsTheGetsOfOthers(t *testing.T) {
	inEachNetwork(t, 3, func(t *testing.T, j *testJob) {
		a, b, dying := j.join(t, 0), j.join(t, 1), j.join(t, 2)
		if err := a.Set(t.Context(), "there", nil); err != nil {
			t.Fatal(err)
		}
		got := make(chan error)
		for _, c := range []*Client{a, b} {
			go func() {
				_, err := c.Get(t.Context(), "never")
				got <- err
			}()
		}
		dying.conn.Close()
		for range 2 {
			wantDeath(t, <-got, 2, "connection")
		}
		_, err := a.Get(t.Context(), "there")
		wantDeath(t, err, 2, "connection")
		if err := b.Set(t.Context(), "k", nil); err != nil {
			t.Errorf("set after a death: %v", err)
		}
	})
}

func TestServerFailNamesTheRankAndHow(t *testing.T) {
	j := networks["tcp"](t, 2)
	a := j.join(t, 0)
	got := make(chan error)
	go func() {
		_, err := a.Get(t.Context(), "never")
		got <- err
	}()
	j.Fail(1, "exited with code 3")
	j.Fail(0, "later")
	wantDeath(t, <-got, 1, "exited with code 3")
	b := j.join(t, 1) // joining still works, to learn of it
	_, err := b.Get(t.Context(), "never")
	wantDeath(t, err, 1, "exited with code 3")
	if text := err.Error(); text != `store get "never": rank 1 died: exited with code 3` {
		t.Errorf("got %s", text)
	}
}

func TestGoodbyeIsNoDeath(t *testing.T) {
	inEachNetwork(t, 2, func(t *testing.T, j *testJob) {
		a, b := j.join(t, 0), j.join(t, 1)
		if err := b.Set(t.Context(), "k", []byte("v")); err != nil {
			t.Fatal(err)
		}
		waiting := make(chan error)
		go func() {
			_, err := b.Get(t.Context(), "never")
			waiting <- err
		}()
		for range 2 {
			if err := b.Close(); err != nil {
				t.Error(err)
			}
		}
		if err := <-waiting; !errors.Is(err, dist.ErrClosed) {
			t.Errorf("a Get during Close: got %v, want dist.ErrClosed", err)
		}
		if _, err := b.Get(t.Context(), "k"); !errors.Is(err, dist.ErrClosed) {
			t.Errorf("a Get after Close: got %v, want dist.ErrClosed", err)
		}
		if v, err := a.Get(t.Context(), "k"); string(v) != "v" || err != nil {
			t.Errorf("got %s, %v after the other rank left", v, err)
		}
	})
}

func TestServerCloseIsKnownToClients(t *testing.T) {
	inEachNetwork(t, 2, func(t *testing.T, j *testJob) {
		a := j.join(t, 0)
		got := make(chan error)
		go func() {
			_, err := a.Get(t.Context(), "never")
			got <- err
		}()
		for range 2 {
			if err := j.Close(); err != nil {
				t.Error(err)
			}
		}
		if err := <-got; !errors.Is(err, dist.ErrClosed) || errors.Is(err, dist.ErrAborted) {
			t.Errorf("got %v, want dist.ErrClosed", err)
		}
		if err := a.Set(t.Context(), "k", nil); !errors.Is(err, dist.ErrClosed) {
			t.Errorf("set afterwards: got %v, want dist.ErrClosed", err)
		}
	})
}

func TestLossOfTheServerNamesWhoServed(t *testing.T) {
	for name, byRank0 := range map[string]bool{"the launcher is gone": false, "rank 0 died": true} {
		t.Run(name, func(t *testing.T) {
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer listener.Close()
			served := make(chan error)
			go func() { // a server that says yes to hello, and dies at the next request
				conn, err := listener.Accept()
				if err == nil {
					_, err = readFrame(conn, maxHelloBytes)
				}
				if err == nil {
					_, err = conn.Write(appendFrame(nil, frame{kind: replyOK, id: 1}))
				}
				if err == nil {
					_, err = readFrame(conn, maxFrameBytes)
				}
				served <- errors.Join(err, conn.Close())
			}()
			c, err := Dial(t.Context(), DialConfig{Address: listener.Addr().String(), Job: "job", Rank: 1, Size: 2, ByRank0: byRank0})
			if err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if _, err := c.Get(t.Context(), "k"); !errors.Is(err, dist.ErrAborted) || !strings.Contains(err.Error(), name) {
					t.Errorf("got %v, want dist.ErrAborted and %q", err, name)
				}
			}
			if err := errors.Join(<-served, c.Close()); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestServerRefusesWhoDoesNotBelong(t *testing.T) {
	j := networks["tcp"](t, 2)
	j.join(t, 0)
	for name, change := range map[string]func(*DialConfig){
		`not of job "other"`:        func(c *DialConfig) { c.Job = "other" },
		"not for rank 1 of 3":       func(c *DialConfig) { c.Size = 3 },
		"not for rank 2 of 2":       func(c *DialConfig) { c.Rank = 2 },
		"rank 0 has joined already": func(c *DialConfig) { c.Rank = 0 },
	} {
		cfg := j.config(t, 1)
		change(&cfg)
		if _, err := Dial(t.Context(), cfg); !errors.Is(err, dist.ErrInvalid) || !strings.Contains(err.Error(), name) {
			t.Errorf("got %v, want dist.ErrInvalid and %q", err, name)
		}
	}
	for _, size := range []int{0, -1, maxRanks + 1} {
		if _, err := Listen(ServerConfig{Size: size}); !errors.Is(err, dist.ErrInvalid) {
			t.Errorf("a store for %d ranks: got %v", size, err)
		}
	}
}

func TestListenNamesTheAddressInUseAndTheRemedy(t *testing.T) {
	for name, want := range map[string]string{"tcp": "MASTER_PORT", "unix": "SYMGRAD_JOB"} {
		j := networks[name](t, 1)
		_, err := Listen(ServerConfig{Address: j.Address(), Size: 1})
		if !errors.Is(err, syscall.EADDRINUSE) || !strings.Contains(err.Error(), j.Address()) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want the address and %s", name, err, want)
		}
	}
	if _, err := Listen(ServerConfig{Address: "127.0.0.1:port", Size: 1}); err == nil || !strings.Contains(err.Error(), "127.0.0.1:port") {
		t.Errorf("got %v, want the address", err)
	}
}

func TestClientsMeetWhenAllHaveJoined(t *testing.T) {
	inEachNetwork(t, 3, func(t *testing.T, j *testJob) {
		a := j.join(t, 0)
		met := make(chan error, 3)
		go func() { met <- a.meet(t.Context()) }()
		b := j.join(t, 2)
		missing, err := b.missing(t.Context())
		if err != nil || !slices.Equal(missing, []int{1}) {
			t.Errorf("missing are %v, %v, want 1", missing, err)
		}
		select {
		case err := <-met:
			t.Fatalf("rank 0 met without rank 1: %v", err)
		default:
		}
		c := j.join(t, 1)
		for _, end := range []*Client{b, c} {
			go func() { met <- end.meet(t.Context()) }()
		}
		for range 3 {
			if err := <-met; err != nil {
				t.Error(err)
			}
		}
	})
}

func TestMeetFailsWhenARankWillNotCome(t *testing.T) {
	for name, end := range map[string]func(*Server){
		"exited with code 0 without joining": func(s *Server) { s.Exit(1, "exited with code 0") },
		"killed":                             func(s *Server) { s.Fail(1, "killed") },
	} {
		j := networks["tcp"](t, 2)
		a := j.join(t, 0)
		met := make(chan error)
		go func() { met <- a.meet(t.Context()) }()
		end(j.Server)
		wantDeath(t, <-met, 1, name)
	}
}

// A rank that leaves and comes back is in the next meeting, which knows nothing of the one before.
func TestMeetingsFollowEachOther(t *testing.T) {
	j := networks["tls"](t, 2)
	for round := range 20 {
		ends := []*Client{j.join(t, 0), j.join(t, 1)}
		if n, err := ends[round%2].Add(t.Context(), "n", 1); n != 1 || err != nil {
			t.Fatalf("round %d: the counter was at %d, %v", round, n-1, err)
		}
		for _, c := range ends {
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := len(j.roster.meetings); n != 0 {
		t.Errorf("%d meetings are kept that all have left", n)
	}
	j.Exit(1, "exited with code 0")
	wantDeath(t, j.join(t, 0).meet(t.Context()), 1, "without joining")
}

func TestOnceIsOneMeeting(t *testing.T) {
	s, err := Listen(ServerConfig{Job: "job", Size: 2, Once: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	j := &testJob{Server: s, dial: DialConfig{Address: s.Address(), Job: "job", Size: 2}}
	if err := j.join(t, 1).Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Dial(t.Context(), j.config(t, 1)); !errors.Is(err, errOver) {
		t.Errorf("got %v, want errOver", err)
	}
}

// The end of a process and of its connection come together; the launcher, which knows the cause,
// has the word, also when it is the slower one.
func TestWatchedServerSaysHowTheProcessEnded(t *testing.T) {
	for want, end := range map[string]func(*Server){
		"was killed by signal: killed":       func(s *Server) { s.Fail(1, "was killed by signal: killed") },
		"exited with code 0 without leaving": func(s *Server) { s.Exit(1, "exited with code 0") },
		"connection closed":                  func(*Server) {}, // it goes on, but without its store
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &Server{cfg: ServerConfig{Watched: true}, roster: newRoster(2, false), ctx: t.Context()}
			m, err := s.roster.join(0)
			if err == nil {
				_, err = s.roster.join(1)
			}
			if err != nil {
				t.Fatal(err)
			}
			go s.lose(1, io.EOF)
			<-time.After(time.Second)
			end(s)
			_, err = m.Get(t.Context(), "never")
			wantDeath(t, err, 1, want)
		})
	}
}
