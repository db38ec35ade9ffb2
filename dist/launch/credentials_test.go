//go:build linux

package launch

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/symgrad/symgrad/dist"
)

func TestServerTakesOnlyCertificatesOfItsJob(t *testing.T) {
	j, other := networks["tls"](t, 2), networks["tls"](t, 2)
	own := j.config(t, 0)
	bare := own.TLS.Clone()
	bare.Certificates = nil
	trusting := clientTLS(t, other.ca, 0)
	trusting.InsecureSkipVerify = true
	old := own.TLS.Clone()
	old.MaxVersion, old.MinVersion = tls.VersionTLS12, tls.VersionTLS12
	for name, tc := range map[string]struct {
		tls  *tls.Config
		says string
	}{
		"another job's authority":         {clientTLS(t, other.ca, 0), "not of one job"},
		"another job's, trusting anybody": {trusting, "not of one job"},
		"no certificate":                  {bare, "not of one job"},
		"another rank's certificate":      {clientTLS(t, j.ca, 1), "rank 0 with the certificate of rank-1"},
		"TLS 1.2":                         {old, "not of one job"},
		"no TLS":                          {nil, "no answer to hello"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := own
			cfg.TLS = tc.tls
			c, err := Dial(t.Context(), cfg)
			if err == nil {
				c.Close()
				t.Fatal("joined")
			}
			if !strings.Contains(err.Error(), tc.says) {
				t.Errorf("got %v, want %q", err, tc.says)
			}
		})
	}
	if _, err := j.join(t, 0).Add(t.Context(), "n", 1); err != nil {
		t.Errorf("the right certificate: %v", err)
	}
}

// The certificate of a rank does not make a server: a rank cannot pose as the launcher.
func TestRanksCannotServe(t *testing.T) {
	ca, err := newAuthority()
	if err != nil {
		t.Fatal(err)
	}
	pose := clientTLS(t, ca, 1)
	pose.ClientAuth, pose.ClientCAs = tls.RequireAndVerifyClientCert, ca.pool
	s, err := Listen(ServerConfig{Job: "job", Size: 2, TLS: pose})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	_, err = Dial(t.Context(), DialConfig{Address: s.Address(), Job: "job", Size: 2, TLS: clientTLS(t, ca, 0)})
	var refused *tls.CertificateVerificationError
	if !errors.As(err, &refused) {
		t.Errorf("got %v, want a refused certificate", err)
	}
}

func TestParseCredentialsRefusesWhatTheLauncherDidNotWrite(t *testing.T) {
	ca, err := newAuthority()
	if err != nil {
		t.Fatal(err)
	}
	secret, err := ca.rank(0)
	if err != nil {
		t.Fatal(err)
	}
	text := string(secret)
	key := text[strings.Index(text, "-----BEGIN PRIVATE KEY"):]
	for name, data := range map[string]string{
		"nothing":           "",
		"text":              "hello",
		"no key":            strings.TrimSuffix(text, key),
		"key in front":      key + strings.TrimSuffix(text, key),
		"three keys":        key + key + key,
		"a damaged key":     strings.Replace(text, key[30:60], strings.Repeat("A", 30), 1),
		"certificates only": strings.Repeat(strings.TrimSuffix(text, key)[:strings.Index(text, "-----END")+26], 3),
	} {
		if cfg, err := parseCredentials([]byte(data)); err == nil {
			t.Errorf("%s: got %v", name, cfg)
		}
	}
	if _, err := parseCredentials(secret); err != nil {
		t.Error(err)
	}
}

func TestPeerOfAnotherUserIsRefused(t *testing.T) {
	if err := checkUID(1000, 1000); err != nil {
		t.Error(err)
	}
	if err := checkUID(1001, 1000); !errors.Is(err, dist.ErrInvalid) || !strings.Contains(err.Error(), "user 1001, not 1000") {
		t.Errorf("got %v", err)
	}
}

// A process of another user that finds the socket is a stranger to the server, and the server to
// it.
func TestUnixSocketsAreForOneUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to be another user for a moment")
	}
	j := networks["unix"](t, 1)
	asNobody(t, func() {
		if _, err := Dial(t.Context(), j.config(t, 0)); !errors.Is(err, dist.ErrInvalid) || !strings.Contains(err.Error(), "user 0, not 65534") {
			t.Errorf("nobody dialled: got %v", err)
		}
		conn := connect(t, j)
		_, writeErr := conn.Write(appendFrame(nil, frame{kind: opHello, id: 1, key: helloKey, value: hello{0, 1, "job"}.encode()}))
		if answer, err := io.ReadAll(conn); len(answer) > 0 {
			t.Errorf("the server answered nobody: %q (%v, %v)", answer, writeErr, err)
		}
	})
	j.join(t, 0)
	address := socketName()
	var listener net.Listener
	asNobody(t, func() {
		var err error
		if listener, err = net.Listen("unix", address); err != nil {
			t.Error(err)
		}
	})
	if listener == nil {
		t.FailNow()
	}
	defer listener.Close()
	_, err := Dial(t.Context(), DialConfig{Address: address, Size: 1, ByRank0: true})
	if !errors.Is(err, dist.ErrInvalid) || !strings.Contains(err.Error(), "belongs to user 65534") {
		t.Errorf("dialled nobody: got %v", err)
	}
}

// asNobody runs do on a thread of the user "nobody". Credentials belong to threads; the thread ends
// with the goroutine.
func asNobody(t *testing.T, do func()) {
	const nobody = 65534
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlocked
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, nobody, nobody, nobody); errno != 0 {
			t.Error(errno)
			return
		}
		do()
	}()
	<-done
}
