package launch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/symgrad/symgrad/dist"
)

// opener makes two ends of one empty store.
type opener func(t *testing.T) (a, b dist.Store)

// storeSuite tests the contract of dist.Store for every store of this package.
func storeSuite(t *testing.T, open opener) {
	for _, c := range storeCases {
		t.Run(c.name, func(t *testing.T) { c.run(t, open) })
	}
}

var storeCases = []struct {
	name string
	run  func(t *testing.T, open opener)
}{
	{"a value set is the value got", func(t *testing.T, open opener) {
		a, b := open(t)
		for _, value := range []string{"one", "", "two", strings.Repeat("x", MaxValueBytes)} {
			if err := a.Set(t.Context(), "key", []byte(value)); err != nil {
				t.Fatal(err)
			}
			got, err := b.Get(t.Context(), "key")
			if err != nil || string(got) != value {
				t.Fatalf("got %d B, %v, want %d B", len(got), err, len(value))
			}
		}
	}},
	{"get waits for set", func(t *testing.T, open opener) {
		a, b := open(t)
		got := make(chan string)
		for range 3 {
			go func() {
				v, err := b.Get(t.Context(), "later")
				got <- fmt.Sprint(string(v), err)
			}()
		}
		if err := a.Set(t.Context(), "other", nil); err != nil {
			t.Fatal(err)
		}
		if err := a.Set(t.Context(), "later", []byte("v")); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if v := <-got; v != "v<nil>" {
				t.Errorf("got %s", v)
			}
		}
	}},
	{"adds sum up", func(t *testing.T, open opener) {
		a, b := open(t)
		var wg sync.WaitGroup
		for _, s := range []dist.Store{a, b, a, b} {
			wg.Go(func() {
				for range 25 {
					if _, err := s.Add(t.Context(), "n", 2); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		if n, err := a.Add(t.Context(), "n", -250); n != -50 || err != nil {
			t.Errorf("got %d, %v, want -50", n, err)
		}
		if v, err := b.Get(t.Context(), "n"); string(v) != "-50" || err != nil {
			t.Errorf("got %s, %v, want -50", v, err)
		}
	}},
	{"a wrong call is ErrInvalid and harms nothing", func(t *testing.T, open opener) {
		a, b := open(t)
		if err := a.Set(t.Context(), "text", []byte("no number")); err != nil {
			t.Fatal(err)
		}
		_, addErr := b.Add(t.Context(), "text", 1)
		_, getErr := b.Get(t.Context(), "")
		for name, err := range map[string]error{
			"add to text":   addErr,
			"get of no key": getErr,
			"long key":      a.Set(t.Context(), strings.Repeat("k", MaxKeyBytes+1), nil),
			"long value":    a.Set(t.Context(), "k", make([]byte, MaxValueBytes+1)),
		} {
			if !errors.Is(err, dist.ErrInvalid) {
				t.Errorf("%s: got %v, want dist.ErrInvalid", name, err)
			}
		}
		if v, err := b.Get(t.Context(), "text"); string(v) != "no number" || err != nil {
			t.Errorf("got %s, %v afterwards", v, err)
		}
	}},
	{"a get that is given up ends, and the store goes on", func(t *testing.T, open opener) {
		a, b := open(t)
		reason := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		got := make(chan error)
		go func() {
			_, err := b.Get(ctx, "never")
			got <- err
		}()
		if _, err := b.Add(t.Context(), "n", 1); err != nil { // b works during its waiting Get
			t.Fatal(err)
		}
		cancel(reason)
		if err := <-got; !errors.Is(err, reason) || !strings.Contains(err.Error(), `"never"`) {
			t.Errorf("got %v, want the cause and the key", err)
		}
		if _, err := b.Get(ctx, "n"); !errors.Is(err, reason) {
			t.Errorf("get with an ended context: %v", err)
		}
		if err := a.Set(t.Context(), "never", []byte("now")); err != nil {
			t.Fatal(err)
		}
		if v, err := b.Get(t.Context(), "never"); string(v) != "now" || err != nil {
			t.Errorf("got %s, %v", v, err)
		}
	}},
	{"what is set and got is a copy", func(t *testing.T, open opener) {
		a, b := open(t)
		value := []byte("abc")
		if err := a.Set(t.Context(), "k", value); err != nil {
			t.Fatal(err)
		}
		value[0] = 'X'
		first, err := b.Get(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		first[1] = 'X'
		if v, err := b.Get(t.Context(), "k"); !bytes.Equal(v, []byte("abc")) || err != nil {
			t.Errorf("got %s, %v", v, err)
		}
	}},
}

func TestTableIsAStore(t *testing.T) {
	storeSuite(t, func(*testing.T) (dist.Store, dist.Store) {
		table := newTable()
		return table, table
	})
}

func TestTableFailsPendingAndLaterGets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := newTable()
		if err := table.Set(t.Context(), "there", nil); err != nil {
			t.Fatal(err)
		}
		got := make(chan error, 1)
		go func() {
			_, err := table.Get(t.Context(), "never")
			got <- err
		}()
		synctest.Wait()
		table.fail(&dist.RankError{Rank: 2, How: "test"})
		table.fail(&dist.RankError{Rank: 3, How: "too late"})
		_, later := table.Get(t.Context(), "there")
		for _, err := range []error{<-got, later} {
			var dead *dist.RankError
			if !errors.As(err, &dead) || dead.Rank != 2 {
				t.Errorf("got %v, want the death of rank 2", err)
			}
		}
		if len(table.waiting) != 0 {
			t.Errorf("%d keys are waited for by nobody", len(table.waiting))
		}
	})
}

func TestTableKeepsNothingForGetsThatGaveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := newTable()
		ctx, cancel := context.WithCancel(t.Context())
		got := make(chan error, 2)
		for _, ctx := range []context.Context{ctx, t.Context()} {
			go func() {
				_, err := table.Get(ctx, "k")
				got <- err
			}()
		}
		synctest.Wait()
		cancel()
		if err := <-got; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if len(table.waiting) != 1 {
			t.Errorf("%d keys are waited for, want the one of the Get that still waits", len(table.waiting))
		}
		if err := table.Set(t.Context(), "k", nil); err != nil {
			t.Error(err)
		}
		if err := <-got; err != nil {
			t.Error(err)
		}
		if len(table.waiting) != 0 {
			t.Errorf("%d keys are waited for by nobody", len(table.waiting))
		}
	})
}
