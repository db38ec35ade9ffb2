//go:build linux

package launch

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/symgrad/symgrad/dist"
)

// Ranks that wait for the others hear that rank 0, which serves their store, waits no longer.
func TestRankZeroThatGivesUpIsNamed(t *testing.T) {
	for name, env := range map[string]func(int) Env{"socket": onSocket(3), "port": onPort(t, 3)} {
		t.Run(name, func(t *testing.T) {
			p, err := env(1).place()
			if err != nil {
				t.Fatal(err)
			}
			enough := errors.New("enough")
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			got := make(chan []met, 1)
			go func() { got <- meetAll(ctx, env, patience, 0) }()
			waits, err := p.join(t.Context(), env(1))
			if err != nil {
				t.Fatal(err)
			}
			cancel(enough)
			wantDeath(t, waits.meet(t.Context()), 0, "left before all ranks had come")
			if err := waits.Close(); err != nil {
				t.Error(err)
			}
			if m := (<-got)[0]; !errors.Is(m.err, enough) {
				t.Errorf("rank 0 got %v, want why its context ended", m.err)
			}
		})
	}
}

func TestRankThatIsAloneEndsWithItsContextToo(t *testing.T) {
	enough := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(enough)
	store, closer, err := Rendezvous(ctx, Env{Size: 1, LocalSize: 1, Launcher: None}, Config{})
	if store != nil || closer != nil || !errors.Is(err, enough) {
		t.Errorf("got %v, %v, %v, want why the context ended", store, closer, err)
	}
}

// A closed store rejects values that no rank would see: on any rank the store ends with its Close.
func TestClosedStoreTakesNothing(t *testing.T) {
	for name, env := range map[string]func(int) Env{"alone": onSocket(1), "socket": onSocket(2), "port": onPort(t, 2)} {
		t.Run(name, func(t *testing.T) {
			all := meetAll(t.Context(), env, patience, []int{0, 1}[:env(0).Size]...)
			for rank := len(all) - 1; rank >= 0; rank-- { // rank 0 waits for the others
				m := all[rank]
				if m.err != nil {
					t.Fatal(m.err)
				}
				if err := m.close.Close(); err != nil {
					t.Error(err)
				}
				_, getErr := m.store.Get(t.Context(), "k")
				_, addErr := m.store.Add(t.Context(), "k", 1)
				for _, err := range []error{getErr, addErr, m.store.Set(t.Context(), "k", nil)} {
					if !errors.Is(err, dist.ErrClosed) {
						t.Errorf("rank %d got %v, want dist.ErrClosed", rank, err)
					}
				}
			}
		})
	}
}

// A process that opens a second world next to the first gets an error that names this, and not only
// missing jobs and processes.
func TestMeetingAgainTooEarlyIsNamed(t *testing.T) {
	_, launcher := underLauncher(t, 2)
	for name, env := range map[string]func(int) Env{"socket": onSocket(2), "launcher": launcher} {
		t.Run(name, func(t *testing.T) {
			for _, m := range meetAll(t.Context(), env, patience, 0, 1) {
				if m.err != nil {
					t.Fatal(m.err)
				}
				defer m.close.Close()
			}
			for rank, m := range meetAll(t.Context(), env, patience, 0, 1) {
				if m.err == nil || !strings.Contains(m.err.Error(), "meets again before closing its store") {
					t.Errorf("rank %d got %v, want what it did", rank, m.err)
				}
			}
		})
	}
}
