package shm

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/symgrad/symgrad/dist"
)

// tellingStore is a store that calls asked when a key is requested.
type tellingStore struct {
	*memStore
	asked func(key string)
}

func (s tellingStore) Get(ctx context.Context, key string) ([]byte, error) {
	s.asked(key)
	return s.memStore.Get(ctx, key)
}

// openAlone opens rank 0 of 2, whose rank 1 has a card and never connects, under a context that
// ends when the cards are read.
func openAlone(t *testing.T, ctx context.Context, end func()) error {
	t.Helper()
	own, err := newContact(Config{}.withDefaults().ChunkBytes)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(own)
	if err != nil {
		t.Fatal(err)
	}
	store := tellingStore{newMemStore(), func(key string) {
		if key == "shm/1/card/1" {
			end()
		}
	}}
	if err := store.Set(ctx, "shm/1/card/1", raw); err != nil {
		t.Fatal(err)
	}
	_, err = Open(ctx, 0, 2, store, Config{InitTimeout: time.Hour})
	return err
}

// A cancelled caller gets its own error, and not a timeout.
func TestOpenThatIsCancelledDidNotTimeOut(t *testing.T) {
	ctx, cancel := context.WithCancelCause(context.Background())
	cause := errors.New("the user has had enough")
	err := openAlone(t, ctx, func() { cancel(cause) })
	if !errors.Is(err, cause) || errors.Is(err, dist.ErrTimeout) {
		t.Errorf("%v, want the cause alone", err)
	}
	if !strings.Contains(err.Error(), "connections of ranks 1") {
		t.Errorf("%v does not say who was missing", err)
	}
}

// A deadline of the caller's that comes first is a timeout, but not after InitTimeout.
func TestOpenSaysWhoseDeadlineItWas(t *testing.T) {
	ctx, cancel := context.WithDeadline(context.Background(), time.Unix(1, 0))
	defer cancel()
	err := openAlone(t, ctx, func() {})
	if !errors.Is(err, dist.ErrTimeout) || strings.Contains(err.Error(), "1h") {
		t.Errorf("%v, want a timeout that is not after an hour", err)
	}
}

// A silent connection does not delay a cancelled caller.
func TestGreetEndsWithItsContext(t *testing.T) {
	own, err := newContact(Config{}.withDefaults().ChunkBytes)
	if err != nil {
		t.Fatal(err)
	}
	at := &net.UnixAddr{Name: own.Name, Net: "unixpacket"}
	ln, err := net.ListenUnix("unixpacket", at)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	silent, err := net.DialUnix("unixpacket", nil, at)
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	c, err := ln.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if rank, err := greet(ctx, c, own.Token); err == nil {
		t.Errorf("greeted rank %d", rank)
	}
}

// Ranks that cut the same memory into other chunks would read each other's words: none of them
// opens the world.
func TestChunkBytesMustAgree(t *testing.T) {
	store, errs := newMemStore(), make([]error, 3)
	var ranks sync.WaitGroup
	for r := range errs {
		ranks.Go(func() {
			_, errs[r] = Open(t.Context(), r, len(errs), store, Config{InitTimeout: time.Minute, ChunkBytes: 4096 + r/2})
		})
	}
	ranks.Wait()
	for r, err := range errs {
		if !errors.Is(err, dist.ErrMismatch) || !strings.Contains(err.Error(), "4096") || !strings.Contains(err.Error(), "4097") {
			t.Errorf("rank %d: error %v, want ErrMismatch with both sizes", r, err)
		}
	}
}
