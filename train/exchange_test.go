package train

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/backend"
	"github.com/symgrad/symgrad/optim"
	"github.com/symgrad/symgrad/train/internal/exchange"
)

// onRanks runs body on n simulated ranks.
func onRanks(t *testing.T, n int, body func(k *exchange.Values) error) {
	t.Helper()
	if err := backend.Simulate(n, backend.Config{}, func(w *dist.World) error { return body(exchange.New(w)) }); err != nil {
		t.Error(err)
	}
}

// The digest is of the elements' bits, in order, whatever rank computes it.
func TestDigestSeesEveryElement(t *testing.T) {
	err := trained(t, 1, func(tr *trainer) error {
		before, err := tr.digest()
		if err != nil {
			return err
		}
		for _, p := range tr.model.Params {
			v := p.Value().Data().([]float32)
			for _, i := range []int{0, len(v) - 1} {
				old := v[i]
				v[i] = math.Float32frombits(math.Float32bits(old) ^ 1)
				after, err := tr.digest()
				v[i] = old
				if err != nil || bytes.Equal(before, after) {
					return fmt.Errorf("the last bit of %s[%d] is not in the digest (%v)", p.Name(), i, err)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// The loss of a step is the sum of the ranks' parts, in order, and does not depend on when it is
// shared.
func TestMeterAddsUpOverRanks(t *testing.T) {
	for _, every := range []int{1, 3, 10} {
		onRanks(t, 3, func(k *exchange.Values) error {
			m := newMeter(k)
			for step := range 10 {
				m.step(16, 0)
				m.note(step, float64((step+1)*(k.World().Rank()+1))/8)
				if (step+1)%every == 0 || step == 9 {
					if err := m.share(); err != nil {
						return err
					}
				}
			}
			for step, loss := range m.losses {
				if want := float64((step+1)*6) / 8; loss != want {
					return fmt.Errorf("loss %d is %v, want %v", step, loss, want)
				}
			}
			if len(m.losses) != 10 || m.loss() != m.losses[9] || m.samples != 160 || m.samplesPerSecond() <= 0 {
				return fmt.Errorf("%d losses, the last %v, %d samples", len(m.losses), m.loss(), m.samples)
			}
			return nil
		})
	}
}

// Where only losses that are shared are known, as on GPUs, a checkpoint says of which step its last
// one is.
func TestCurveKnowsTheStepOfItsLoss(t *testing.T) {
	onRanks(t, 2, func(k *exchange.Values) error {
		m := newMeter(k)
		for step := 4; step < 20; step += 5 {
			m.note(step, float64(step))
			if err := m.share(); err != nil {
				return err
			}
			if kept, first := m.curve(false, step+1); len(kept) != 1 || kept[0] != float64(2*step) || first != step {
				return fmt.Errorf("%v from step %d, want that of step %d", kept, first, step)
			}
		}
		return nil
	})
}

func TestMeterRefusesALossThatIsNoNumber(t *testing.T) {
	for _, bad := range []float64{math.NaN(), math.Inf(1)} {
		onRanks(t, 2, func(k *exchange.Values) error {
			m := newMeter(k)
			for step := range 4 {
				loss := 1.0
				if step == 2 && k.World().Rank() == 1 {
					loss = bad
				}
				m.note(step, loss)
			}
			if err := m.share(); err == nil || !strings.Contains(err.Error(), "step 2: the loss is") {
				return fmt.Errorf("error %w", err)
			}
			return nil
		})
	}
}

func TestArgmaxIsTheFirstOfTheLargest(t *testing.T) {
	for _, test := range []struct {
		v    []float32
		want int
	}{{[]float32{1}, 0}, {[]float32{1, 3, 2}, 1}, {[]float32{-2, -1, -1}, 1}, {[]float32{0, 0}, 0}} {
		if got := Argmax(test.v); got != test.want {
			t.Errorf("%v: %d, want %d", test.v, got, test.want)
		}
	}
}

// The counts are of the whole test set and the same, whoever counts which batch.
func TestAccuracyDoesNotDependOnRanks(t *testing.T) {
	var want int64
	for n := 1; n <= 4; n++ {
		err := trained(t, n, func(tr *trainer) error {
			s := newSummary(tr)
			if err := tr.evaluate(context.Background(), s); err != nil {
				return err
			}
			if tr.w.Rank() == 0 && n == 1 {
				want = s.TestCorrect
			}
			if s.TestCorrect != want || s.TestSamples != testSamples || *s.TestAccuracy != float64(want)/testSamples {
				return fmt.Errorf("%d of %d right, want %d", s.TestCorrect, s.TestSamples, want)
			}
			return nil
		})
		if err != nil {
			t.Errorf("%d ranks: %v", n, err)
		}
	}
}

// A scale that grows by a power of two during training changes no bit, including those of
// residuals.
func TestScaleOfTheLossIsTakenOutOfWhatIsKept(t *testing.T) {
	for _, hook := range [][]string{
		{"comm.wire_dtype=bf16", "comm.error_feedback=true"},
		{"comm.wire_dtype=bf16", "comm.error_feedback=true", "shard.stage=2"},
		{"ddp.hook=powersgd", "ddp.powersgd_rank=2"},
	} {
		digests := map[string][]string{}
		for _, scale := range []string{"65536", "dynamic"} {
			var mu sync.Mutex
			err := trained(t, 2, func(tr *trainer) error {
				grows := scale == "dynamic"
				if grows { // after the fourth step
					if err := tr.scaled.scaler.SetState(optim.LossScalerState{Scale: 65536, Good: 1996}); err != nil {
						return err
					}
				}
				if err := tr.loop(t.Context()); err != nil {
					return err
				}
				if now := tr.scaled.scaler.Scale(); (now == 131072) != grows {
					t.Errorf("%s: the scale is %v at the end", scale, now)
				}
				digest, err := tr.digest()
				mu.Lock()
				defer mu.Unlock()
				digests[scale] = append(digests[scale], hex.EncodeToString(digest))
				return err
			}, append(hook, steps(9), "optim.loss_scale="+scale)...)
			if err != nil {
				t.Fatal(err)
			}
		}
		if !slices.Equal(digests["dynamic"], digests["65536"]) {
			t.Errorf("%v: parameters %.8q, want %.8q", hook, digests["dynamic"], digests["65536"])
		}
	}
}
