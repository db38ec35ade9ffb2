//go:build linux

package launch

import (
	"encoding/hex"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/symgrad/symgrad/dist"
)

func randomHex() string { return hex.EncodeToString(randomBytes(8)) }

// connect opens a connection to j that sends the test's bytes.
func connect(t *testing.T, j *testJob) net.Conn {
	t.Helper()
	conn, err := net.Dial(network(j.Address()), j.Address())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func send(t *testing.T, conn net.Conn, data []byte) {
	t.Helper()
	if _, err := conn.Write(data); err != nil {
		t.Fatal(err)
	}
}

// A peer that ends before its hello is no rank: scanners, health checks, a browser.
func TestStrangersHarmNothing(t *testing.T) {
	j := networks["tcp"](t, 1)
	a := j.join(t, 0)
	for name, says := range map[string][]byte{
		"nothing":        nil,
		"another tongue": []byte("GET / HTTP/1.1\r\n\r\n"),
		"half a frame":   {0, 0, 0, 20, 1},
		"no hello":       appendFrame(nil, frame{kind: opSet, id: 1, key: "k", value: []byte("stranger")}),
		"a huge hello":   appendFrame(nil, frame{kind: opHello, id: 1, key: helloKey, value: make([]byte, maxHelloBytes)}),
	} {
		conn := connect(t, j)
		send(t, conn, says)
		_ = conn.(*net.TCPConn).CloseWrite() // the server may have ended it already
		answer, err := io.ReadAll(conn)      // until the server has ended it
		if f, frameErr := readFrame(strings.NewReader(string(answer)), maxFrameBytes); frameErr == nil && f.kind == replyOK {
			t.Errorf("%s: the server said yes (%v)", name, err)
		}
		if err := a.Set(t.Context(), "k", []byte(name)); err != nil {
			t.Fatal(err)
		}
		if v, err := a.Get(t.Context(), "k"); string(v) != name || err != nil {
			t.Errorf("%s: got %q, %v afterwards", name, v, err)
		}
	}
}

// A rank that sends a malformed request counts as dead, and all ranks learn the reason.
func TestMalformedRequestsAreTheDeathOfTheirRank(t *testing.T) {
	for name, says := range map[string][]byte{
		"an unknown kind":  appendFrame(nil, frame{kind: 99, id: 2}),
		"a second hello":   appendFrame(nil, frame{kind: opHello, id: 2, key: helloKey, value: hello{1, 2, "job"}.encode()}),
		"a frame too long": {0xff, 0xff, 0xff, 0xff, opSet, 0, 0, 0, 2, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			j := networks["tcp"](t, 2)
			a := j.join(t, 0)
			conn := connect(t, j)
			send(t, conn, appendFrame(nil, frame{kind: opHello, id: 1, key: helloKey, value: hello{1, 2, "job"}.encode()}))
			send(t, conn, says)
			_, err := a.Get(t.Context(), "never")
			wantDeath(t, err, 1, "malformed frame")
		})
	}
}

func TestWrongRequestsAreAnswered(t *testing.T) {
	j := networks["tcp"](t, 1)
	conn := connect(t, j)
	send(t, conn, appendFrame(nil, frame{kind: opHello, id: 1, key: helloKey, value: hello{0, 1, "job"}.encode()}))
	for i, tc := range []struct {
		f    frame
		want error
	}{
		{frame{kind: opHello, id: 1}, nil}, // the answer to the hello above
		{frame{kind: opAdd, id: 2, key: "n", value: []byte{1}}, dist.ErrInvalid},
		{frame{kind: opSet, id: 3}, dist.ErrInvalid},
		{frame{kind: opCancel, id: 4}, nil},
		{frame{kind: opAdd, id: 5, key: "n", value: make([]byte, 8)}, nil},
	} {
		if i > 0 {
			send(t, conn, appendFrame(nil, tc.f))
		}
		if tc.f.kind == opCancel {
			continue // has no answer
		}
		reply, err := readFrame(conn, maxFrameBytes)
		if err != nil || reply.id != tc.f.id || !errors.Is(reply.asError(), tc.want) {
			t.Errorf("request %d: got %+v, %v, want %v", tc.f.id, reply, err, tc.want)
		}
	}
}

func TestTooManyWaitingRequestsAreRefused(t *testing.T) {
	j := networks["tcp"](t, 1)
	conn := connect(t, j)
	requests := appendFrame(nil, frame{kind: opHello, id: 1, key: helloKey, value: hello{0, 1, "job"}.encode()})
	for id := range uint32(pendingMax) {
		requests = appendFrame(requests, frame{kind: opGet, id: 2 + id, key: "never"})
	}
	requests = appendFrame(requests, frame{kind: opGet, id: 2, key: "never"})
	send(t, conn, requests)
	for _, want := range []error{nil, dist.ErrInvalid} {
		reply, err := readFrame(conn, maxFrameBytes)
		if err != nil || !errors.Is(reply.asError(), want) {
			t.Fatalf("got %+v, %v, want %v", reply, err, want)
		}
	}
	for id := range uint32(pendingMax) {
		send(t, conn, appendFrame(nil, frame{kind: opCancel, id: 2 + id}))
	}
	send(t, conn, appendFrame(nil, frame{kind: opSet, id: 1, key: "k"}))
	if reply, err := readFrame(conn, maxFrameBytes); err != nil || reply.id != 1 || reply.asError() != nil {
		t.Errorf("got %+v, %v after the cancels", reply, err)
	}
}

func TestServerClosesBesideAStrangerThatIsSilent(t *testing.T) {
	j := networks["tls"](t, 1)
	conn := connect(t, j)
	a := j.join(t, 0) // accepted after the stranger
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if n, err := conn.Read(make([]byte, 1)); err == nil {
		t.Errorf("the stranger got %d B", n)
	}
	if err := a.Set(t.Context(), "k", nil); !errors.Is(err, dist.ErrClosed) {
		t.Errorf("got %v, want dist.ErrClosed", err)
	}
}

// Whatever a client sends, the server answers or ends the connection, and closes in the end.
func FuzzServerRequests(f *testing.F) {
	f.Add(appendFrame(appendFrame(nil, frame{kind: opSet, id: 2, key: "k"}), frame{kind: opGet, id: 3, key: "k"}))
	f.Add(appendFrame(appendFrame(nil, frame{kind: opGet, id: 2, key: "k"}), frame{kind: opCancel, id: 2}))
	f.Add(appendFrame(appendFrame(nil, frame{kind: opMeet, id: 2}), frame{kind: opMissing, id: 2}))
	f.Add(appendFrame(appendFrame(nil, frame{kind: opAdd, id: 2, key: "n", value: make([]byte, 8)}), frame{kind: opGoodbye}))
	f.Add([]byte{0, 0, 0, 7, 99, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, requests []byte) {
		s, err := Listen(ServerConfig{Job: "job", Size: 2})
		if err != nil {
			t.Fatal(err)
		}
		client, server := net.Pipe()
		s.start(server)
		replies := make(chan struct{})
		go func() {
			defer close(replies)
			_, _ = io.Copy(io.Discard, client) // until the server ends it
		}()
		// The server may end the connection at any point: unread bytes then cause an error here.
		_, _ = client.Write(appendFrame(nil, frame{kind: opHello, id: 1, key: helloKey, value: hello{0, 2, "job"}.encode()}))
		_, _ = client.Write(requests)
		client.Close()
		<-replies
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// impostor accepts the hello of one client, and then replies to each request with answer's result,
// until that is nil.
func impostor(t *testing.T, answer func(request frame) []byte) *Client {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		for say := []byte(nil); ; {
			f, err := readFrame(conn, maxFrameBytes)
			if err != nil {
				return
			}
			if f.kind == opHello {
				say = appendFrame(nil, frame{kind: replyOK, id: f.id})
			} else if say = answer(f); say == nil {
				return
			}
			if _, err := conn.Write(say); err != nil {
				return
			}
		}
	}()
	c, err := Dial(t.Context(), DialConfig{Address: listener.Addr().String(), Job: "job", Size: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(c.Close(), listener.Close()); err != nil {
			t.Error(err)
		}
		<-served
	})
	return c
}

func TestClientTakesNoNonsenseFromAServer(t *testing.T) {
	for _, tc := range []struct {
		name   string
		answer func(frame) []byte
		want   string
	}{
		{"a sum of no length", func(f frame) []byte { return appendFrame(nil, frame{kind: replyOK, id: f.id}) }, "reply of 0 B"},
		{"an unknown kind", func(f frame) []byte { return appendFrame(nil, frame{kind: 7, id: f.id}) }, "malformed reply: kind 7"},
		{"a death without a rank", func(f frame) []byte { return appendFrame(nil, frame{kind: replyDied, id: f.id}) }, "malformed reply"},
		{"no frame", func(frame) []byte { return []byte("HTTP/1.1 400 Bad Request\r\n\r\n") }, "the launcher is gone: connection broken: malformed frame"},
		{"silence", func(frame) []byte { return nil }, "the launcher is gone: connection closed"},
		{"an answer to nobody first", func(f frame) []byte {
			return appendFrame(appendFrame(nil, frame{kind: replyOK, id: 77}), frame{kind: replyInvalid, id: f.id, value: []byte("no")})
		}, `store add "n": no`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := impostor(t, tc.answer)
			if n, err := c.Add(t.Context(), "n", 1); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %d, %v, want %q", n, err, tc.want)
			}
		})
	}
}

// A rank on another host than the store's learns of the loss of that host by heartbeats.
func TestSilentStoreIsTheLossOfRank0(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	served := make(chan net.Conn, 1)
	go func() {
		conn, err := listener.Accept()
		if err == nil {
			if f, err := readFrame(conn, maxFrameBytes); err == nil {
				_, _ = conn.Write(appendFrame(nil, frame{kind: replyOK, id: f.id}))
			}
		}
		served <- conn
	}()
	c, err := Dial(t.Context(), DialConfig{Address: listener.Addr().String(), Job: "job", Rank: 1, Size: 2, beat: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	conn := <-served
	defer conn.Close()
	_, err = c.Get(t.Context(), "never")
	wantDeath(t, err, 0, "the launcher of its host at "+listener.Addr().String()+" is lost: no heartbeat")
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

func TestDescribeLossSaysWhatAUserKnows(t *testing.T) {
	for _, tc := range []struct {
		err  error
		want string
	}{
		{io.EOF, "connection closed"},
		{io.ErrUnexpectedEOF, "connection closed"},
		{&net.OpError{Op: "read", Err: syscall.ECONNRESET}, "connection closed"},
		{errors.New("odd"), "connection broken: odd"},
	} {
		if got := describeLoss(tc.err); got != tc.want {
			t.Errorf("%v: got %q, want %q", tc.err, got, tc.want)
		}
	}
}

// A unix socket refuses who comes when its queue is full; with TCP the kernel tries again.
func TestFullQueueMayBeOverSoon(t *testing.T) {
	name := socketName()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: name}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Listen(fd, 0); err != nil { // a queue of one
		t.Fatal(err)
	}
	first, err := net.Dial("unix", name)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	_, err = dialOnce(t.Context(), DialConfig{Address: name, Job: "job", Rank: 1, Size: 2, ByRank0: true})
	if !errors.Is(err, syscall.EAGAIN) || !passing(err) {
		t.Errorf("got %v, want a full queue, and that ranks dial again", err)
	}
}
