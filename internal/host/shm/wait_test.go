package shm

import (
	"testing"

	"github.com/symgrad/symgrad/internal/host/ticks"
)

// A rank that comes back from a yield asks what the others did meanwhile: only work that ends in a
// wait counts, and only what of it was meanwhile.
func TestPeersWorkWhileARankIsAway(t *testing.T) {
	ends, err := Local(3, memoryOfTests(), Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		for _, end := range ends {
			if err := end.Close(); err != nil {
				t.Error(err)
			}
		}
	}()
	ranks := make([]*Transport, len(ends))
	for i, end := range ends {
		ranks[i] = end.(*worldTransport).Transport
	}
	now := ticks.Now()
	for r, since := range []int64{now - 500, now - 1000, now - 400} {
		ranks[r].resumed = since
		ranks[r].stalls()
		_, until := ranks[r].ctl.worked(r)
		if n := int64(*until); n < now || n > ticks.Now() {
			t.Errorf("rank %d began to wait at %d, which is not in [%d, %d]", r, n, now, ticks.Now())
		}
		*until = uint64(now - 100)
	}
	const always = 1 << 50
	for r, want := range []int64{900 + 300, 400 + 300, 400 + 900} {
		if got := ranks[r].peersWorked(always); got != want {
			t.Errorf("rank %d finds that its peers worked for %d ticks, want %d", r, got, want)
		}
		if got := ranks[r].peersWorked(50); got != 0 {
			t.Errorf("rank %d finds that its peers worked for %d of the last 50 ticks, and they waited", r, got)
		}
	}
}
