package trace

import (
	"testing"
	"time"
)

// A clock that is 5 s ahead takes part in rounds whose messages take different times.
func TestOffsetIsWithinItsBound(t *testing.T) {
	const ahead = 5 * time.Second
	at := func(us int) time.Time { return time.Unix(100, 0).Add(time.Duration(us) * time.Microsecond) }
	var here, there []Round
	for _, r := range []struct{ enter, leave, otherEnter, otherLeave int }{
		{0, 900, 100, 400},       // messages take up to 300 us and 900 us
		{1000, 1300, 1250, 1290}, // 40 us there, 250 us back
		{2000, 2300, 2010, 2250}, // the other way
	} {
		here = append(here, Round{at(r.enter), at(r.leave)})
		there = append(there, Round{at(r.otherEnter).Add(ahead), at(r.otherLeave).Add(ahead)})
		offset, bound := Offset(there, here)
		if miss := (offset - ahead).Abs(); miss > bound {
			t.Errorf("after %d rounds the offset is %v, with an error of %v and a bound of %v", len(here), offset, miss, bound)
		}
	}
	if _, bound := Offset(there, here); bound > 175*time.Microsecond {
		t.Errorf("the bound is %v, longer than half of the shortest round", bound)
	}
}
