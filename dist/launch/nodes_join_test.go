//go:build linux

package launch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/symgrad/symgrad/dist"
)

func newSecret(t *testing.T) Secret {
	t.Helper()
	s, err := ParseSecret([]byte(NewSecret()))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// joined is the end of a joinNodes.
type joined struct {
	l   *launchers
	err error
}

// join runs joinNodes in a goroutine.
func join(ctx context.Context, cfg SpawnConfig) <-chan joined {
	done := make(chan joined, 1)
	go func() {
		l, err := joinNodes(ctx, cfg, newRestarts(cfg))
		done <- joined{l, err}
	}()
	return done
}

// twoNodes returns the settings of a launcher of two.
func twoNodes(t *testing.T) SpawnConfig {
	t.Helper()
	return SpawnConfig{Program: "true", N: 1, Nodes: 2, Store: freeAddress(t), Secret: newSecret(t), Wait: patience, Grace: patience, Patience: patience}
}

func (c SpawnConfig) on(node int) SpawnConfig {
	c.Node = node
	return c
}

// leaveAll ends a job whose ranks were never started.
func leaveAll(t *testing.T, nodes ...<-chan joined) {
	t.Helper()
	for _, done := range nodes {
		j := <-done
		if j.err != nil {
			t.Error(j.err)
			continue
		}
		t.Cleanup(j.l.close)
		j.l.report(report{Kind: kindFewer, Count: 1})
	}
}

func TestLaunchersWithoutTheSecretDoNotJoin(t *testing.T) {
	cfg := twoNodes(t)
	zero := join(t.Context(), cfg)
	for name, tc := range map[string]struct {
		change func(*SpawnConfig)
		says   string
	}{
		"another secret": {func(c *SpawnConfig) { c.Secret = newSecret(t) }, "the launcher of node 0 at " + cfg.Store + " has another job secret"},
		"another number": {func(c *SpawnConfig) { c.Nodes, c.Node = 3, 2 }, "store of 2 nodes: not for node 2 of 3"},
	} {
		bad := cfg.on(1)
		tc.change(&bad)
		if j := <-join(t.Context(), bad); j.err == nil || !strings.Contains(j.err.Error(), tc.says) {
			t.Errorf("%s: got %v, want %q", name, j.err, tc.says)
		}
	}
	leaveAll(t, join(t.Context(), cfg.on(1)), zero)
}

// dialNode joins the launchers' store as a node, without the exchange that follows.
func dialNode(t *testing.T, cfg SpawnConfig, as string) (*Client, error) {
	t.Helper()
	ca, err := cfg.Secret.authority(launchersPurpose)
	if err != nil {
		t.Fatal(err)
	}
	config, err := ca.client(as, launchersStore)
	if err != nil {
		t.Fatal(err)
	}
	c, err := Dial(t.Context(), DialConfig{
		Address: cfg.Store, Job: launchersJob, Rank: cfg.Node, Size: cfg.Nodes, TLS: config, beat: heartbeat, patient: true,
	})
	if err == nil {
		t.Cleanup(func() { _ = c.Close() })
	}
	return c, err
}

func TestNodeIsTakenOnce(t *testing.T) {
	cfg := twoNodes(t)
	cfg.Nodes = 3
	ctx, cancel := context.WithCancelCause(t.Context())
	zero := join(ctx, cfg)
	one, err := dialNode(t, cfg.on(1), nodeName(1))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := dialNode(t, cfg.on(1), nodeName(1)); err == nil || !strings.Contains(err.Error(), "two launchers have this --node-rank") {
		t.Errorf("a second launcher: got %v", err)
	}
	if _, err := dialNode(t, cfg.on(2), nodeName(1)); err == nil || !strings.Contains(err.Error(), "node 2 with the certificate of node-1") {
		t.Errorf("another's certificate: got %v", err)
	}
	if _, err := dialNode(t, cfg.on(2), rankName(2)); err == nil || !strings.Contains(err.Error(), "node 2 with the certificate of rank-2") {
		t.Errorf("a rank's certificate: got %v", err)
	}
	if j := <-join(t.Context(), cfg); j.err == nil || !strings.Contains(j.err.Error(), "this one needs another number") {
		t.Errorf("a second node 0: got %v", j.err)
	}
	// A node that does not come is named, on all nodes.
	cancel(dist.ErrTimeout)
	const missing = "waiting for node 2 of 3"
	if err := one.meet(t.Context()); !errors.Is(err, dist.ErrTimeout) || !strings.Contains(err.Error(), missing) {
		t.Errorf("node 1: got %v, want %q", err, missing)
	}
	if err := one.Close(); err != nil {
		t.Error(err)
	}
	if j := <-zero; !errors.Is(j.err, dist.ErrTimeout) || !strings.Contains(j.err.Error(), missing) {
		t.Errorf("node 0: got %v, want %q", j.err, missing)
	}
}

func TestNode0IsWaitedFor(t *testing.T) {
	cfg := twoNodes(t)
	late := cfg.on(1)
	late.Wait = time.Millisecond
	j := <-join(t.Context(), late)
	if !errors.Is(j.err, dist.ErrTimeout) || !strings.Contains(j.err.Error(), "node 1 of 2: waiting for node 0 of 2: ") {
		t.Errorf("got %v", j.err)
	}
	one := join(t.Context(), cfg.on(1)) // before node 0 listens
	leaveAll(t, join(t.Context(), cfg), one)
}

func TestLossBeforeTheMeetingEndsIt(t *testing.T) {
	cfg := twoNodes(t)
	cfg.Nodes = 3
	zero := join(t.Context(), cfg)
	one, err := dialNode(t, cfg.on(1), nodeName(1))
	if err != nil {
		t.Fatal(err)
	}
	_ = one.conn.Close()
	if j := <-zero; !errors.Is(j.err, dist.ErrAborted) || !strings.Contains(j.err.Error(), "node 1 is gone: its launcher is lost: connection closed") {
		t.Errorf("got %v", j.err)
	}
}

// A flood of silent connections and garbage takes neither a node's place nor the descriptors.
func TestStrangersDoNotKeepLaunchersOut(t *testing.T) {
	cfg := twoNodes(t)
	zero := join(t.Context(), cfg)
	var first net.Conn
	for first == nil { // until node 0 listens
		first, _ = net.Dial("tcp", cfg.Store)
	}
	conns := []net.Conn{first}
	for len(conns) < 1000 {
		conn, err := net.Dial("tcp", cfg.Store)
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, conn)
	}
	garbage := bytes.Repeat([]byte("GET / HTTP/1.1\r\n"), 100)
	for i, conn := range conns {
		defer conn.Close()
		if i%2 == 0 {
			_, _ = conn.Write(garbage) // the server may have ended it
		}
	}
	one := join(t.Context(), cfg.on(1))
	leaveAll(t, one, zero)
	ended := 0
	for _, conn := range conns[:1000-mostStrangers-2] {
		if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		answer, err := io.ReadAll(conn)
		if len(answer) > 7 { // an alert of TLS
			t.Fatalf("a stranger got %q", answer)
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			ended++
		}
	}
	if want := 1000 - mostStrangers - 2; ended != want {
		t.Errorf("%d strangers of 1000 were ended, want %d", ended, want)
	}
}

// cuttable is a connection whose writes vanish once cut is closed.
type cuttable struct {
	net.Conn
	cut <-chan struct{}
}

func (c cuttable) Write(p []byte) (int, error) {
	select {
	case <-c.cut:
		return len(p), nil
	default:
		return c.Conn.Write(p)
	}
}

// Close ends the pending calls of this end. The other end does not notice on a cut link.
func (c cuttable) Close() error {
	select {
	case <-c.cut:
		return c.SetDeadline(time.Unix(1, 0))
	default:
		return c.Conn.Close()
	}
}

// Both ends of a cut link notice within 5 s.
func TestHeartbeatsNoticeACutLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cut := make(chan struct{})
		near, far := net.Pipe()
		desk := &nodeDesk{size: 2, roster: newRoster(2, true), patience: patienceOfBeat(heartbeat)}
		desk.lead = newLead(desk.roster, SpawnConfig{}, new(restarts))
		ctx, stop := context.WithCancel(t.Context())
		s := &Server{cfg: ServerConfig{nodes: desk}, ctx: ctx, stop: stop, conns: map[*serverConn]struct{}{}}
		s.start(cuttable{far, cut})
		cfg := DialConfig{Job: launchersJob, Rank: 1, Size: 2, beat: heartbeat}
		c, err := hail(ctx, cfg, cuttable{near, cut})
		if err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Minute) // of the bubble's clock
		if err := c.Set(ctx, "k", nil); err != nil {
			t.Errorf("an idle connection: %v", err)
		}
		close(cut)
		start := time.Now()
		<-c.ended
		<-desk.roster.failed
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("noticed after %v", took)
		}
		if text := fmt.Sprint(c.err, desk.roster.broken()); strings.Count(text, "no heartbeat for 3.5s") != 2 {
			t.Errorf("got %s", text)
		}
		stop()
		s.running.Wait()
		_ = c.Close()
	})
}

func TestSecretIsLongRandomAndPrivate(t *testing.T) {
	for _, text := range []string{NewSecret(), NewSecret() + "\n", "0123456789abcdef0123456789abcdef"} {
		if _, err := ParseSecret([]byte(text)); err != nil {
			t.Error(err)
		}
	}
	for text, want := range map[string]string{
		"": "is empty", " \n": "is empty", "hunter2": "too short: 7 characters", strings.Repeat("abc", 20): "not random: 3 different",
	} {
		if _, err := ParseSecret([]byte(text)); !errors.Is(err, dist.ErrInvalid) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), secretHelp) {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
	}
	dir := t.TempDir()
	file := func(name string, mode os.FileMode, text string) string {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.WriteFile(path, []byte(text), 0o600), os.Chmod(path, mode)); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := file("good", 0o400, NewSecret())
	if s, err := ReadSecret(good); err != nil || fmt.Sprintf("%v %#v", s, s) != "(secret) (secret)" {
		t.Errorf("got %v, %v", s, err)
	}
	for name, tc := range map[string]struct{ path, want string }{
		"group":    {file("group", 0o640, NewSecret()), "mode 0640: chmod 600"},
		"all":      {file("all", 0o604, NewSecret()), "mode 0604"},
		"folder":   {dir, "not a regular file"},
		"absent":   {filepath.Join(dir, "none"), "no such file"},
		"too long": {file("long", 0o600, strings.Repeat(NewSecret(), 100)), "more than 4096 B"},
		"short":    {file("short", 0o600, "x"), "too short"},
	} {
		if _, err := ReadSecret(tc.path); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want %q", name, err, tc.want)
		}
	}
	t.Setenv(secretVar, "")
	t.Setenv(secretFileVar, good)
	if s, err := ReadSecret(""); err != nil || s.none() {
		t.Errorf("%s: got %v, %v", secretFileVar, s, err)
	}
	t.Setenv(secretVar, "short")
	if _, err := ReadSecret(""); err == nil || !strings.Contains(err.Error(), "environment variable SYMGRAD_SECRET: the job secret is too short") {
		t.Errorf("%s: got %v", secretVar, err)
	}
}

func TestAuthorityOfASecretIsTheSameEverywhere(t *testing.T) {
	s := newSecret(t)
	a, errA := s.authority("x")
	b, errB := s.authority("x")
	c, errC := s.authority("y")
	if err := errors.Join(errA, errB, errC); err != nil {
		t.Fatal(err)
	}
	if !a.cert.Equal(b.cert) || a.cert.Equal(c.cert) || a.key.Equal(c.key) {
		t.Error("the authorities of one purpose differ, or those of two are equal")
	}
}

func TestSpawnRefusesWrongNodes(t *testing.T) {
	good := twoNodes(t)
	for want, change := range map[string]func(*SpawnConfig){
		"node 2 of 2: want 0 to 1":                               func(c *SpawnConfig) { c.Node = 2 },
		"node -1 of 2: want 0 to 1":                              func(c *SpawnConfig) { c.Node = -1 },
		"node 1 of 1: want 0 to 0":                               func(c *SpawnConfig) { c.Nodes, c.Node = 1, 1 },
		"node 0 of -1: want 0 to 0":                              func(c *SpawnConfig) { c.Nodes = -1 },
		`store "host": want host:port`:                           func(c *SpawnConfig) { c.Store = "host" },
		"2 nodes need a job secret, in a file or in SYMGRAD_SEC": func(c *SpawnConfig) { c.Secret = Secret{} },
		"wait -1ns":       func(c *SpawnConfig) { c.Wait = -1 },
		"2000000000 node": func(c *SpawnConfig) { c.Nodes = 2e9 },
	} {
		bad := good
		change(&bad)
		if err := bad.Validate(); !errors.Is(err, dist.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
}

func TestStoreNameMustNotBeLoopback(t *testing.T) {
	for _, tc := range []struct {
		asked, actual string
		ok            bool
	}{
		{"host:1", "127.0.1.1:1", false},
		{"host:1", "10.0.0.1:1", true},
		{"127.0.1.1:1", "127.0.1.1:1", true},
		{"localhost:1", "127.0.0.1:1", true},
		{"0.0.0.0:1", "[::]:1", true},
	} {
		if err := checkReachable(tc.asked, tc.actual); (err == nil) != tc.ok {
			t.Errorf("%s at %s: got %v", tc.asked, tc.actual, err)
		}
	}
}
