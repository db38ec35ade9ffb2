//go:build invariants || race

package invariants

import (
	"bytes"
	"strings"
	"sync"
	"testing"
)

func TestEnabledUnderTheTagAndUnderRace(t *testing.T) {
	if !Enabled {
		t.Fatal("Enabled is false in a build with the tag invariants or -race")
	}
}

// closePanic returns the panic of c.Close, or nil.
func closePanic(c *CloseChecker) (value any) {
	defer func() { value = recover() }()
	c.Close()
	return nil
}

func TestSecondClosePanicsAndShowsTheFirst(t *testing.T) {
	var c CloseChecker
	if p := closePanic(&c); p != nil {
		t.Fatalf("first Close panics: %v", p)
	}
	text, ok := closePanic(&c).(string)
	if !ok || !strings.HasPrefix(text, "BUG: ") {
		t.Fatalf("second Close panics with %q, want a text that starts with BUG:", text)
	}
	if !strings.Contains(text, "TestSecondClosePanicsAndShowsTheFirst") {
		t.Errorf("the panic does not show where the first Close was:\n%s", text)
	}
}

func TestCloseCheckersAreIndependent(t *testing.T) {
	var resource struct {
		a, b CloseChecker
	}
	for name, c := range map[string]*CloseChecker{"a": &resource.a, "b": &resource.b} {
		if p := closePanic(c); p != nil {
			t.Errorf("first Close of %s panics: %v", name, p)
		}
	}
}

func TestOneOfManyConcurrentClosesWins(t *testing.T) {
	const closers = 16
	var c CloseChecker
	var all sync.WaitGroup
	panics := make([]any, closers)
	for i := range closers {
		all.Go(func() { panics[i] = closePanic(&c) })
	}
	all.Wait()
	won := 0
	for _, p := range panics {
		if p == nil {
			won++
		}
	}
	if won != 1 {
		t.Errorf("%d of %d concurrent Closes succeeded, want 1", won, closers)
	}
}

func TestMangleFillsExactlyTheSlice(t *testing.T) {
	for _, n := range []int{0, 1, 7, 4096} {
		whole := bytes.Repeat([]byte{1}, n+2)
		Mangle(whole[1 : n+1])
		want := append(append([]byte{1}, bytes.Repeat([]byte{0xCC}, n)...), 1)
		if !bytes.Equal(whole, want) {
			t.Errorf("%d bytes: not all of them, or others too, are 0xCC", n)
		}
	}
	Mangle(nil)
}
