package cudaexec

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/cuda"
	"github.com/symgrad/symgrad/internal/dl"
)

// trial has the candidates for a product or a convolution, as this rank has timed them.
type trial struct {
	what  string            // is done
	names []string          // of candidates, equal on all ranks with one library and one kind of GPU
	took  []float32         // ns, by candidate; 0 for one that does not work here
	take  func(i int) error // makes candidate i the one that is used
	worst float32           // ns of the one that was taken, on the slowest rank; 0 where none works on all ranks
}

// newTrial is a trial of candidates that took these times.
func newTrial(what string, names []string, took []time.Duration, take func(i int) error) *trial {
	t := &trial{what: what, names: names, took: make([]float32, len(took)), take: take}
	for i, d := range took {
		t.took[i] = float32(d)
	}
	return t
}

// timesOf is the times of all candidates of a list of trials, one trial after the other.
func timesOf(list []*trial) []float32 {
	var all []float32
	for _, t := range list {
		all = append(all, t.took...)
	}
	return all
}

// takeLeast takes the candidate with the least time of each trial, of times as timesOf orders them.
// A trial in which none works keeps its present one.
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

// least is the index of the least time, the first of equal ones; times of 0 are those of candidates
// that do not work. -1 for none.
func least(times []float32) int {
	best := -1
	for i, t := range times {
		if t > 0 && (best < 0 || t < times[best]) {
			best = i
		}
	}
	return best
}

// The first message of a rank, in whole numbers that f32 has exactly: whether and how it failed,
// its number of candidates, and a digest of them.
const (
	headFailure = iota
	headCount
	headDigest
	headLen = headDigest + 8 // 128 bits, 16 in each
)

// headOf is the head of a rank with these trials, or this error.
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

// failures is the errors that ranks tell each other apart by.
var failures = [...]error{cuda.ErrMemory, dl.ErrUnsupported, dl.ErrNotFound, dist.ErrInvalid}

// failureOf is err as a number: 0 for none.
func failureOf(err error) float32 {
	switch i := slices.IndexFunc(failures[:], func(s error) bool { return errors.Is(err, s) }); {
	case err == nil:
		return 0
	case i >= 0:
		return float32(2 + i)
	}
	return 1
}

// failed is the error of the first rank whose line begins with a failure; nil for none.
//
// Errors: one that matches the failure on that rank.
func failed(lines [][]float32, ranks []int) error {
	for r, line := range lines {
		n := int(line[headFailure])
		if n == 0 {
			continue
		}
		err := fmt.Errorf("rank %d cannot load it, and its own error says why", ranks[r])
		if n >= 2 && n < 2+len(failures) {
			err = fmt.Errorf("%w: %w", err, failures[n-2])
		}
		return err
	}
	return nil
}

// merge is the slowest rank's times: of those ranks whose heads are like this one's. A candidate
// that does not work on one of them has 0.
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

// circle is a group of ranks that tell each other numbers.
type circle struct {
	ranks []int // in the world

	// gather returns the numbers of all ranks, by rank of the group. Collective: all ranks, as many
	// numbers.
	gather func(own []float32) ([][]float32, error)
}

// council is the ranks of a program, in circles; none if the program has no groups, or nothing is
// timed. In each circle all ranks do the same number of gathers of the same lengths, unless a
// gather itself fails. The results of one circle enter the next: after the rows and columns of a
// full grid all ranks know all results. In a chain of circles a rank knows only its neighbours'
// results.
type council struct {
	program string
	circles []circle
	broken  bool // a gather has failed: there is no use in another
}

// slowest is the times of list, as timesOf orders them, on the slowest of the ranks that have the
// same list.
//
// Collective: all ranks, also one with an error. Errors: err; elsewhere one that names a rank that
// has one.
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

// anyone reports whether yes is true on one of the ranks.
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
	return fmt.Errorf("cudaexec: program %q: agreeing on times: %w", c.program, err)
}
