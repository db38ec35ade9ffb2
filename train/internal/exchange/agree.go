package exchange

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/symgrad/symgrad/dist"
)

// Done waits for a collective.
func Done(work dist.Work, err error) error {
	if err != nil {
		return err
	}
	return work.Wait()
}

// Gather returns mine of every rank, by rank. Lengths may differ.
//
// Collective: all ranks.
func Gather(k *Values, name string, mine []byte) ([][]byte, error) {
	lengths, err := Every(k, name, []int64{int64(len(mine))})
	if err != nil {
		return nil, err
	}
	room := int(slices.Max(lengths))
	padded := make([]byte, room)
	copy(padded, mine)
	all, err := Every(k, name, padded)
	if err != nil {
		return nil, err
	}
	parts := make([][]byte, len(lengths))
	for r := range parts {
		parts[r] = all[r*room:][:lengths[r]]
	}
	return parts, nil
}

// ErrDiffer is matched by errors of ranks that have different values where all must have the same.
var ErrDiffer = errors.New("ranks differ")

// Agree compares facts: lines that must be equal on all ranks.
//
// Collective: all ranks. Errors: ErrDiffer, with the first different line of each rank that differs
// from rank 0.
func Agree(k *Values, facts []string) error {
	text := strings.Join(facts, "\n")
	digest := sha256.Sum256([]byte(text))
	digests, err := Gather(k, "digest of the settings", digest[:])
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(digests, func(d []byte) bool { return !bytes.Equal(d, digests[0]) }) {
		return nil
	}
	texts, err := Gather(k, "settings", []byte(text))
	if err != nil {
		return err
	}
	var differences []string
	for r, t := range texts {
		if a, b, ok := difference(string(texts[0]), string(t)); ok {
			differences = append(differences, fmt.Sprintf("rank 0 has %q, rank %d has %q", a, r, b))
		}
	}
	return fmt.Errorf("%w: %s; give all ranks the same --config, --set, environment and data",
		ErrDiffer, strings.Join(differences, "; "))
}

// difference returns the first line in which two texts differ, in both versions.
func difference(a, b string) (inA, inB string, ok bool) {
	x, y := strings.Split(a, "\n"), strings.Split(b, "\n")
	for i := range max(len(x), len(y)) {
		inA, inB = "nothing more", "nothing more"
		if i < len(x) {
			inA = x[i]
		}
		if i < len(y) {
			inB = y[i]
		}
		if inA != inB {
			return inA, inB, true
		}
	}
	return "", "", false
}

// Same compares the digests that the ranks have of something that must be equal on all ranks.
//
// Collective: all ranks. Errors: ErrDiffer, naming the ranks that differ from rank 0.
func Same(k *Values, name string, digest []byte) error {
	digests, err := Gather(k, "digest of the "+name, digest)
	if err != nil {
		return err
	}
	var others []string
	for r, d := range digests {
		if !bytes.Equal(d, digests[0]) {
			others = append(others, fmt.Sprintf("rank %d has %x", r, d))
		}
	}
	if len(others) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s: rank 0 has %x, %s", ErrDiffer, name, digests[0], strings.Join(others, ", "))
}
