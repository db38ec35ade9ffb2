package train

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/symgrad/symgrad/config"
	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/launch"
)

// Ranks that are goroutines end in any order; the program reports the cause.
func TestTheReasonIsNotThatARankWasAborted(t *testing.T) {
	disk, other := errors.New("no such disk"), errors.New("no such file")
	aborted := fmt.Errorf("barrier: %w", dist.ErrAborted)
	for _, c := range []struct{ first, second, want error }{
		{nil, nil, nil},
		{nil, disk, disk},
		{disk, nil, disk},
		{disk, aborted, disk},
		{aborted, disk, disk},
		{aborted, nil, aborted},
		{disk, other, disk},
	} {
		if got := reason(c.first, c.second); got != c.want {
			t.Errorf("%v, then %v: got %v, want %v", c.first, c.second, got, c.want)
		}
	}
}

// Who gives ranks minutes to end has those after Ctrl-C, too, when they save.
func TestGraceIsThatAfterASignalToo(t *testing.T) {
	for set, want := range map[string]time.Duration{"launch.grace=2m": 2 * time.Minute, "launch.grace=1s": launch.DefaultPatience} {
		o, err := program.parse([]string{"--set", set})
		if err != nil {
			t.Fatal(err)
		}
		spawned, err := o.spawned("train", nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := spawned.Patience; got != want {
			t.Errorf("%s: ranks have %v to end after a signal, want %v", set, got, want)
		}
	}
	keys := config.Keys()
	if k := slices.IndexFunc(keys, func(k config.Key) bool { return k.Name == "launch.grace" }); k < 0 || !strings.Contains(keys[k].Help, launch.DefaultPatience.String()) {
		t.Errorf("the help of launch.grace does not tell of %v", launch.DefaultPatience)
	}
}
