package direct

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/symgrad/symgrad/dist"
)

func TestTheNearestRuleCounts(t *testing.T) {
	rules := []Rule{
		{"ll", dist.KindAllReduce, 0, 1 << 10, Shape{Blocks: 1, Threads: 128}},
		{"ll", dist.KindAllReduce, 0, 1 << 14, Shape{Blocks: 8, Threads: 256}},
		{"ll", dist.KindAllReduce, 4, 1 << 14, Shape{Blocks: 16, Threads: 512}},
		{"ll128", dist.KindAllReduce, 0, 1 << 12, Shape{Blocks: 3, Threads: 96}},
	}
	for _, c := range []struct {
		ranks, class int
		want         Shape
	}{
		{2, 0, Shape{Blocks: 1, Threads: 128}},
		{2, 10, Shape{Blocks: 1, Threads: 128}},
		{2, 11, Shape{Blocks: 8, Threads: 256}},
		{2, 14, Shape{Blocks: 8, Threads: 256}},
		{4, 14, Shape{Blocks: 10, Threads: 512}}, // of 16 blocks 10 run at once
		{4, 30, Shape{Blocks: 10, Threads: 512}},
	} {
		got := newShapes(short, c.ranks, 10, rules)[dist.KindAllReduce][c.class]
		if got != c.want {
			t.Errorf("%d ranks, class %d: %v, want %v", c.ranks, c.class, got, c.want)
		}
	}
}

func TestRanksWithoutRulesTakeThoseOfTheNextLarger(t *testing.T) {
	shape := func(blocks int) Shape { return Shape{Blocks: blocks, Threads: 64} }
	rules := []Rule{
		{"ll", dist.KindAllReduce, 2, 1 << 10, shape(2)},
		{"ll", dist.KindAllReduce, 4, 1 << 10, shape(4)},
		{"ll128", dist.KindAllReduce, 0, 1 << 10, shape(9)},
		{"tiles", dist.KindReduceScatter, 8, 1 << 10, shape(8)},
	}
	for i, want := range []int{2, 2, 4, 4, 4, 4, 4, 4} {
		if got := newShapes(short, i+1, MaxBlocks, rules)[dist.KindAllReduce][10]; got != shape(want) {
			t.Errorf("%d ranks: %v, want %v", i+1, got, shape(want))
		}
		if got := newShapes(line, i+1, MaxBlocks, rules)[dist.KindAllReduce][10]; got != shape(9) {
			t.Errorf("%d ranks: %v, want the rule of any number", i+1, got)
		}
	}
}

// A limit removes blocks, and gives the remaining ones all threads. Shapes within it stay as
// measured.
func TestShapesStayWithinABound(t *testing.T) {
	rules := []Rule{
		{"tiles", dist.KindAllReduce, 0, 1 << 10, Shape{8, 256, 2 << 10}},
		{"tiles", dist.KindAllReduce, 0, 1 << 20, Shape{16, 256, 8 << 10}},
		{"tiles", dist.KindAllReduce, 0, 1 << 28, Shape{112, 512, 8 << 10}},
	}
	for _, c := range []struct {
		most, limit, class int
		want               Shape
	}{
		{MaxBlocks, MaxBlocks, 28, Shape{112, 512, 8 << 10}},
		{MaxBlocks, 32, 10, Shape{8, 256, 2 << 10}},
		{MaxBlocks, 32, 20, Shape{16, 256, 8 << 10}},
		{MaxBlocks, 16, 20, Shape{16, 256, 8 << 10}},
		{MaxBlocks, 15, 20, Shape{15, 512, 8 << 10}},
		{MaxBlocks, 32, 28, Shape{32, 512, 8 << 10}},
		{MaxBlocks, 1, 10, Shape{1, 512, 2 << 10}},
		{12, MaxBlocks, 20, Shape{12, 256, 8 << 10}}, // of a small GPU, whose threads nobody has measured
		{12, 8, 20, Shape{8, 512, 8 << 10}},
	} {
		got := newShapes(tiles, 2, c.most, rules).within(c.limit)[dist.KindAllReduce][c.class]
		if got != c.want {
			t.Errorf("%d blocks run at once, at most %d, class %d: %v, want %v", c.most, c.limit, c.class, got, c.want)
		}
	}
}

// The shapes of the program, and those that are guessed.
func TestEveryShapeStaysWithinABound(t *testing.T) {
	measured, err := builtinRules()
	if err != nil {
		t.Fatal(err)
	}
	for _, rules := range [][]Rule{measured, nil} {
		for w := range engineKinds {
			free := newShapes(w, 2, MaxBlocks, rules)
			for kind, row := range newShapes(w, 2, MaxBlocks, rules).within(8) {
				for class, s := range row {
					was := free[kind][class]
					if err := s.validate(); err != nil || s.Blocks > 8 || s.Tile != was.Tile || was.Blocks <= 8 && s != was {
						t.Errorf("%s %v, class %d: %v has become %v, error %v", w.name(), dist.Kind(kind), class, was, s, err)
					}
				}
			}
		}
	}
}

// Measurements among 2 and 4 ranks apply to tiles; those among 4 also to a reduce-scatter, whose
// slices are those of the allreduce.
func TestTilesHaveMeasuredShapes(t *testing.T) {
	rules, err := builtinRules()
	if err != nil {
		t.Fatal(err)
	}
	for n := 1; n <= MaxRanks; n++ {
		s := newShapes(tiles, n, MaxBlocks, rules)
		for class := range sizeClasses {
			if a, b := s[dist.KindAllReduce][class], s[dist.KindReduceScatter][class]; n > 2 && a != b || a.Tile == 0 || b.Tile == 0 {
				t.Errorf("%d ranks, class %d: allreduce %v, reduce-scatter %v", n, class, a, b)
			}
		}
		want := Shape{112, 256, 16 << 10}
		if n > 2 {
			want.Tile = 8 << 10
		}
		if got := s[dist.KindAllReduce][28]; got != want {
			t.Errorf("%d ranks, 256 MiB: %v, want %v", n, got, want)
		}
	}
}

func TestGuessesAreShapes(t *testing.T) {
	for w := range engineKinds {
		last := 0
		for c := range sizeClasses {
			s := w.guess(1 << c)
			if err := s.validate(); err != nil {
				t.Errorf("%s, %d B: %v", w.name(), uint64(1)<<c, err)
			}
			if s.Blocks < last {
				t.Errorf("%s, %d B: %v has fewer blocks than half the bytes", w.name(), uint64(1)<<c, s)
			}
			last = s.Blocks
		}
	}
	for w := range engineKinds {
		for _, s := range w.sweepShapes() {
			if err := s.validate(); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestSizeClasses(t *testing.T) {
	for bytes, want := range map[uint64]int{0: 0, 1: 0, 2: 1, 3: 2, 1024: 10, 1025: 11, 1 << 60: sizeClasses - 1} {
		if got := sizeClass(bytes); got != want {
			t.Errorf("%d B: class %d, want %d", bytes, got, want)
		}
	}
}

func TestNamesAreThoseOfTheTables(t *testing.T) {
	for i, name := range Names() {
		w, ok := kindNamed(name)
		if !ok || int(w) != i || w.name() != name {
			t.Errorf("%q is way %d, known %v", name, w, ok)
		}
		if !w.native(dist.KindAllReduce) {
			t.Errorf("%q has no allreduce of its own", name)
		}
	}
	if _, ok := kindNamed("tree"); ok {
		t.Error(`"tree" is a way`)
	}
}

func TestRulesComeBackFromTheirFile(t *testing.T) {
	rules := []Rule{
		{"ll", dist.KindAllReduce, 2, 1 << 10, Shape{Blocks: 1, Threads: 128}},
		{"twoshot", dist.KindReduceScatter, 0, 1 << 28, Shape{Blocks: 96, Threads: 512}},
	}
	got, err := DecodeRules(EncodeRules(rules))
	if err != nil || !slices.Equal(got, rules) {
		t.Errorf("%v, error %v; want %v", got, err, rules)
	}
	for want, text := range map[string]string{
		"unknown field":         `[{"engine":"ll","shape":"1x32"}]`,
		`rule 0`:                `[{"engine":"ll","kind":"allreduce","bytes":4,"blocks":0,"threads":32}]`,
		`operation "allreduc"`:  `[{"engine":"ll","kind":"allreduc","bytes":4,"blocks":1,"threads":32}]`,
		"unexpected EOF":        `[{"engine":`,
		"data after their end":  "[]\n[]",
		`unknown engine "ring"`: `[{"engine":"ring","kind":"allreduce","bytes":4,"blocks":1,"threads":32}]`,
		"of 32, 64, ... or 512": `[{"engine":"ll","kind":"allreduce","bytes":4,"blocks":1,"threads":1024}]`,
	} {
		if _, err := DecodeRules([]byte(text)); !errors.Is(err, dist.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", text, err, want)
		}
	}
}

func TestRulesOfTheProgramAreValid(t *testing.T) {
	rules, err := builtinRules()
	if err != nil {
		t.Fatal(err)
	}
	for w := range engineKinds {
		for n := 1; n <= MaxRanks; n++ {
			for kind, row := range newShapes(w, n, MaxBlocks, rules) {
				for class, s := range row {
					if err := s.validate(); err != nil {
						t.Errorf("%s %v among %d, class %d: %v", w.name(), dist.Kind(kind), n, class, err)
					}
				}
			}
		}
	}
}
