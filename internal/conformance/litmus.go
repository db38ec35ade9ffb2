package conformance

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

// A litmus test is a few calls on a few ranks whose outcome the ordering table of package symmetric
// restricts. It is repeated for many instances of its variables. A barrier follows each batch of
// instances, and then the variables are reused. The old and new values are the numbers of the last
// and the present batch, so nothing is cleared.
type litmus struct {
	name  string
	ranks int // minimum
	play  func(l *lab, i int) error
	judge func(l *lab, i int) string // after the batch: the forbidden outcome of instance i, or ""
}

// Names of the tests: Alglave, Maranget, Tautschnig, "Herding Cats", TOPLAS 2014.
var litmusTests = []litmus{
	{"MessagePassing", 1, (*lab).messagePassing, nil},
	{"PutSignal", 1, (*lab).putSignal, nil},
	{"Causality", 3, (*lab).causality, nil},
	{"StoreBufferingQuiet", 2, (*lab).storeBufferingQuiet, (*lab).bothOld},
	{"StoreBufferingAtomics", 2, (*lab).storeBufferingAtomics, (*lab).bothOld},
	{"IRIW", 4, (*lab).independentReads, (*lab).contraryReads},
	{"Coherence", 2, (*lab).coherence, nil},
	{"Barrier", 2, (*lab).barrier, nil},
	{"Totals", 1, (*lab).total, (*lab).exactTotal},
}

// RunLitmus runs the litmus tests on a backend, rounds instances each, on worlds of 2 and of 4
// ranks.
func RunLitmus(t *testing.T, rounds int, launch Launch) {
	t.Helper()
	RunLitmusWith(t, Options{}, rounds, launch)
}

// RunLitmusWith is RunLitmus with Options. It uses FarPeers only.
func RunLitmusWith(t *testing.T, opt Options, rounds int, launch Launch) {
	t.Helper()
	for _, n := range []int{2, 4} {
		for _, c := range litmusTests {
			if c.ranks > n {
				continue
			}
			t.Run(fmt.Sprintf("%s/%d", c.name, n), func(t *testing.T) {
				launch(t, n, LaunchOptions{}, func(w *dist.World) error { return runLitmus(w, opt, c, rounds) })
			})
		}
	}
}

// Litmus runs, as one rank of w, the litmus tests that the world is large enough for, rounds
// instances each.
//
// Collective: all ranks of w, same rounds. Errors: the first forbidden outcome of each test, or the
// error that ended it.
func Litmus(w *dist.World, rounds int) error { return Options{}.litmus(w, rounds) }

// instances is the number of instances in a batch, each with its own memory.
const instances = 128

// An instance has its variables on separate cache lines: data, and words x and y. Each rank's own
// part also has the values that the rank has read.
const (
	dataAt        = 0
	xAt, yAt      = 64, 128
	readAt        = 192 // two words
	instanceBytes = 256
)

// lab is the state of a litmus test on one rank.
type lab struct {
	opt     Options
	g       *dist.Group
	ctx     context.Context
	n, rank int
	next    int
	batch   uint64 // the new value; the previous one is the old value
	h       symmetric.Heap
	vars    symmetric.Region
	gates   symmetric.Region // for meet: by rank, the number of meetings it has reached
	passed  uint64
	data    [8]uint64
	delay   *rand.Rand
	spun    uint64
}

func runLitmus(w *dist.World, opt Options, c litmus, rounds int) error {
	l := &lab{opt: opt, g: w.Blocking(), ctx: context.Background(), n: w.Size(), rank: w.Rank(), next: (w.Rank() + 1) % w.Size()}
	l.delay = rand.New(rand.NewPCG(1, uint64(l.rank)))
	var err error
	if l.h, err = w.Heap(instances*instanceBytes + 64*int64(l.n) + 2*symmetric.Alignment); err != nil {
		return err
	}
	if l.vars, err = l.h.Calloc(instances, instanceBytes); err != nil {
		return err
	}
	if l.gates, err = l.h.Calloc(int64(l.n), 64); err != nil {
		return err
	}
	var wrong error
	for done := 0; done < rounds; done += instances {
		l.batch++
		for i := range min(instances, rounds-done) {
			if err := c.play(l, i); err != nil {
				return fmt.Errorf("%s, rank %d of %d, round %d: %w", c.name, l.rank, l.n, done+i, err)
			}
		}
		if err := finish(w.Barrier()); err != nil {
			return errors.Join(wrong, err)
		}
		for i := range min(instances, rounds-done) {
			if c.judge == nil || wrong != nil {
				break
			}
			if text := c.judge(l, i); text != "" {
				wrong = fmt.Errorf("%s, rank %d of %d, round %d: forbidden: %s", c.name, l.rank, l.n, done+i, text)
			}
		}
		if err := finish(w.Barrier()); err != nil {
			return errors.Join(wrong, err)
		}
	}
	return errors.Join(wrong, l.h.Close())
}

// variable returns the offset of a variable of instance i.
func variable(i int, at int64) int64 { return int64(i)*instanceBytes + at }

// stir waits for a short random time, so that the ranks interleave in many orders.
func (l *lab) stir() {
	for range l.delay.IntN(24) {
		l.spun = l.spun*6364136223846793005 + 1442695040888963407
	}
}

// meet returns when all given ranks have reached as many meetings as this one.
func (l *lab) meet(ranks ...int) error {
	l.passed++
	for _, p := range ranks {
		if err := symmetric.AtomicSet(l.gates, p, 64*int64(l.rank), l.passed); err != nil {
			return err
		}
	}
	for _, p := range ranks {
		if _, err := symmetric.WaitUntil(l.ctx, l.gates, 64*int64(p), symmetric.Ge, l.passed); err != nil {
			return err
		}
	}
	l.stir()
	return nil
}

// record stores values that this rank has read, for the judge.
func (l *lab) record(i int, values ...uint64) error {
	for k, v := range values {
		if err := symmetric.P(l.vars, l.rank, variable(i, readAt)+int64(8*k), v); err != nil {
			return err
		}
	}
	return nil
}

// reads returns the values that rank has recorded.
func (l *lab) reads(rank, i int) (a, b uint64) {
	values, err := l.opt.peerPart(l.vars, l.rank, rank, variable(i, readAt), 16)
	if err != nil {
		return 0, 0
	}
	return get(values.Raw(), tensor.U64, 0), get(values.Raw(), tensor.U64, 1)
}

// fresh returns the data of this batch.
func (l *lab) fresh(i int) tensor.Buffer {
	for k := range l.data {
		l.data[k] = l.batch<<16 | uint64(i)<<4 | uint64(k)
	}
	return tensor.Of(l.data[:])
}

// stale returns an error if the data on the own part is not that of this batch.
func (l *lab) stale(i int, after string) error {
	return l.staleIn(l.vars.Local().Raw()[variable(i, dataAt):], i, after)
}

// staleIn is stale for the data of instance i on any part.
func (l *lab) staleIn(raw []byte, i int, after string) error {
	for k := range l.data {
		if got, want := get(raw, tensor.U64, k), l.batch<<16|uint64(i)<<4|uint64(k); got != want {
			return fmt.Errorf("forbidden: word %d is %#x %s, want %#x", k, got, after, want)
		}
	}
	return nil
}

// shortLitmus runs the litmus tests for a short time.
func (s *suite) shortLitmus(symmetric.Heap) error { return s.opt.litmus(s.w, s.times(2*instances)) }
