package launch

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"strconv"
	"time"
)

// maxCredentials bounds the credentials of a rank, since a wrong variable may name any file.
const maxCredentials = 64 << 10

// storeName is the subject of the server's certificate.
const storeName = "symgrad-store"

// lifetime is the validity of credentials: longer than any job, since they end with the launcher's
// memory.
const lifetime = 5 * 365 * 24 * time.Hour

// clockError is the most that the clocks of two hosts of a job may differ, or one be set back.
const clockError = 24 * time.Hour

// authority is a certificate authority of one job. Its key never leaves the memory of launchers.
type authority struct {
	key  ed25519.PrivateKey
	cert *x509.Certificate
	pool *x509.CertPool
}

// rankName returns the subject of a rank's certificate.
func rankName(rank int) string { return "rank-" + strconv.Itoa(rank) }

// nodeName returns the subject of the certificate of a node's launcher.
func nodeName(node int) string { return "node-" + strconv.Itoa(node) }

// newAuthority makes an authority with a random key, for a job of one launcher.
func newAuthority() (*authority, error) { return authorityOf(randomBytes(ed25519.SeedSize)) }

// authorityOf makes the authority of a seed. All launchers with the seed make the same one.
//
// Shapes/units: seed has ed25519.SeedSize bytes.
func authorityOf(seed []byte) (*authority, error) {
	key := ed25519.NewKeyFromSeed(seed)
	public := key.Public().(ed25519.PublicKey)
	t := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "symgrad job"},
		NotBefore: authorityFrom, NotAfter: authorityUntil,
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, t, t, public, key)
	if err != nil {
		return nil, fmt.Errorf("job credentials: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("job credentials: %w", err)
	}
	a := &authority{key: key, cert: cert, pool: x509.NewCertPool()}
	a.pool.AddCert(cert)
	return a, nil
}

// The certificate of an authority is valid at every time that a clock may show, so that launchers
// with one seed make one certificate.
var (
	authorityFrom  = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	authorityUntil = time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)
)

func certTemplate(name string) *x509.Certificate {
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: new(big.Int).SetBytes(randomBytes(16)), Subject: pkix.Name{CommonName: name},
		NotBefore: now.Add(-clockError), NotAfter: now.Add(lifetime),
	}
}

// randomBytes never fails: crypto/rand.Read does not since Go 1.24.
func randomBytes(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b)
	return b
}

// issue makes a key and its certificate.
func (a *authority) issue(name string, usage x509.ExtKeyUsage) (tls.Certificate, error) {
	public, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("job credentials of %s: %w", name, err)
	}
	t := certTemplate(name)
	t.KeyUsage, t.ExtKeyUsage, t.DNSNames = x509.KeyUsageDigitalSignature, []x509.ExtKeyUsage{usage}, []string{name}
	der, err := x509.CreateCertificate(rand.Reader, t, a.cert, public, a.key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("job credentials of %s: %w", name, err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}

// server returns the configuration of the job's store for ranks: TLS 1.3, for clients with a
// certificate of this authority.
func (a *authority) server() (*tls.Config, error) {
	cert, err := a.issue(storeName, x509.ExtKeyUsageServerAuth)
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{cert},
		ClientCAs: a.pool, ClientAuth: tls.RequireAndVerifyClientCert, SessionTicketsDisabled: true,
	}, nil
}

// client returns the configuration of a client that proves name, of a server that proves server.
func (a *authority) client(name, server string) (*tls.Config, error) {
	cert, err := a.issue(name, x509.ExtKeyUsageClientAuth)
	if err != nil {
		return nil, err
	}
	return clientConfig(a.pool, cert, server), nil
}

func clientConfig(pool *x509.CertPool, cert tls.Certificate, server string) *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{cert}, RootCAs: pool, ServerName: server}
}

// rank returns a rank's credentials for the store, as PEM: the authority's certificate, its own,
// and its key.
func (a *authority) rank(rank int) ([]byte, error) {
	cert, err := a.issue(rankName(rank), x509.ExtKeyUsageClientAuth)
	if err != nil {
		return nil, err
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(cert.PrivateKey)
	if err != nil {
		return nil, fmt.Errorf("job credentials of rank %d: %w", rank, err)
	}
	out := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
	out = append(out, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Certificate[0]})...)
	return append(out, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})...), nil
}

// parseCredentials returns the configuration of a client with credentials of authority.rank.
func parseCredentials(data []byte) (*tls.Config, error) {
	var blocks []*pem.Block
	for b, rest := pem.Decode(data); b != nil; b, rest = pem.Decode(rest) {
		blocks = append(blocks, b)
	}
	if len(blocks) != 3 {
		return nil, fmt.Errorf("job credentials: %d PEM blocks in %d B, want 3", len(blocks), len(data))
	}
	ca, err := x509.ParseCertificate(blocks[0].Bytes)
	if err != nil {
		return nil, fmt.Errorf("job credentials: %w", err)
	}
	key, err := x509.ParsePKCS8PrivateKey(blocks[2].Bytes)
	if err != nil {
		return nil, fmt.Errorf("job credentials: %w", err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(ca)
	own := tls.Certificate{Certificate: [][]byte{blocks[1].Bytes}, PrivateKey: key}
	return clientConfig(pool, own, storeName), nil
}
