package faults

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/symgrad/symgrad/dist/launch"
	"github.com/symgrad/symgrad/internal/net/hosttest"
)

// guest is the role of a program on a host that is not part of the job.
type guest struct {
	Store       string   // where it tries to join; "" for nowhere
	Addresses   []string // where it connects and sends garbage
	Connections int      // to each address
}

// quietTime is the time in which a guest waits for bytes.
const quietTime = 500 * time.Millisecond

// playGuest connects, prints ready, and keeps the connections until the end of its input. It then
// prints the number of bytes that it got, except alerts of TLS.
func playGuest(arg []byte) int {
	var g guest
	if err := json.Unmarshal(arg, &g); err != nil {
		return failed(err)
	}
	if g.Store != "" {
		cfg := launch.DialConfig{
			Address: g.Store, Job: "symgrad launchers", Rank: 1, Size: 2,
			TLS: &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13}, //nolint:gosec // an intruder
		}
		if _, err := launch.Dial(context.Background(), cfg); err == nil {
			return failed(errors.New("joined without a secret"))
		}
	}
	var conns []net.Conn
	for _, address := range g.Addresses {
		for i := range g.Connections {
			conn, err := net.Dial("tcp", address)
			if err != nil {
				return failed(err)
			}
			conns = append(conns, conn)
			_, _ = conn.Write(garbage(i)) // the other end may have ended it
		}
	}
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin)
	got := 0
	for _, conn := range conns {
		if conn.SetReadDeadline(time.Now().Add(quietTime/time.Duration(len(conns)))) == nil {
			if b, _ := io.ReadAll(conn); len(b) != alertBytes || b[0] != alert {
				got += len(b)
			}
		}
	}
	fmt.Println("got", got)
	return 0
}

// A TLS server answers garbage by an alert, a record of type 21 with 2 bytes after its head.
const (
	alert      = 21
	alertBytes = 7
)

// garbage returns bytes that are no message: none, text, and random ones.
func garbage(i int) []byte {
	switch i % 3 {
	case 0:
		return nil
	case 1:
		return []byte("GET / HTTP/1.1\r\n\r\n")
	}
	b := make([]byte, 1+i%1000)
	for j := range b {
		b[j] = byte(rand.Uint32())
	}
	return b
}

// visit starts a guest on host 2. leave ends it, and returns the number of bytes that it got.
func (j *job) visit(g guest) (leave func() int) {
	j.t.Helper()
	words := j.own("guest", g)
	cmd := j.h.Command(2, words[0], words[1:]...)
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	cmd.Stderr = os.Stderr
	if err := errors.Join(err1, err2, cmd.Start()); err != nil {
		j.t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	if line, err := lines.ReadString('\n'); line != "ready\n" {
		j.t.Fatalf("a guest: %q, %v", line, err)
	}
	return func() int {
		j.t.Helper()
		in.Close()
		line, err := lines.ReadString('\n')
		var got int
		if _, scan := fmt.Sscanf(line, "got %d", &got); scan != nil {
			j.t.Fatalf("a guest: %q, %v", line, err)
		}
		if err := cmd.Wait(); err != nil {
			j.t.Error(err)
		}
		return got
	}
}

// listeners returns the addresses at which a host listens for others, except the store and the
// harness.
func (j *job) listeners(host int) []string {
	j.t.Helper()
	var found []string
	for _, port := range j.ports(host, listening) {
		if port > 1000 && port != storePort {
			found = append(found, net.JoinHostPort(j.h.Addr(host), strconv.Itoa(port)))
		}
	}
	return found
}

// TestHostStranger has a host without the secret of the job. It can neither join, nor get anything,
// nor hinder the job.
func TestHostStranger(t *testing.T) {
	t.Parallel()
	j := newJob(t, allreduce, noRank, 1)
	l := launcher{Nodes: 2, N: perHost, Store: j.h.Name(0) + ":29500", Secret: secretOf("0123456789abcdef"), Program: j.own("rank", j.rank)}
	j.run(0, j.own("launcher", l))
	for !slices.Contains(j.ports(0, listening), storePort) { // the launcher starts
	}
	forged := l
	forged.Node, forged.Secret = 1, secretOf("fedcba9876543210")
	words := j.own("launcher", forged)
	if out, err := j.h.Command(2, words[0], words[1:]...).CombinedOutput(); err == nil || !strings.Contains(string(out), "has another job secret") {
		t.Errorf("another secret: %v\n%s", err, out)
	}
	store := net.JoinHostPort(j.h.Addr(0), strconv.Itoa(storePort))
	flood := j.visit(guest{Store: store, Addresses: []string{store}, Connections: 1000})
	l.Node = 1
	j.run(1, j.own("launcher", l))
	all := []int{0, 1, 2, 3}
	j.await(0, all, began)
	since := len(j.seen)
	wires := slices.Concat(j.listeners(0), j.listeners(1))
	if len(wires) < len(all) {
		t.Errorf("%d ranks listen at %v", len(all), wires)
	}
	noise := j.visit(guest{Addresses: wires, Connections: 30})
	j.await(since, all, step)
	if got := flood() + noise(); got > 0 {
		t.Errorf("guests got %d bytes", got)
	}
	for _, rank := range all {
		j.tell(rank, finish)
	}
	for host, p := range j.launchers {
		if code := j.exit(p); code != 0 {
			t.Errorf("the launcher of host %d ends with code %d", host, code)
		}
	}
	if t.Failed() {
		t.Log(j.state())
	}
	hosttest.Record(t, "symgrad run/stranger", 0, versions)
}

// secretOf returns a secret of 64 characters.
func secretOf(sixteen string) string { return strings.Repeat(sixteen, 4) }
