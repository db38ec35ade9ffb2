package asym

import (
	"runtime"
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

// await returns when the word is above i. On one processor it is written when this goroutine lets
// the other run.
func await(word *uint64, i uint64) {
	for looks := 0; atomic.LoadUint64(word) <= i; looks++ {
		if looks > 1000 {
			runtime.Gosched()
		}
	}
}

// Message passing: a reader of the word also sees earlier writes.
func TestStorePublishes(t *testing.T) {
	const rounds = 20000
	var data [rounds]uint64
	var word, back uint64
	var wg sync.WaitGroup
	wg.Add(1)
	go func() {
		defer wg.Done()
		for i := range uint64(rounds) {
			await(&word, i)
			if data[i] != i+7 {
				t.Errorf("round %d: the word came before its data, %d", i, data[i])
			}
			Store(&back, i+1)
		}
	}()
	for i := range uint64(rounds) {
		data[i] = i + 7
		Store(&word, i+1)
		await(&back, i)
	}
	wg.Wait()
}
