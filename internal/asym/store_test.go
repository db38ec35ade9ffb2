package asym

import (
	"sync"
	"sync/atomic"
	"testing"
)

func TestStoreStores(t *testing.T) {
	var x uint64
	Store(&x, 1<<63|5)
	if x != 1<<63|5 {
		t.Errorf("stored %#x", x)
	}
}

// Message passing: whoever sees the word sees what was written before it.
func TestStorePublishes(t *testing.T) {
	const rounds = 20000
	var data [rounds]uint64
	var word, back uint64
	var wg sync.WaitGroup
	wg.Add(1)
	go func() {
		defer wg.Done()
		for i := range uint64(rounds) {
			for atomic.LoadUint64(&word) <= i {
			}
			if data[i] != i+7 {
				t.Errorf("round %d: the word came before its data, %d", i, data[i])
			}
			Store(&back, i+1)
		}
	}()
	for i := range uint64(rounds) {
		data[i] = i + 7
		Store(&word, i+1)
		for atomic.LoadUint64(&back) <= i {
		}
	}
	wg.Wait()
}
