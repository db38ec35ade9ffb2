package hosts

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/symgrad/symgrad/internal/net/wire"
)

// store is a dist.Store of the ranks of one host, over the wire. The first of them keeps the values
// and answers the others until all have closed the store.
type store struct {
	w     wire.Wire
	keeps int // rank that keeps the values
	own   bool

	mu      sync.Mutex
	changed chan struct{} // closed and replaced at every change
	values  map[string][]byte
	sums    map[string]int64

	served chan error // of the goroutine that answers
}

// storeBytes is the most bytes of a request or an answer.
const storeBytes = 64 << 10

// ask is a request.
type ask struct {
	Verb  string // "set", "get", "add", "bye"
	Key   string
	Value []byte
	Delta int64
}

// answer is its reply.
type answer struct {
	Value []byte
	Sum   int64
}

// newStore returns the store of members, ranks of the wire in ascending order.
func newStore(w wire.Wire, members []int) *store {
	s := &store{
		w: w, keeps: members[0], own: members[0] == w.Info().Rank,
		changed: make(chan struct{}), values: map[string][]byte{}, sums: map[string]int64{}, served: make(chan error, 1),
	}
	if s.own {
		go func() { s.served <- s.serve(members[1:]) }()
	}
	return s
}

// Set implements dist.Store.
func (s *store) Set(ctx context.Context, key string, value []byte) error {
	if s.own {
		s.set(key, value)
		return nil
	}
	_, err := s.ask(ctx, ask{Verb: "set", Key: key, Value: value})
	return err
}

// Get implements dist.Store.
func (s *store) Get(ctx context.Context, key string) ([]byte, error) {
	if !s.own {
		a, err := s.ask(ctx, ask{Verb: "get", Key: key})
		return a.Value, err
	}
	for {
		s.mu.Lock()
		value, known := s.values[key]
		changed := s.changed
		s.mu.Unlock()
		if known {
			return value, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// Add implements dist.Store.
func (s *store) Add(ctx context.Context, key string, delta int64) (int64, error) {
	if s.own {
		return s.add(key, delta), nil
	}
	a, err := s.ask(ctx, ask{Verb: "add", Key: key, Delta: delta})
	return a.Sum, err
}

func (s *store) set(key string, value []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.values[key] = slices.Clone(value)
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *store) add(key string, delta int64) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sums[key] += delta
	return s.sums[key]
}

// ask sends a request to the rank that keeps the values and returns its answer.
func (s *store) ask(ctx context.Context, q ask) (answer, error) {
	data, err := json.Marshal(q)
	if err != nil || len(data) > storeBytes {
		return answer{}, errors.Join(err, fmt.Errorf("request of %d bytes, and %d are possible", len(data), storeBytes))
	}
	var out, in wire.Request
	buf := make([]byte, storeBytes)
	s.w.Recv(&in, s.keeps, tagAnswer, buf)
	s.w.Send(&out, s.keeps, tagAsk, data)
	if err := wire.Wait(s.w, causeOf(ctx), &out, &in); err != nil {
		return answer{}, fmt.Errorf("store of rank %d: %w", s.keeps, err)
	}
	_, n, _ := in.Result()
	var a answer
	return a, json.Unmarshal(buf[:n], &a)
}

// close ends the store after all ranks of the host have called it.
func (s *store) close(ctx context.Context) error {
	if !s.own {
		_, err := s.ask(ctx, ask{Verb: "bye"})
		return err
	}
	select {
	case err := <-s.served:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// client is the state of one rank that asks.
type client struct {
	rank    int
	in, out wire.Request
	buf     [storeBytes]byte
	data    []byte
	gets    string // key of a request that waits for its value
	gone    bool
}

// serve answers ranks until all have said goodbye.
func (s *store) serve(ranks []int) error {
	clients := make([]*client, len(ranks))
	for i, r := range ranks {
		clients[i] = &client{rank: r}
		s.w.Recv(&clients[i].in, r, tagAsk, clients[i].buf[:])
	}
	var pause wire.Backoff
	for {
		open := false
		for _, c := range clients {
			if !c.gone || c.out.Pending() {
				open = true
			}
			if err := s.advance(c); err != nil {
				return err
			}
		}
		if !open {
			return nil
		}
		if s.w.Progress() {
			pause.Reset()
		} else {
			pause.Pause()
		}
	}
}

// advance handles the next request of c, if it has come.
func (s *store) advance(c *client) error {
	if c.gets != "" {
		s.mu.Lock()
		value, known := s.values[c.gets]
		s.mu.Unlock()
		if known {
			c.gets = ""
			return s.reply(c, answer{Value: value})
		}
	}
	if c.gone || c.gets != "" || c.in.Pending() || c.out.Pending() {
		return nil
	}
	_, n, err := c.in.Result()
	if err != nil {
		return fmt.Errorf("store: request of rank %d: %w", c.rank, err)
	}
	var q ask
	if err := json.Unmarshal(c.buf[:n], &q); err != nil {
		return fmt.Errorf("store: request of rank %d: %w", c.rank, err)
	}
	var a answer
	switch q.Verb {
	case "set":
		s.set(q.Key, q.Value)
	case "get":
		c.gets = q.Key
		return nil
	case "add":
		a.Sum = s.add(q.Key, q.Delta)
	case "bye":
		c.gone = true
	}
	return s.reply(c, a)
}

// reply answers c and listens for its next request.
func (s *store) reply(c *client, a answer) error {
	var err error
	if c.data, err = json.Marshal(a); err != nil {
		return err
	}
	s.w.Send(&c.out, c.rank, tagAnswer, c.data)
	if !c.gone {
		s.w.Recv(&c.in, c.rank, tagAsk, c.buf[:])
	}
	return nil
}
