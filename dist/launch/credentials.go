package launch

import (
	"crypto/ecdsa"
	"crypto/elliptic"
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

// authority is the certificate authority of one job. Its key never leaves the launcher's memory.
type authority struct {
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	pool *x509.CertPool
}

// rankName returns the subject of a rank's certificate.
func rankName(rank int) string { return "rank-" + strconv.Itoa(rank) }

func newAuthority() (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("job credentials: %w", err)
	}
	t := certTemplate("symgrad job")
	t.IsCA, t.BasicConstraintsValid, t.KeyUsage = true, true, x509.KeyUsageCertSign
	t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	der, err := x509.CreateCertificate(rand.Reader, t, t, &key.PublicKey, key)
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

func certTemplate(name string) *x509.Certificate {
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: new(big.Int).SetBytes(randomBytes(16)), Subject: pkix.Name{CommonName: name},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(lifetime), // an hour, for a clock that is set back
	}
}

// randomBytes never fails: crypto/rand.Read does not since Go 1.24.
func randomBytes(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b)
	return b
}

// issue makes a key and its certificate.
func (a *authority) issue(name string, usage x509.ExtKeyUsage) (der []byte, key *ecdsa.PrivateKey, err error) {
	if key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return nil, nil, fmt.Errorf("job credentials of %s: %w", name, err)
	}
	t := certTemplate(name)
	t.KeyUsage, t.ExtKeyUsage, t.DNSNames = x509.KeyUsageDigitalSignature, []x509.ExtKeyUsage{usage}, []string{name}
	if der, err = x509.CreateCertificate(rand.Reader, t, a.cert, &key.PublicKey, a.key); err != nil {
		return nil, nil, fmt.Errorf("job credentials of %s: %w", name, err)
	}
	return der, key, nil
}

// server returns the configuration of the job's store: TLS 1.3, for clients with a certificate of
// this authority.
func (a *authority) server() (*tls.Config, error) {
	der, key, err := a.issue(storeName, x509.ExtKeyUsageServerAuth)
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
		ClientCAs: a.pool, ClientAuth: tls.RequireAndVerifyClientCert, SessionTicketsDisabled: true,
	}, nil
}

// rank returns a rank's credentials for the store, as PEM: the authority's certificate, its own,
// and its key.
func (a *authority) rank(rank int) ([]byte, error) {
	der, key, err := a.issue(rankName(rank), x509.ExtKeyUsageClientAuth)
	if err != nil {
		return nil, err
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("job credentials of rank %d: %w", rank, err)
	}
	out := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
	out = append(out, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})...)
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
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{{Certificate: [][]byte{blocks[1].Bytes}, PrivateKey: key}},
		RootCAs: pool, ServerName: storeName,
	}, nil
}
