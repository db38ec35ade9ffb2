package gpu

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/sim"
	"github.com/symgrad/symgrad/tensor"
)

const ages = 10 * time.Second

func allReduceEntry(count int64) opEntry {
	return opEntry{sig: dist.Signature{Kind: dist.KindAllReduce, Red: dist.RedSum, DType: tensor.F32, Count: count, Root: -1}}
}

// want is an error unless got matches sentinel and has all words.
func want(got, sentinel error, words ...string) error {
	if !errors.Is(got, sentinel) {
		return fmt.Errorf("error %v, want %v", got, sentinel)
	}
	for _, word := range words {
		if !strings.Contains(got.Error(), word) {
			return fmt.Errorf("error %q does not say %q", got, word)
		}
	}
	return nil
}

// broken waits for the group to be broken, and says why.
func (p *ledger) awaitEnd() error {
	var why error
	err := p.poll(func() bool {
		why = p.broken()
		return why != nil
	}, func() string { return "the end" })
	if why == nil {
		return err
	}
	return why
}

func TestRanksThatAgreeGoOnBeyondTheRing(t *testing.T) {
	ledgers(t, 3, true, ages, func(p *ledger) error {
		const rounds = 2*ringDepth + 77
		for i := range int64(rounds) {
			c := allReduceEntry(i)
			if err := p.announce(&c); err != nil {
				return fmt.Errorf("round %d: %w", i, err)
			}
		}
		if err := p.poll(func() bool { return p.met(rounds) }, p.whereabouts); err != nil {
			return err
		}
		if p.met(rounds + 1) {
			return errors.New("all ranks have met in a round that none has announced")
		}
		return nil
	})
}

func TestDifferenceIsNamedOnEveryRank(t *testing.T) {
	usual := allReduceEntry(7)
	for word, odd := range map[string]opEntry{
		"operation":                 {sig: dist.Signature{Kind: dist.KindBarrier, Root: -1}},
		"dtype":                     {sig: dist.Signature{Kind: dist.KindAllReduce, DType: tensor.F64, Count: 7, Root: -1}},
		"count":                     allReduceEntry(8),
		"reduction":                 {sig: dist.Signature{Kind: dist.KindAllReduce, Red: dist.RedMax, DType: tensor.F32, Count: 7, Root: -1}},
		"root":                      {sig: dist.Signature{Kind: dist.KindAllReduce, DType: tensor.F32, Count: 7, Root: 1}},
		"promise":                   {sig: usual.sig, symmetric: true},
		"during other work":         {sig: usual.sig, beside: true},
		"continues the previous":    {sig: usual.sig, along: true},
		"alignment":                 {sig: usual.sig, extra: 4096},
		"place of the source":       {sig: usual.sig, src: 1<<placeSlabBits | 512},
		"place of the destination":  {sig: usual.sig, dst: placePrivate},
		"in no symmetric heap":      {sig: usual.sig, dst: placePrivate, src: 0},
		"at offset 4096 of heap 17": {sig: usual.sig, src: 17<<placeSlabBits | 4096},
	} {
		for _, n := range []int{2, 3} {
			t.Run(fmt.Sprintf("%s/%d", word, n), func(t *testing.T) {
				ledgers(t, n, true, ages, func(p *ledger) error {
					before := allReduceEntry(1)
					if err := p.announce(&before); err != nil && p.broken() == nil {
						return err
					}
					c := usual
					c.src, c.dst = 1<<placeSlabBits|1024, 1<<placeSlabBits|1024
					if odd.sig.Kind == dist.KindBarrier || !odd.symmetric && odd.src == 0 && odd.dst == 0 {
						c.src, c.dst = 0, 0
					}
					if p.rank == n/2 {
						c = odd
					}
					_ = p.announce(&c) // a rank that was the first sees nothing yet
					err := p.awaitEnd()
					later := allReduceEntry(9)
					return errors.Join(want(err, dist.ErrMismatch, word, fmt.Sprintf("rank %d", n/2)), want(err, dist.ErrAborted),
						want(p.announce(&later), dist.ErrMismatch, word))
				})
			})
		}
	}
}

func TestPlaceThatIsNotUsedDiffersFromNone(t *testing.T) {
	ledgers(t, 2, true, ages, func(p *ledger) error {
		c := allReduceEntry(3)
		c.symmetric = true
		c.src = 1<<placeSlabBits | 512
		if p.rank == 1 {
			c.dst = c.src // as the root of a reduce
		}
		return p.announce(&c)
	})
}

func TestUncheckedRanksAreNotCompared(t *testing.T) {
	ledgers(t, 2, false, ages, func(p *ledger) error {
		c := allReduceEntry(int64(p.rank))
		return p.announce(&c)
	})
}

func TestRankTooFarAheadTimesOut(t *testing.T) {
	ledgers(t, 2, true, time.Millisecond, func(p *ledger) error {
		if p.rank == 1 {
			return want(p.awaitVerdict(), dist.ErrTimeout, "rank 1")
		}
		for {
			c := allReduceEntry(1)
			if err := p.announce(&c); err != nil {
				if p.round != ringDepth {
					return fmt.Errorf("stopped in round %d, not %d", p.round, ringDepth)
				}
				return want(err, dist.ErrTimeout, "rank 1 has issued nothing")
			}
		}
	})
}

// awaitVerdict is awaitEnd without a limit of its own.
func (p *ledger) awaitVerdict() error {
	limit := p.limit
	p.limit = ages
	defer func() { p.limit = limit }()
	return p.awaitEnd()
}

func TestMessagesPairUp(t *testing.T) {
	ledgers(t, 2, true, ages, func(p *ledger) error {
		out := p.rank == 0
		const messages = messageDepth + 50
		for i := range messages {
			k, err := p.post(1-p.rank, out, tensor.F32, i)
			if err != nil {
				return err
			}
			if k != uint64(i+1) {
				return fmt.Errorf("message %d has number %d", i, k)
			}
		}
		c := allReduceEntry(1)
		if err := p.announce(&c); err != nil {
			return err
		}
		return p.poll(func() bool { return p.paired(1-p.rank, out, messages) }, func() string { return "messages" })
	})
}

func TestMessagesThatDifferAreNamed(t *testing.T) {
	for name, c := range map[string]struct {
		send, recv func(p *ledger) error
		words      []string
	}{
		"count": {posts(3, tensor.F32), posts(4, tensor.F32), []string{"message", "rank 0 sends f32[3]", "rank 1 receives f32[4]"}},
		"dtype": {posts(3, tensor.F32), posts(3, tensor.I32), []string{"message", "i32[3]"}},
		"empty": {posts(3, tensor.F32), posts(0, tensor.F32), []string{"message", "f32[0]"}},
		"order": {posts(3, tensor.F32), collects, []string{"order", "allreduce", "rank 0", "rank 1"}},
		"place": {posts(3, tensor.F32), func(p *ledger) error { return errors.Join(collects(p), posts(3, tensor.F32)(p)) }, []string{"rank 0"}},
	} {
		t.Run(name, func(t *testing.T) {
			ledgers(t, 2, true, ages, func(p *ledger) error {
				if p.rank == 0 {
					_ = c.send(p)
				} else {
					_ = c.recv(p)
				}
				return want(p.awaitEnd(), dist.ErrMismatch, c.words...)
			})
		})
	}
}

func posts(count int, dt tensor.DType) func(p *ledger) error {
	return func(p *ledger) error {
		_, err := p.post(1-p.rank, p.rank == 0, dt, count)
		return err
	}
}

func collects(p *ledger) error {
	c := allReduceEntry(5)
	return p.announce(&c)
}

func TestRankThatLeftIsNamed(t *testing.T) {
	ledgers(t, 3, true, ages, func(p *ledger) error {
		if p.rank == 2 {
			if p.leave(ages) {
				return errors.New("left together with ranks that stayed")
			}
			return want(p.broken(), dist.ErrClosed, "rank 2")
		}
		if err := p.poll(func() bool { return p.load(2, leftAt) == 1 }, func() string { return "rank 2 leaves" }); err != nil {
			return want(err, dist.ErrClosed, "rank 2")
		}
		return want(collects(p), dist.ErrClosed, "rank 2")
	})
}

func TestWatcherFindsThatARankLeft(t *testing.T) {
	ledgers(t, 2, true, ages, func(p *ledger) error {
		if p.rank == 1 {
			if err := p.poll(func() bool { return p.load(0, checkedAt) == 1 }, p.whereabouts); err != nil {
				return err
			}
			p.leave(ages)
			return want(p.broken(), dist.ErrClosed, "rank 1")
		}
		if err := collects(p); err != nil {
			return err
		}
		p.watch(context.Background(), func() error { return nil })
		return want(p.broken(), dist.ErrClosed, "rank 1")
	})
}

func TestRanksLeaveTogether(t *testing.T) {
	ledgers(t, 4, true, ages, func(p *ledger) error {
		if !p.leave(ages) || !p.alone() {
			return fmt.Errorf("left apart: %v", p.broken())
		}
		return nil
	})
}

func TestRankLeavesAloneAfterGrace(t *testing.T) {
	ledgers(t, 2, true, ages, func(p *ledger) error {
		if p.rank == 0 && p.leave(time.Millisecond) {
			return errors.New("left together with a rank that stayed")
		}
		if p.rank == 1 {
			if err := p.poll(func() bool { return p.load(p.home, closingAt)>>32 == closingApart }, p.whereabouts); err != nil {
				return err
			}
			if p.leave(ages) {
				return errors.New("left together with a rank that had given up")
			}
		}
		return p.broken()
	})
}

func TestEngineErrorBreaksTheGroupOnAllRanks(t *testing.T) {
	ledgers(t, 3, true, ages, func(p *ledger) error {
		p.watch(context.Background(), func() error {
			if p.rank == 1 {
				return errors.New("nccl: remote process exited")
			}
			return nil
		})
		return want(p.broken(), dist.ErrAborted, "rank 1", "remote process exited")
	})
}

func TestAbortCarriesItsCause(t *testing.T) {
	ledgers(t, 3, true, ages, func(p *ledger) error {
		if p.rank == 2 {
			_ = p.fail(endUser, p.rank, "the disk is full")
		}
		p.watch(context.Background(), func() error { return nil })
		return errors.Join(want(p.broken(), dist.ErrAborted, "rank 2", "the disk is full"), want(collects(p), dist.ErrAborted))
	})
}

func TestDeathInTheControlGroupIsTold(t *testing.T) {
	onEach(t, 3, sim.Config{Script: "die rank=2 op=2"}, func(control *dist.Group) error {
		p, err := newLedger(control, true, ages)
		if err != nil {
			return err
		}
		defer p.close()
		if control.Rank() == 2 {
			_ = finish(control.Barrier())
			return nil
		}
		p.watch(context.Background(), func() error { return nil })
		var dead *dist.RankError
		if err := p.broken(); !errors.As(err, &dead) || dead.Rank != 2 {
			return fmt.Errorf("error %v, want the death of rank 2", err)
		}
		return nil
	})
}

func TestWatcherEndsWithItsContext(t *testing.T) {
	ledgers(t, 2, true, ages, func(p *ledger) error {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		p.watch(ctx, func() error { return errors.New("not to be asked") })
		return p.broken()
	})
}

func TestStepTimeoutOfTheControlGroupEndsNoIdleGroup(t *testing.T) {
	ledgers(t, 2, true, ages, func(p *ledger) error {
		if p.ends(fmt.Errorf("%w after 1s", dist.ErrTimeout)) || p.broken() != nil {
			return fmt.Errorf("a wait for news that was too long has ended the group: %v", p.broken())
		}
		if !p.ends(fmt.Errorf("all others have left: %w", dist.ErrClosed)) {
			return errors.New("a control group without others is not known to stay so")
		}
		return p.broken()
	})
}

func TestOldestReasonStays(t *testing.T) {
	ledgers(t, 2, true, ages, func(p *ledger) error {
		if p.rank == 0 {
			_ = p.fail(endMismatch, 0, "first")
		}
		if err := want(p.awaitEnd(), dist.ErrMismatch, "first"); err != nil {
			return err
		}
		return errors.Join(want(p.fail(endTimeout, p.rank, "second"), dist.ErrMismatch, "first"),
			want(p.settle(dist.ErrClosed), dist.ErrMismatch, "first"))
	})
}

func TestAnnounceAllocatesNothing(t *testing.T) {
	ledgers(t, 1, true, ages, func(p *ledger) error {
		c := allReduceEntry(3)
		var err error
		if n := testing.AllocsPerRun(100, func() { err = errors.Join(err, p.announce(&c)) }); n != 0 {
			return fmt.Errorf("%v allocations", n)
		}
		return err
	})
}
