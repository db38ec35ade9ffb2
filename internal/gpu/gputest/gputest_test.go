package gputest

import (
	"errors"
	"os"
	"testing"
	"time"
)

// ranks fails in a way of its own: no role exists.
var ranks = &Ranks{Job: "gputest", Time: time.Minute, Body: func(string, *Rank) error { return errors.New("no role") }}

func TestMain(m *testing.M) { os.Exit(ranks.Main(m)) }

func TestWithoutARoleTestsRunAndWithOneTheRankEnds(t *testing.T) {
	t.Setenv(roleVar, "lost")
	t.Setenv("SYMGRAD_RANK", "7")
	t.Setenv("SYMGRAD_WORLD_SIZE", "2")
	if got := ranks.Main(nil); got != 1 {
		t.Errorf("rank 7 of 2 ends with status %d, want 1", got)
	}
}
