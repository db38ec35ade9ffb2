package exchange

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/backend"
)

// onRanks runs body on n simulated ranks.
func onRanks(t *testing.T, n int, body func(k *Values) error) {
	t.Helper()
	if err := backend.Simulate(n, backend.Config{}, func(w *dist.World) error { return body(New(w)) }); err != nil {
		t.Error(err)
	}
}

func TestGatherTakesTextsOfAnyLength(t *testing.T) {
	for n := 1; n <= 4; n++ {
		onRanks(t, n, func(k *Values) error {
			for _, unit := range []string{"", "x", "some text"} {
				parts, err := Gather(k, "text", []byte(strings.Repeat(unit, k.w.Rank())))
				if err != nil {
					return err
				}
				for r, p := range parts {
					if want := strings.Repeat(unit, r); string(p) != want {
						return fmt.Errorf("rank %d has %q from rank %d, want %q", k.w.Rank(), p, r, want)
					}
				}
			}
			return nil
		})
	}
}

// On GPUs, exchanged values pass through symmetric memory, which grows only when needed.
func TestRoomGrowsWithWhatIsExchanged(t *testing.T) {
	onRanks(t, 2, func(k *Values) error {
		for _, step := range []struct{ bytes, room int64 }{{8, leastRoom}, {leastRoom, leastRoom}, {leastRoom + 1, 2 * (leastRoom + 1)}, {1, 2 * (leastRoom + 1)}} {
			if err := k.grow(step.bytes); err != nil {
				return err
			}
			if k.room != step.room || k.src.Local().Bytes() != step.room || k.dst.Local().Bytes() != step.room {
				return fmt.Errorf("room for %d B is %d, want %d", step.bytes, k.room, step.room)
			}
		}
		if err := k.Close(); err != nil || k.heap != nil {
			return fmt.Errorf("close: %w", err)
		}
		return k.Close()
	})
}

func TestAgreeNamesEveryRankThatDiffers(t *testing.T) {
	common := []string{"header", "run.seed: 1", "optim.lr: 0.1"}
	onRanks(t, 3, func(k *Values) error { return Agree(k, common) })
	onRanks(t, 4, func(k *Values) error {
		mine := slices.Clone(common)
		switch k.w.Rank() {
		case 1:
			mine[2] = "optim.lr: 0.2"
		case 3:
			mine = mine[:2]
		}
		err := Agree(k, mine)
		if !errors.Is(err, ErrDiffer) {
			return fmt.Errorf("error %w, want ErrDiffer", err)
		}
		for _, want := range []string{
			`rank 0 has "optim.lr: 0.1", rank 1 has "optim.lr: 0.2"`,
			`rank 0 has "optim.lr: 0.1", rank 3 has "nothing more"`,
		} {
			if !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "rank 2") {
				return fmt.Errorf("%q is not in: %w", want, err)
			}
		}
		return nil
	})
}

func TestParametersAreComparedAtTheEnd(t *testing.T) {
	onRanks(t, 3, func(k *Values) error {
		if err := Same(k, "parameters", []byte{1, 2}); err != nil {
			return err
		}
		err := Same(k, "parameters", []byte{1, byte(k.w.Rank() / 2)})
		if !errors.Is(err, ErrDiffer) || !strings.Contains(err.Error(), "rank 0 has 0100, rank 2 has 0101") {
			return fmt.Errorf("error %w", err)
		}
		return nil
	})
}
