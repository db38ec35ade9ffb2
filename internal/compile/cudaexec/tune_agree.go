package cudaexec

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/dl"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
)

// trial is the candidates for a product or a convolution, as this rank has timed them.
type trial struct {
	what  string            // name of the product or convolution
	names []string          // of candidates, equal on ranks with the same library and kind of GPU
	took  []float32         // ns, by candidate; 0 for a candidate that fails here
	take  func(i int) error // makes candidate i the current one
	worst float32           // ns of the candidate that was taken, on the slowest rank; 0 if none works on all ranks
}

// newTrial returns a trial of candidates with their times.
func newTrial(what string, names []string, took []time.Duration, take func(i int) error) *trial {
	t := &trial{what: what, names: names, took: make([]float32, len(took)), take: take}
	for i, d := range took {
		t.took[i] = float32(d)
	}
	return t
}

// timesOf returns the times of all candidates of a list of trials, one trial after the other.
func timesOf(list []*trial) []float32 {
	var all []float32
	for _, t := range list {
		all = append(all, t.took...)
	}
	return all
}

// takeLeast takes the candidate with the least time in each trial. times has the order of timesOf.
// A trial in which no candidate works stays as it is.
func takeLeast(list []*trial, times []float32) error {
	for _, t := range list {
		own := times[:len(t.took)]
		times = times[len(t.took):]
		best := least(own)
		if best < 0 {
			t.worst = 0
			continue
		}
		if err := t.take(best); err != nil {
			return fmt.Errorf("cudaexec: %s: %w", t.what, err)
		}
		t.worst = own[best]
	}
	return nil
}

// least returns the index of the least time, the first among equals, or -1. A time of 0 is a
// candidate that does not work.
func least(times []float32) int {
	best := -1
	for i, t := range times {
		if t > 0 && (best < 0 || t < times[best]) {
			best = i
		}
	}
	return best
}

// The head is the first line that a rank sends to the others, in whole numbers that f32 has
// exactly: the kind of failure, the number of candidates, and a digest of their names.
const (
	headFailure = iota
	headCount
	headDigest
	headLen = headDigest + 8 // 128 bits, 16 in each
)

// headOf returns the head of a rank with these trials, or this error.
func headOf(list []*trial, err error) []float32 {
	head := make([]float32, headLen)
	head[headFailure] = failureOf(err)
	hash := sha256.New()
	for _, t := range list {
		head[headCount] += float32(len(t.took))
		fmt.Fprintf(hash, "%q %q\n", t.what, t.names)
	}
	sum := hash.Sum(nil)
	for i := headDigest; i < headLen; i++ {
		head[i] = float32(binary.LittleEndian.Uint16(sum[2*(i-headDigest):]))
	}
	return head
}

// failures are the errors that a head can name.
var failures = [...]error{cuda.ErrMemory, dl.ErrUnsupported, dl.ErrNotFound, dist.ErrInvalid}

// failureOf encodes err as a number: 0 for none.
func failureOf(err error) float32 {
	switch i := slices.IndexFunc(failures[:], func(s error) bool { return errors.Is(err, s) }); {
	case err == nil:
		return 0
	case i >= 0:
		return float32(2 + i)
	}
	return 1
}

// failed returns the error of the first rank whose line starts with a failure, or nil.
//
// Errors: one that matches the error of failures that the rank has.
func failed(lines [][]float32, ranks []int) error {
	for r, line := range lines {
		n := int(line[headFailure])
		if n == 0 {
			continue
		}
		err := fmt.Errorf("rank %d cannot load it: see its own error", ranks[r])
		if n >= 2 && n < 2+len(failures) {
			err = fmt.Errorf("%w: %w", err, failures[n-2])
		}
		return err
	}
	return nil
}

// merge returns the times on the slowest of the ranks with this rank's head. A candidate that fails
// on one of them has 0.
func merge(own []float32, head []float32, heads, all [][]float32) []float32 {
	worst := slices.Clone(own)
	for r, line := range all {
		if !slices.Equal(heads[r], head) {
			continue
		}
		for i, t := range worst {
			if t == 0 || line[i] == 0 {
				worst[i] = 0
			} else {
				worst[i] = max(t, line[i])
			}
		}
	}
	return worst
}

// circle is a group of ranks that exchange numbers.
type circle struct {
	ranks []int // in the world

	// gather returns the numbers of all ranks, by rank of the group. Collective: all ranks, with
	// equal lengths.
	gather func(own []float32) ([][]float32, error)
}

// council is the ranks of a program, in circles. It has none if the program has no groups, or if
// nothing is timed. In each circle all ranks do the same number of gathers of the same lengths,
// even after errors, unless a gather itself fails. Results of one circle enter the next: after the
// rows and columns of a full grid all ranks know everything. In a chain of circles a rank learns
// from its neighbours only.
type council struct {
	program string
	circles []circle
	broken  bool // a gather has failed, so another one would too
}

// slowest returns the times of list, in the order of timesOf, on the slowest rank with the same
// list.
//
// Collective: all ranks, also one with an error. Errors: err; on other ranks one that names a rank
// with an error.
func (c *council) slowest(list []*trial, err error) ([]float32, error) {
	worst := timesOf(list)
	for _, g := range c.circles {
		head := headOf(list, err)
		heads, e := g.gather(head)
		if e != nil {
			c.broken = true
			return nil, errors.Join(err, c.wrong(e))
		}
		if e := failed(heads, g.ranks); e != nil {
			if err == nil {
				err = c.wrong(e)
			}
			continue
		}
		most := 0
		for _, h := range heads {
			most = max(most, int(h[headCount]))
		}
		if most == 0 {
			continue
		}
		all, e := g.gather(append(slices.Clone(worst), make([]float32, most-len(worst))...))
		if e != nil {
			c.broken = true
			return nil, errors.Join(err, c.wrong(e))
		}
		worst = merge(worst, head, heads, all)
	}
	return worst, err
}

// anyone reports whether yes is true on any rank.
//
// Collective: all ranks, also one with an error. Errors: as of slowest.
func (c *council) anyone(yes bool, err error) (bool, error) {
	if c.broken {
		return yes, err
	}
	for _, g := range c.circles {
		line := []float32{failureOf(err), 0}
		if yes {
			line[1] = 1
		}
		lines, e := g.gather(line)
		if e != nil {
			return yes, errors.Join(err, c.wrong(e))
		}
		if e := failed(lines, g.ranks); e != nil && err == nil {
			err = c.wrong(e)
		}
		yes = yes || slices.ContainsFunc(lines, func(l []float32) bool { return l[1] != 0 })
	}
	return yes, err
}

func (c *council) wrong(err error) error {
	return fmt.Errorf("cudaexec: program %q: agreeing on measured times: %w", c.program, err)
}
