package train

import (
	"errors"
	"fmt"
	"testing"

	"github.com/symgrad/symgrad/dist"
)

// Ranks that are goroutines end in any order; what the program tells is why.
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
