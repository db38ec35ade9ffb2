package cuda_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/symgrad/symgrad/internal/gpu/cuda/cudatest"
)

// While work does not end nothing is freed and no call waits. After its end resources are freed
// again.
func TestADeviceThatIsStuckFreesNothing(t *testing.T) {
	v := cudatest.Devices(t, 1)[0]
	s, word := stream(t, v, 0), pinned(t, v, 8)
	p, err := v.Alloc(8)
	must(t, err)
	if v.Stuck() {
		t.Error("stuck without a doubt")
	}
	must(t, s.Wait64(word.Device(), 1))
	open := func() { atomic.StoreUint64((*uint64)(word.Pointer()), 1) }
	rescue := time.AfterFunc(patience, open)
	v.Doubt(func() bool {
		idle, err := s.Idle()
		return idle || err != nil
	})
	must(t, v.Free(p))
	if !v.Stuck() {
		t.Error("not stuck behind a wait that does not end")
	}
	if _, _, err := v.Range(p); err != nil {
		t.Errorf("memory was freed: %v", err)
	}
	if !rescue.Stop() {
		t.Error("a call has waited for what does not end")
	}
	open()
	must(t, s.Synchronize())
	if v.Stuck() {
		t.Error("still stuck")
	}
	must(t, v.Free(p))
	if _, _, err := v.Range(p); err == nil {
		t.Error("memory was not freed")
	}
}
