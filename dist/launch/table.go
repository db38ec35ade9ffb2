package launch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"github.com/symgrad/symgrad/dist"
)

// Limits of a store. Before a transport exists ranks exchange only small values: addresses, ids,
// hashes, a configuration.
const (
	MaxKeyBytes   = 1 << 10 // longest key
	MaxValueBytes = 4 << 20 // longest value
)

// table is the memory of a store, and the dist.Store of ranks in the same process.
type table struct {
	mu      sync.Mutex
	values  map[string][]byte
	waiting map[string]*waiting
	failed  chan struct{} // closed by fail
	cause   error
}

// waiting counts the Gets that wait for one key.
type waiting struct {
	set  chan struct{} // closed when the value is set
	gets int
}

func newTable() *table {
	return &table{values: map[string][]byte{}, waiting: map[string]*waiting{}, failed: make(chan struct{})}
}

// Set implements dist.Store.
func (t *table) Set(ctx context.Context, key string, value []byte) error {
	if err := checkSet(ctx, key, value); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if errors.Is(t.cause, dist.ErrClosed) {
		return fmt.Errorf("store set %q: %w", key, t.cause)
	}
	t.setLocked(key, bytes.Clone(value))
	return nil
}

func (t *table) setLocked(key string, value []byte) {
	if value == nil {
		value = []byte{}
	}
	t.values[key] = value
	if w := t.waiting[key]; w != nil {
		close(w.set)
		delete(t.waiting, key)
	}
}

// Get implements dist.Store.
func (t *table) Get(ctx context.Context, key string) ([]byte, error) {
	if err := checkGet(ctx, key); err != nil {
		return nil, err
	}
	for {
		value, w, err := t.lookup(key)
		if err != nil {
			return nil, fmt.Errorf("store get %q: %w", key, err)
		}
		if w == nil {
			return value, nil
		}
		select {
		case <-w.set: // look again: a failure meanwhile takes precedence
		case <-t.failed:
			t.leave(key, w)
		case <-ctx.Done():
			t.leave(key, w)
			return nil, fmt.Errorf("store get %q: %w", key, context.Cause(ctx))
		}
	}
}

// lookup returns the value under key, or the channel to wait on.
func (t *table) lookup(key string) ([]byte, *waiting, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.cause != nil {
		return nil, nil, t.cause
	}
	if v, ok := t.values[key]; ok {
		return bytes.Clone(v), nil, nil
	}
	w := t.waiting[key]
	if w == nil {
		w = &waiting{set: make(chan struct{})}
		t.waiting[key] = w
	}
	w.gets++
	return nil, w, nil
}

// leave ends one Get's wait, so that keys without waiting Gets take no memory.
func (t *table) leave(key string, w *waiting) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if w.gets--; w.gets == 0 && t.waiting[key] == w {
		delete(t.waiting, key)
	}
}

// Add implements dist.Store. The counter is stored as decimal text, which Get returns.
func (t *table) Add(ctx context.Context, key string, delta int64) (int64, error) {
	if err := checkGet(ctx, key); err != nil {
		return 0, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if errors.Is(t.cause, dist.ErrClosed) {
		return 0, fmt.Errorf("store add %q: %w", key, t.cause)
	}
	var sum int64
	if v, ok := t.values[key]; ok {
		var err error
		if sum, err = strconv.ParseInt(string(v), 10, 64); err != nil {
			return 0, fmt.Errorf("store add %q: the value there is no counter: %w", key, dist.ErrInvalid)
		}
	}
	sum += delta
	t.setLocked(key, strconv.AppendInt(nil, sum, 10))
	return sum, nil
}

// fail makes pending and later Gets return cause, and later Sets and Adds too if cause is the end
// of the store. The first cause stays.
func (t *table) fail(cause error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.cause == nil {
		t.cause = cause
		close(t.failed)
	}
}

// err returns the cause given to fail.
func (t *table) err() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.cause
}

func checkGet(ctx context.Context, key string) error {
	if key == "" || len(key) > MaxKeyBytes {
		return fmt.Errorf("store key of %d B: want 1 to %d: %w", len(key), MaxKeyBytes, dist.ErrInvalid)
	}
	if ctx.Err() != nil {
		return fmt.Errorf("store key %q: %w", key, context.Cause(ctx))
	}
	return nil
}

func checkSet(ctx context.Context, key string, value []byte) error {
	if len(value) > MaxValueBytes {
		return fmt.Errorf("store set %q: value of %d B: want at most %d: %w", key, len(value), MaxValueBytes, dist.ErrInvalid)
	}
	return checkGet(ctx, key)
}
