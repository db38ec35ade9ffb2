package launch

import (
	"bytes"
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"os"

	"github.com/symgrad/symgrad/dist"
)

// Limits of a job secret. 32 characters have 128 bits in hexadecimal and more in other encodings.
// A random one of that length has fewer than 8 different characters with a probability of 4e-8.
const (
	leastSecret     = 32
	leastDifferent  = 8
	mostSecretBytes = 4 << 10
)

// secretHelp is the remedy of errors about job secrets.
const secretHelp = "symgrad secret > FILE makes one, for all hosts"

// Secret is the secret of a job on several hosts, by which its launchers recognize each other. It
// never travels. The zero value is no secret.
//
// The holder of a certificate of the job can test guesses of the secret on its own machine, so a
// secret must be random.
type Secret struct{ text string }

// NewSecret makes a random secret of 256 bits.
//
// Returns: its text, for ParseSecret.
func NewSecret() string { return base64.RawURLEncoding.EncodeToString(randomBytes(32)) }

// ParseSecret takes a secret as text, without the white space around it.
//
// Errors: dist.ErrInvalid for a text that cannot have 128 random bits.
func ParseSecret(text []byte) (Secret, error) {
	text = bytes.TrimSpace(text)
	different := map[byte]bool{}
	for _, c := range text {
		different[c] = true
	}
	switch {
	case len(text) == 0:
		return Secret{}, fmt.Errorf("the job secret is empty: %s: %w", secretHelp, dist.ErrInvalid)
	case len(text) < leastSecret:
		return Secret{}, fmt.Errorf("the job secret is too short: %d characters, want at least %d with 128 random bits; %s: %w",
			len(text), leastSecret, secretHelp, dist.ErrInvalid)
	case len(different) < leastDifferent:
		return Secret{}, fmt.Errorf("the job secret is not random: %d different characters; %s: %w", len(different), secretHelp, dist.ErrInvalid)
	}
	return Secret{string(text)}, nil
}

// ReadSecret reads the job secret from a file, or for "" from the environment variable
// SYMGRAD_SECRET, or from the file that SYMGRAD_SECRET_FILE names.
//
// Returns: the zero Secret if there is none. Errors: dist.ErrInvalid for a file that other users
// may read, and for a weak secret; those of the file.
func ReadSecret(file string) (Secret, error) {
	if file != "" {
		return readSecretFile(file)
	}
	return secretOf(newVars(os.Environ()))
}

// secretOf reads the job secret that an environment has or names.
func secretOf(v vars) (Secret, error) {
	if text := v[secretVar]; text != "" {
		s, err := ParseSecret([]byte(text))
		if err != nil {
			return Secret{}, fmt.Errorf("environment variable %s: %w", secretVar, err)
		}
		return s, nil
	}
	if file := v[secretFileVar]; file != "" {
		return readSecretFile(file)
	}
	return Secret{}, nil
}

func readSecretFile(name string) (Secret, error) {
	f, err := os.Open(name)
	if err != nil {
		return Secret{}, fmt.Errorf("job secret: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return Secret{}, fmt.Errorf("job secret: %w", err)
	case !info.Mode().IsRegular():
		return Secret{}, fmt.Errorf("job secret: %s is not a regular file: %w", name, dist.ErrInvalid)
	case info.Mode().Perm()&0o077 != 0:
		return Secret{}, fmt.Errorf("job secret: other users may use %s, mode %04o: chmod 600 %s (Kubernetes: defaultMode: 0400): %w",
			name, info.Mode().Perm(), name, dist.ErrInvalid)
	}
	text, err := io.ReadAll(io.LimitReader(f, mostSecretBytes+1))
	if err != nil {
		return Secret{}, fmt.Errorf("job secret: %w", err)
	}
	if len(text) > mostSecretBytes {
		return Secret{}, fmt.Errorf("job secret: %s has more than %d B: %w", name, mostSecretBytes, dist.ErrInvalid)
	}
	s, err := ParseSecret(text)
	if err != nil {
		return Secret{}, fmt.Errorf("%s: %w", name, err)
	}
	return s, nil
}

// none reports whether s is no secret.
func (s Secret) none() bool { return s.text == "" }

// String hides the secret.
func (s Secret) String() string {
	if s.none() {
		return "none"
	}
	return "(secret)"
}

// GoString hides the secret.
func (s Secret) GoString() string { return s.String() }

// The purposes of authorities. A job's id follows that of ranks.
const (
	launchersPurpose = "launchers"
	ranksPurpose     = "ranks of "
)

// authority derives the certificate authority of one purpose, by HKDF with SHA-256 (RFC 5869). The
// launchers' purpose is fixed; that of ranks contains the job id, so that their certificates end
// with the job.
func (s Secret) authority(purpose string) (*authority, error) {
	seed, err := hkdf.Key(sha256.New, []byte(s.text), nil, "symgrad job authority 1: "+purpose, ed25519.SeedSize)
	if err != nil {
		return nil, fmt.Errorf("job credentials: %w", err)
	}
	return authorityOf(seed)
}
