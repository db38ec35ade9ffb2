//go:build linux

package launch

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/host/cores"
)

// Each rank sees its own cores, and the launcher all of them again.
func TestRanksAreBoundToCoresOfTheirOwn(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	allowed, err := cores.Allowed()
	if err != nil {
		t.Fatal(err)
	}
	n := 2
	hands := cores.Deal(allowed, cores.System(), n)
	if hands == nil {
		t.Skipf("processors %v have no core for each of %d ranks", allowed, n)
	}
	for _, bind := range []string{"", BindNone, BindCore} {
		job, ranks := newStage(t).spawn(t.Context(), SpawnConfig{N: n, Bind: bind, Env: []string{"SYMGRAD_BOUND=core"}})
		for rank, r := range ranks {
			want := fmt.Sprintf("%v %v <nil>", false, allowed)
			if bind == BindCore {
				slices.Sort(hands[rank]) // by core, and the system lists them by number
				want = fmt.Sprintf("%v %v <nil>", true, hands[rank])
			}
			if got := r.ask("cores"); got != want {
				t.Errorf("bind %q: rank %d has %s, want %s", bind, rank, got, want)
			}
			r.tell("exit 0")
		}
		job.wait()
	}
	if after, err := cores.Allowed(); err != nil || fmt.Sprint(after) != fmt.Sprint(allowed) {
		t.Errorf("this thread is on %v, %v, before on %v", after, err, allowed)
	}
}

func TestMoreRanksThanCoresAreNotBound(t *testing.T) {
	_, err := Spawn(context.Background(), SpawnConfig{Program: "true", N: MostSpawned, Bind: BindCore})
	if !errors.Is(err, dist.ErrInvalid) || !strings.Contains(err.Error(), "fewer cores") {
		t.Errorf("got %v", err)
	}
	if err := (SpawnConfig{Program: "true", N: 1, Bind: "socket"}).Validate(); !errors.Is(err, dist.ErrInvalid) || !strings.Contains(err.Error(), "use core or none") {
		t.Errorf("got %v", err)
	}
	if _, err := Detect([]string{"SYMGRAD_RANK=0", "SYMGRAD_WORLD_SIZE=1", "SYMGRAD_BOUND=x"}); err == nil {
		t.Error("SYMGRAD_BOUND=x is taken")
	}
}
