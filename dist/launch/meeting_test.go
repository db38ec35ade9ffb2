//go:build linux

package launch

import (
	"testing"

	"github.com/symgrad/symgrad/dist"
)

// The last rank to come hears of the rank that died first, and not of one that left because of it.
func TestLastRankHearsOfTheFirstCause(t *testing.T) {
	for name, end := range map[string]func(*roster, *meeting){
		"died":   func(r *roster, _ *meeting) { r.fail(&dist.RankError{Rank: 0, How: "died"}) },
		"left":   func(r *roster, m *meeting) { r.leave(0, m) },
		"exited": func(r *roster, _ *meeting) { r.exit(0, "exited") },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRoster(4, false)
			m, _ := r.join(0)
			for rank := 1; rank < 3; rank++ {
				if _, err := r.join(rank); err != nil {
					t.Fatal(err)
				}
			}
			end(r, m)
			for rank := 1; rank < 3; rank++ {
				wantDeath(t, m.wait(t.Context()), 0, "")
				r.leave(rank, m)
			}
			last, err := r.join(3)
			if err != nil {
				t.Fatal(err)
			}
			wantDeath(t, last.wait(t.Context()), 0, "")
		})
	}
}

// A rank that has waited too long is not blamed while others are missing: it is they who did not
// come.
func TestRankThatWaitedTooLongIsBlamedLast(t *testing.T) {
	r := newRoster(3, false)
	m, _ := r.join(0)
	_, _ = r.join(1)
	r.giveUp(1, m)
	if err := m.table.err(); err != nil {
		t.Errorf("the meeting failed before the last rank has come: %v", err)
	}
	_, _ = r.join(2)
	wantDeath(t, m.wait(t.Context()), 1, "left before all ranks had come")
}

// A meeting at which all have come is a success, whatever happens to one of them afterwards.
func TestDeathAfterTheMeetingIsNotItsFailure(t *testing.T) {
	r := newRoster(2, false)
	m, _ := r.join(0)
	_, _ = r.join(1)
	r.fail(&dist.RankError{Rank: 1, How: "died"})
	if err := m.wait(t.Context()); err != nil {
		t.Errorf("the meeting failed: %v", err)
	}
}
