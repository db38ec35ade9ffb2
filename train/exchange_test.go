package train

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"

	"github.com/symgrad/symgrad/optim"
)

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

// The counts are of the whole test set and the same, whoever counts which batch.
func TestAccuracyDoesNotDependOnRanks(t *testing.T) {
	var want tested
	for n := 1; n <= 4; n++ {
		err := trained(t, n, func(tr *trainer) error {
			s := tr.report().Summary()
			r, err := tr.evaluate(context.Background())
			if err != nil {
				return err
			}
			if tr.w.Rank() == 0 && n == 1 {
				want = r
			}
			s.Tested(r.right, r.all, r.loss)
			if s.TestCorrect != want.right || s.TestSamples != testSamples || *s.TestAccuracy != float64(want.right)/testSamples {
				return fmt.Errorf("%d of %d right, want %d", s.TestCorrect, s.TestSamples, want.right)
			}
			if d := math.Abs(*s.TestLoss - want.loss); d > 1e-15*want.loss*float64(n) { // a sum in another order
				return fmt.Errorf("loss %v, want %v", *s.TestLoss, want.loss)
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
