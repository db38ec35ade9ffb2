package hostexec

import (
	"strings"
	"sync/atomic"
	"testing"
)

// counts is a task that counts how often each piece is done.
type counts []atomic.Int32

func (c counts) piece(_ *worker, i int) { c[i].Add(1) }

func TestCrewDoesEachPieceOnce(t *testing.T) {
	for _, threads := range []int{1, 2, 5} {
		c := newCrew(threads, 0, 0, nil)
		for round := range 3000 {
			task := make(counts, round%40)
			if err := c.run(task, len(task)); err != nil {
				t.Fatal(err)
			}
			for i := range task {
				if n := task[i].Load(); n != 1 {
					t.Fatalf("%d threads, round %d: piece %d was done %d times", threads, round, i, n)
				}
			}
		}
		c.close()
		c.close()
	}
}

// falls panics in one piece.
type falls int

func (f falls) piece(_ *worker, i int) {
	if i == int(f) {
		var none []int
		none[i] = 1
	}
}

func TestPanicOfAPieceIsAnError(t *testing.T) {
	c := newCrew(3, 0, 0, nil)
	defer c.close()
	for round := range 200 {
		if err := c.run(falls(round%20), 20); err == nil || !strings.Contains(err.Error(), "BUG: panic") || !strings.Contains(err.Error(), "index out of range") {
			t.Fatalf("round %d: %v", round, err)
		}
		if err := c.run(falls(-1), 20); err != nil {
			t.Fatalf("round %d, after it: %v", round, err)
		}
	}
}
