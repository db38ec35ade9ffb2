package symmetric

import (
	"errors"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestAlignmentIsAPowerOfTwoUpToTheMost(t *testing.T) {
	for _, c := range []struct {
		alignment, most int64
		want            string // part of the error; "" for none
	}{
		{1, MaxAlignment, ""},
		{8, MaxAlignment, ""},
		{Alignment, MaxAlignment, ""},
		{MaxAlignment, MaxAlignment, ""},
		{1 << 62, math.MaxInt64, ""},
		{0, MaxAlignment, "0 is no power of two"},
		{-8, MaxAlignment, "-8 is no power of two"},
		{math.MinInt64, math.MaxInt64, "is no power of two"},
		{24, MaxAlignment, "24 is no power of two"},
		{2 * MaxAlignment, MaxAlignment, "8192 is more than the maximum of 4096"},
	} {
		err := CheckAlignment(c.alignment, c.most)
		if c.want == "" {
			if err != nil {
				t.Errorf("%d of %d: %v", c.alignment, c.most, err)
			}
			continue
		}
		if !errors.Is(err, ErrAlignment) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%d of %d: error %v, want ErrAlignment with %q", c.alignment, c.most, err, c.want)
		}
	}
}

// A range that an alignment skips stays free for regions that fit there.
func TestArenaAlignedUsesTheGapItLeaves(t *testing.T) {
	a := newArena(t, 4*4096)
	for _, c := range []struct{ alignment, bytes, want int64 }{
		{Alignment, 100, 0},
		{4096, 100, 4096}, // leaves 512 to 4096
		{Alignment, 3000, 512},
		{8192, 8192, 8192},
		{1, 100, 3584},
		{64, 100, 4608},
	} {
		off, err := a.Aligned(c.alignment, c.bytes)
		if err != nil || off != c.want {
			t.Errorf("%d B at a multiple of %d: offset %d, %v; want %d", c.bytes, c.alignment, off, err, c.want)
		}
	}
	if off, err := a.Aligned(4096, 1); !errors.Is(err, ErrNoSpace) {
		t.Errorf("no multiple of 4096 is free: offset %d, %v", off, err)
	}
	if off, err := a.Aligned(48, 1); !errors.Is(err, ErrAlignment) {
		t.Errorf("48 is no power of two: offset %d, %v", off, err)
	}
	if off, err := a.Aligned(1<<62, math.MaxInt64-Alignment); !errors.Is(err, ErrNoSpace) {
		t.Errorf("more than there is, far out: offset %d, %v", off, err)
	}
}

// After any allocations and frees, regions have their alignment, are inside the arena, and are
// disjoint.
func TestArenaAlignedRegionsAreDisjoint(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const capacity = 64 << 10
		a, err := NewArena(capacity)
		if err != nil {
			t.Fatal(err)
		}
		var held []span
		for range rapid.IntRange(1, 60).Draw(t, "calls") {
			if len(held) > 0 && rapid.Bool().Draw(t, "free") {
				i := rapid.IntRange(0, len(held)-1).Draw(t, "which")
				if err := a.Free(held[i].off); err != nil {
					t.Fatal(err)
				}
				held = append(held[:i], held[i+1:]...)
				continue
			}
			alignment := int64(1) << rapid.IntRange(0, 14).Draw(t, "alignment")
			bytes := rapid.Int64Range(0, 9000).Draw(t, "bytes")
			off, err := a.Aligned(alignment, bytes)
			if errors.Is(err, ErrNoSpace) {
				continue
			}
			if err != nil || off%alignment != 0 || off%Alignment != 0 || off < 0 || off+bytes > capacity {
				t.Fatalf("%d B at a multiple of %d: offset %d, %v", bytes, alignment, off, err)
			}
			for _, s := range held {
				if off < s.off+s.bytes && s.off < off+max(bytes, 1) {
					t.Fatalf("%d B at %d overlap %d B at %d", bytes, off, s.bytes, s.off)
				}
			}
			held = append(held, span{off, max(bytes, 1)})
		}
		if s := a.Stats(); s.Regions != len(held) {
			t.Fatalf("%+v with %d regions", s, len(held))
		}
	})
}
