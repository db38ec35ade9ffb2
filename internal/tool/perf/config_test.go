package perf

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

func TestZeroConfigIsTheDefault(t *testing.T) {
	cases := Config{}.Cases(2)
	if err := (Config{}).Validate(2); err != nil || len(cases) != 12 {
		t.Fatalf("%d cases, %v", len(cases), err)
	}
	first, last := cases[0], cases[11]
	if want := (Case{AllReduce, tensor.F32, dist.RedSum, 8, 2, false, -1}); first != want {
		t.Errorf("first %+v, want %+v", first, want)
	}
	if last.Bytes != 32<<20 {
		t.Errorf("last %+v", last)
	}
}

func TestCasesCountAsTheVerbsDo(t *testing.T) {
	for _, c := range []struct {
		op     Op
		dt     tensor.DType
		counts []int
		bytes  []int64
		root   int
	}{
		{AllReduce, tensor.F32, []int{1, 2, 8, 32}, []int64{4, 8, 32, 128}, -1},
		{Broadcast, tensor.F64, []int{1, 4, 16}, []int64{8, 32, 128}, 1}, // 2 bytes and 8 are both one element
		{AllGather, tensor.F32, []int{1, 2, 10}, []int64{12, 24, 120}, -1},
		{Scatter, tensor.U8, []int{1, 2, 10, 42}, []int64{3, 6, 30, 126}, 1},
		{Barrier, tensor.F32, []int{0}, []int64{0}, -1},
		{Atomics, tensor.F32, []int{1}, []int64{8}, -1},
	} {
		cfg := Config{Ops: []Op{c.op}, DTypes: []tensor.DType{c.dt}, MinBytes: 2, MaxBytes: 128, Root: 1}
		var counts []int
		var bytes []int64
		for _, k := range cfg.Cases(3) {
			counts, bytes = append(counts, k.Count), append(bytes, k.Bytes)
			if k.Root != c.root {
				t.Errorf("%v: root %d, want %d", c.op, k.Root, c.root)
			}
		}
		if !slices.Equal(counts, c.counts) || !slices.Equal(bytes, c.bytes) {
			t.Errorf("%v: counts %v, bytes %v, want %v, %v", c.op, counts, bytes, c.counts, c.bytes)
		}
	}
}

func TestCasesMultiplyOnlyWhatCounts(t *testing.T) {
	cfg := Config{
		Ops:    []Op{AllReduce, AllToAll, Barrier},
		DTypes: []tensor.DType{tensor.F32, tensor.I8}, RedOps: []dist.RedKind{dist.RedSum, dist.RedMax},
		MinBytes: 64, MaxBytes: 64,
	}
	for _, c := range []struct {
		inPlace, both bool
		want          int
	}{
		{false, false, 2*2 + 2 + 1},
		{true, false, 2 * 2},
		{false, true, 2*2*2 + 2 + 1},
	} {
		cfg.InPlace, cfg.Both = c.inPlace, c.both
		if got := cfg.Cases(2); len(got) != c.want {
			t.Errorf("in place %v, both %v: %d cases, want %d: %v", c.inPlace, c.both, len(got), c.want, got)
		}
	}
	cfg.Ops = []Op{AllReduce}
	if k := cfg.Cases(2); k[0].InPlace || !k[1].InPlace || k[0].Bytes != k[1].Bytes || k[0].Red != k[1].Red {
		t.Errorf("both ways are not side by side: %+v", k[:2])
	}
}

func TestValidateRefuses(t *testing.T) {
	for want, c := range map[string]struct {
		cfg   Config
		ranks int
	}{
		"0 ranks":                     {Config{}, 0},
		"want 0 to 1024G":             {Config{MaxBytes: 1 << 41}, 2},
		"from -8 to":                  {Config{MinBytes: -8}, 2},
		"1K, is larger than":          {Config{MinBytes: 1 << 10, MaxBytes: 8}, 2},
		"step of -1":                  {Config{StepBytes: -1}, 2},
		"step factor of 1":            {Config{Factor: 1}, 2},
		"more than 65536 sizes":       {Config{StepBytes: 1}, 2},
		"-1 iterations":               {Config{Iters: -1}, 2},
		"16777217 iterations":         {Config{Iters: 1<<24 + 1}, 2},
		"root 2: want 0 to 1":         {Config{Root: 2}, 2},
		`unknown style "mpi": use`:    {Config{Style: "mpi"}, 2},
		"a moment between iterations": {Config{Fresh: true, Style: BackToBack}, 2},
		"pingpong needs 2":            {Config{Ops: []Op{PingPong}}, 1},
		"private buffers":             {Config{Private: true, Ops: []Op{AllReduce, Put}}, 2},
		"and of floating-point":       {Config{RedOps: []dist.RedKind{dist.RedAnd}}, 2},
		"choose one":                  {Config{InPlace: true, Both: true}, 2},
		"has a form in place":         {Config{InPlace: true, Ops: []Op{AllToAll, Barrier}}, 2},
	} {
		err := c.cfg.Validate(c.ranks)
		if !errors.Is(err, dist.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: error %v, want one with %q", c.cfg, err, want)
		}
	}
}

func TestIterationsFollowTheSize(t *testing.T) {
	for _, c := range []struct {
		cfg           Config
		bytes         int64
		iters, warmup int
	}{
		{Config{}, 0, 10000, 1000},
		{Config{}, 8, 10000, 1000},
		{Config{}, 1 << 20, 256, 25},
		{Config{}, 64 << 20, 20, 2},
		{Config{Iters: 5}, 8, 5, 2},
		{Config{Iters: 50, Warmup: 7}, 8, 50, 7},
		{Config{Iters: 50, Warmup: -1}, 8, 50, 0},
	} {
		if i, w := c.cfg.iters(Case{Bytes: c.bytes}), c.cfg.warmup(Case{Bytes: c.bytes}); i != c.iters || w != c.warmup {
			t.Errorf("%+v at %d B: %d and %d, want %d and %d", c.cfg, c.bytes, i, w, c.iters, c.warmup)
		}
	}
}

func TestHashTellsConfigurationsApart(t *testing.T) {
	a := Config{Ops: []Op{AllReduce, Barrier}, MaxBytes: 64}
	b := a
	if a.hash(nil) != b.hash(nil) {
		t.Error("equal configurations differ")
	}
	for _, change := range []func(*Config){
		func(c *Config) { c.Ops = []Op{Barrier, AllReduce} },
		func(c *Config) { c.Fresh = true },
		func(c *Config) { c.Iters = 1 },
	} {
		b = a
		change(&b)
		if a.hash(nil) == b.hash(nil) {
			t.Errorf("%+v and %+v are taken for one", a, b)
		}
	}
}
