package train

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

// done waits for a collective.
func done(work dist.Work, err error) error {
	if err != nil {
		return err
	}
	return work.Wait()
}

// sum makes v the sum of all ranks' v, added in the order of ranks.
//
// Collective: all ranks, one length.
func sum[T tensor.Element](w *dist.World, name string, v []T) error {
	return done(w.Named(name).AllReduce(tensor.Of(v), tensor.Of(v), dist.Sum))
}

// gather is every rank's mine, by rank. They may differ in length.
//
// Collective: all ranks.
func gather(w *dist.World, name string, mine []byte) ([][]byte, error) {
	g := w.Named(name)
	lengths := make([]int64, w.Size())
	if err := done(g.AllGather(tensor.Of(lengths), tensor.Of([]int64{int64(len(mine))}))); err != nil {
		return nil, err
	}
	room := int(slices.Max(lengths))
	padded, all := make([]byte, room), make([]byte, room*w.Size())
	copy(padded, mine)
	if err := done(g.AllGather(tensor.Of(all), tensor.Of(padded))); err != nil {
		return nil, err
	}
	parts := make([][]byte, w.Size())
	for r := range parts {
		parts[r] = all[r*room:][:lengths[r]]
	}
	return parts, nil
}

var errDiffer = errors.New("ranks differ")

// agree compares facts, lines that all ranks must have alike.
//
// Collective: all ranks. Errors: errDiffer, naming for each rank that differs from rank 0 the first line in which it does.
func agree(w *dist.World, facts []string) error {
	text := strings.Join(facts, "\n")
	digest := sha256.Sum256([]byte(text))
	digests, err := gather(w, "digest of the settings", digest[:])
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(digests, func(d []byte) bool { return !bytes.Equal(d, digests[0]) }) {
		return nil
	}
	texts, err := gather(w, "settings", []byte(text))
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
		errDiffer, strings.Join(differences, "; "))
}

// difference is the first line in which two texts differ, as each has it.
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

// sameParams compares the digests of the final parameters.
//
// Collective: all ranks. Errors: errDiffer, naming the ranks that differ from rank 0.
func sameParams(w *dist.World, digest []byte) error {
	digests, err := gather(w, "digest of the parameters", digest)
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
	return fmt.Errorf("%w: parameters: rank 0 has %x, %s", errDiffer, digests[0], strings.Join(others, ", "))
}
