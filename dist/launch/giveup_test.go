//go:build linux

package launch

import (
	"context"
	"errors"
	"testing"
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
