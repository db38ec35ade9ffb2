package symmetric

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func newArena(t *testing.T, capacity int64) *Arena {
	t.Helper()
	a, err := NewArena(capacity)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// TestArenaScripts runs one call a word. "a100" allocates 100 bytes, "f512" frees offset 512. The
// expected results are in the same order: an offset, "full", "unknown", or "ok".
func TestArenaScripts(t *testing.T) {
	for name, c := range map[string]struct {
		capacity    int64
		calls, want string
	}{
		"first fit in order":          {4096, "a512 a512 a512", "0 512 1024"},
		"sizes round up":              {4096, "a1 a513 a512", "0 512 1536"},
		"zero bytes take a unit":      {1024, "a0 a0 a0", "0 512 full"},
		"exactly full":                {1024, "a1024 a0 f0 a1024", "0 full ok 0"},
		"tail below a unit is lost":   {1023, "a1 a1", "0 full"},
		"capacity below a unit":       {511, "a0", "full"},
		"no capacity":                 {0, "a0", "full"},
		"a hole is used first":        {4096, "a512 a512 a512 f512 a100", "0 512 1024 ok 512"},
		"a hole too small is skipped": {4096, "a512 a512 a512 f512 a600", "0 512 1024 ok 1536"},
		"neighbours join":             {2048, "a512 a512 a512 a512 f512 f1024 a1024", "0 512 1024 1536 ok ok 512"},
		"neighbours join backwards":   {2048, "a512 a512 a512 a512 f1024 f512 a1024", "0 512 1024 1536 ok ok 512"},
		"three join":                  {2048, "a512 a512 a512 a512 f0 f1024 f512 a1536", "0 512 1024 1536 ok ok ok 0"},
		"fragments do not add up":     {2048, "a512 a512 a512 a512 f0 f1024 a1024", "0 512 1024 1536 ok ok full"},
		"freed twice":                 {2048, "a512 f0 f0", "0 ok unknown"},
		"freed inside":                {2048, "a1024 f512 f0", "0 unknown ok"},
		"freed, never allocated":      {2048, "f0 f-512 f4096", "unknown unknown unknown"},
		"negative size":               {2048, "a-1", "negative"},
		"a refusal changes nothing":   {1024, "a512 a1024 a512", "0 full 512"},
	} {
		t.Run(name, func(t *testing.T) {
			a := newArena(t, c.capacity)
			var got []string
			for _, call := range strings.Fields(c.calls) {
				got = append(got, run(t, a, call))
			}
			if g := strings.Join(got, " "); g != c.want {
				t.Errorf("%s\n got %s\nwant %s", c.calls, g, c.want)
			}
		})
	}
}

func run(t *testing.T, a *Arena, call string) string {
	t.Helper()
	var verb byte
	var n int64
	if _, err := fmt.Sscanf(call, "%c%d", &verb, &n); err != nil {
		t.Fatalf("script: %q: %v", call, err)
	}
	result := "ok"
	var err error
	if verb == 'a' {
		var off int64
		if off, err = a.Alloc(n); err == nil {
			return fmt.Sprint(off)
		}
	} else {
		err = a.Free(n)
	}
	switch {
	case errors.Is(err, ErrNoSpace):
		result = "full"
	case errors.Is(err, ErrNotAllocated):
		result = "unknown"
	case err != nil && strings.Contains(err.Error(), "negative"):
		result = "negative"
	case err != nil:
		t.Fatalf("%s: %v", call, err)
	}
	return result
}

func TestNewArenaRefusesNegativeCapacity(t *testing.T) {
	if a, err := NewArena(-1); err == nil || a != nil {
		t.Errorf("%v, %v", a, err)
	}
}

// Sizes whose rounding up leaves int64 must be refused, not wrap around to a small one.
func TestAllocOfEnormousSizes(t *testing.T) {
	for _, capacity := range []int64{1 << 20, math.MaxInt64} {
		a := newArena(t, capacity)
		for _, n := range []int64{math.MaxInt64, math.MaxInt64 - 1, math.MaxInt64 - Alignment + 2} {
			if off, err := a.Alloc(n); !errors.Is(err, ErrNoSpace) {
				t.Errorf("%d bytes of %d: offset %d, %v", n, capacity, off, err)
			}
		}
		if s := a.Stats(); s.Used != 0 || s.Peak != 0 || s.Regions != 0 {
			t.Errorf("refused calls left %+v", s)
		}
	}
	a := newArena(t, math.MaxInt64)
	const most = math.MaxInt64 &^ (Alignment - 1)
	if off, err := a.Alloc(most); err != nil || off != 0 {
		t.Errorf("the largest multiple of %d: offset %d, %v", Alignment, off, err)
	}
}

func TestErrorsTellTheNumbers(t *testing.T) {
	a := newArena(t, 4096)
	for range 4 {
		if _, err := a.Alloc(1000); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.Free(1024); err != nil {
		t.Fatal(err)
	}
	_, err := a.Alloc(2000)
	want := "arena: 2000 bytes wanted, 3072 of 4096 in use, largest free range 1024: symmetric heap is full"
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	if err := a.Free(7); err == nil || !strings.Contains(err.Error(), "offset 7") {
		t.Errorf("free of an unknown offset: %v", err)
	}
}

func TestStatsKeepThePeak(t *testing.T) {
	a := newArena(t, 8192)
	if s := a.Stats(); s != (Stats{Capacity: 8192}) {
		t.Errorf("new: %+v", s)
	}
	var offs []int64
	for _, n := range []int64{1, 1024, 700} {
		off, err := a.Alloc(n)
		if err != nil {
			t.Fatal(err)
		}
		offs = append(offs, off)
	}
	if s := a.Stats(); s != (Stats{8192, 2560, 2560, 3}) {
		t.Errorf("three regions: %+v", s)
	}
	for _, off := range offs[1:] {
		if err := a.Free(off); err != nil {
			t.Fatal(err)
		}
	}
	if s := a.Stats(); s != (Stats{8192, 512, 2560, 1}) {
		t.Errorf("after two frees: %+v", s)
	}
}

// model is an arena as a map of units, each free (0) or with the number of its region.
type model struct {
	units   []int
	regions map[int]int // number to first unit
	next    int
	peak    int
}

func newModel(capacity int64) *model {
	return &model{units: make([]int, capacity/Alignment), regions: map[int]int{}, next: 1}
}

// alloc is the first unit of the first run of n free units, or -1.
func (m *model) alloc(n int) int {
	for first := 0; first+n <= len(m.units); first++ {
		if slices.ContainsFunc(m.units[first:first+n], func(u int) bool { return u != 0 }) {
			continue
		}
		for i := first; i < first+n; i++ {
			m.units[i] = m.next
		}
		m.regions[m.next] = first
		m.next++
		m.peak = max(m.peak, m.used())
		return first
	}
	return -1
}

func (m *model) free(number int) {
	for i, u := range m.units {
		if u == number {
			m.units[i] = 0
		}
	}
	delete(m.regions, number)
}

func (m *model) used() int {
	n := 0
	for _, u := range m.units {
		if u != 0 {
			n++
		}
	}
	return n
}

func (m *model) numbers() []int {
	var all []int
	for number := range m.regions {
		all = append(all, number)
	}
	slices.Sort(all)
	return all
}

// TestArenaIsFirstFit compares an Arena with the model on random calls. The model keeps regions
// apart by construction, so equal offsets are disjoint and aligned, and free neighbours join. A
// second Arena gets the same calls, as another rank would make them, and must give the same
// offsets.
func TestArenaIsFirstFit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		capacity := rapid.Int64Range(0, 40*Alignment).Draw(t, "capacity")
		a, err := NewArena(capacity)
		if err != nil {
			t.Fatal(err)
		}
		peer, err := NewArena(capacity)
		if err != nil {
			t.Fatal(err)
		}
		m := newModel(capacity)
		t.Repeat(map[string]func(*rapid.T){
			"alloc": func(t *rapid.T) { allocBoth(t, a, peer, m) },
			"free": func(t *rapid.T) {
				numbers := m.numbers()
				if len(numbers) == 0 {
					t.Skip("nothing to free")
				}
				number := rapid.SampledFrom(numbers).Draw(t, "number")
				off := int64(m.regions[number]) * Alignment
				if err := errors.Join(a.Free(off), peer.Free(off)); err != nil {
					t.Fatal(err)
				}
				m.free(number)
			},
			"free nothing": func(t *rapid.T) {
				off := rapid.Int64Range(-Alignment, capacity+Alignment).Draw(t, "off")
				for _, first := range m.regions {
					if int64(first)*Alignment == off {
						t.Skip("something is there")
					}
				}
				if err := a.Free(off); !errors.Is(err, ErrNotAllocated) {
					t.Fatalf("free of %d: %v", off, err)
				}
			},
			"": func(t *rapid.T) {
				want := Stats{capacity, int64(m.used()) * Alignment, int64(m.peak) * Alignment, len(m.regions)}
				if got := a.Stats(); got != want || peer.Stats() != want {
					t.Fatalf("stats %+v and %+v, want %+v", got, peer.Stats(), want)
				}
			},
		})
	})
}

func allocBoth(t *rapid.T, a, peer *Arena, m *model) {
	bytes := rapid.Int64Range(0, 8*Alignment).Draw(t, "bytes")
	want := m.alloc(int((max(bytes, 1) + Alignment - 1) / Alignment))
	off, err := a.Alloc(bytes)
	off2, err2 := peer.Alloc(bytes)
	if (err == nil) != (err2 == nil) || off != off2 {
		t.Fatalf("%d bytes: one rank got %d, %v, the other %d, %v", bytes, off, err, off2, err2)
	}
	if want < 0 {
		if !errors.Is(err, ErrNoSpace) {
			t.Fatalf("%d bytes in a full arena: offset %d, %v", bytes, off, err)
		}
		return
	}
	if err != nil || off != int64(want)*Alignment {
		t.Fatalf("%d bytes: offset %d, %v, want %d", bytes, off, err, want*Alignment)
	}
}

// Freeing everything in any order leaves one range again.
func TestArenaJoinsEverythingAgain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, err := NewArena(64 * Alignment)
		if err != nil {
			t.Fatal(err)
		}
		var offs []int64
		for {
			off, err := a.Alloc(rapid.Int64Range(0, 10*Alignment).Draw(t, "bytes"))
			if err != nil {
				break
			}
			offs = append(offs, off)
		}
		for _, off := range rapid.Permutation(offs).Draw(t, "order") {
			if err := a.Free(off); err != nil {
				t.Fatal(err)
			}
		}
		if off, err := a.Alloc(64 * Alignment); err != nil || off != 0 {
			t.Fatalf("all of it: offset %d, %v", off, err)
		}
	})
}

func BenchmarkArena(b *testing.B) {
	a, err := NewArena(1 << 30)
	if err != nil {
		b.Fatal(err)
	}
	for range 1000 { // a heap with many regions, the worst for first fit
		if _, err := a.Alloc(4096); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		off, err := a.Alloc(1 << 16)
		if err != nil {
			b.Fatal(err)
		}
		if err := a.Free(off); err != nil {
			b.Fatal(err)
		}
	}
}
