package data_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
	gtensor "gorgonia.org/tensor"
	"pgregory.net/rapid"

	"github.com/symgrad/symgrad/data"
	"github.com/symgrad/symgrad/dist"
)

// numbers is a data set whose samples are formulas of their number and the epoch.
type numbers struct {
	n      int
	broken map[int]string // error of a sample, or "panic"
}

func (d numbers) Len() int { return d.n }

func (d numbers) Fields() []data.Field {
	return []data.Field{{Name: "x", DType: gtensor.Float32, Shape: []int{2, 3}}, {Name: "y", DType: gtensor.Int}}
}

func (d numbers) Read(i, epoch int, row []data.Values) error {
	switch text := d.broken[i]; text {
	case "":
	case "panic":
		panic("the reader has a bug")
	default:
		return errors.New(text)
	}
	for k := range row[0].Float32 {
		row[0].Float32[k] = float32(1 + i*6 + k + 1000*epoch)
	}
	row[1].Int[0] = 1 + i
	return nil
}

func loader(t interface {
	Helper()
	Fatal(...any)
}, c data.LoaderConfig,
) *data.Loader {
	t.Helper()
	l, err := data.NewLoader(c)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func drawLoader(t *rapid.T) data.LoaderConfig {
	return data.LoaderConfig{Workers: rapid.IntRange(1, 5).Draw(t, "workers"), Ahead: rapid.IntRange(1, 4).Draw(t, "ahead")}
}

// contents returns a copy of a batch.
func contents(t interface{ Fatalf(string, ...any) }, r *data.Rows, err error) (x []float32, y []int) {
	if err != nil {
		t.Fatalf("%v", err)
	}
	for f, shape := range [][]int{{r.Len(), 2, 3}, {r.Len()}} {
		if dense := r.Tensor(f); r.Len() == 0 && dense != nil || r.Len() > 0 && !slices.Equal(dense.Shape(), shape) {
			t.Fatalf("%d samples in a tensor %v, want %v", r.Len(), dense, shape)
		}
	}
	return slices.Clone(r.Values(0).Float32), slices.Clone(r.Values(1).Int)
}

// startRanks returns a loader for each rank, with any number of workers.
func startRanks(t *rapid.T, cfg data.SamplerConfig, size int) (all []*data.Loader) {
	for r := range size {
		cfg.Size, cfg.Rank = size, r
		l := drawLoader(t)
		l.Dataset, l.Order = numbers{n: cfg.Samples}, mustSampler(t, cfg)
		all = append(all, loader(t, l))
	}
	return all
}

func endRanks(t *rapid.T, all []*data.Loader) {
	for _, l := range all {
		if err := errors.Join(l.Close(), l.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

// checkRanks compares the next batch of all ranks with that of one.
func checkRanks(t *rapid.T, ranks []*data.Loader, one *data.Sampler) {
	b := one.Next()
	wantX, wantY := alone(t, numbers{n: one.Cursor().Samples}, b)
	var gotX []float32
	var gotY []int
	for _, l := range ranks {
		rows, err := l.Next()
		x, y := contents(t, rows, err)
		if rows.Epoch != b.Epoch || rows.Step != b.Step || rows.Global != b.Global {
			t.Fatalf("batch %d of epoch %d, want %d of %d", rows.Step, rows.Epoch, b.Step, b.Epoch)
		}
		if l.Cursor() != one.Cursor() {
			t.Fatalf("cursor %+v, want %+v", l.Cursor(), one.Cursor())
		}
		gotX, gotY = append(gotX, x...), append(gotY, y...)
	}
	if !slices.Equal(gotX, wantX) || !slices.Equal(gotY, wantY) {
		t.Fatalf("%d ranks have %v, one has %v", len(ranks), gotY, wantY)
	}
}

// TestLoadersOfAllRanksGiveTheBatchesOfOneRank for any number of ranks and workers, over epochs,
// and after resuming at any step with another number of ranks.
func TestLoadersOfAllRanksGiveTheBatchesOfOneRank(t *testing.T) {
	defer goleak.VerifyNone(t)
	rapid.Check(t, func(t *rapid.T) {
		cfg := drawSampler(t)
		ranks := startRanks(t, cfg, cfg.Size)
		cfg.Size, cfg.Rank = 1, 0
		one := mustSampler(t, cfg)
		for range rapid.IntRange(0, 2*one.Steps()).Draw(t, "steps") {
			checkRanks(t, ranks, one)
		}
		saved, err := json.Marshal(ranks[0].Cursor())
		endRanks(t, ranks)
		var cursor data.Cursor
		if err = errors.Join(err, json.Unmarshal(saved, &cursor)); err != nil {
			t.Fatal(err)
		}
		ranks = startRanks(t, cfg, rapid.IntRange(1, 5).Draw(t, "new size"))
		defer endRanks(t, ranks)
		for _, l := range ranks {
			if rapid.Bool().Draw(t, "elsewhere") {
				_, err = l.Next()
			}
			if err := errors.Join(err, l.Seek(cursor)); err != nil {
				t.Fatal(err)
			}
		}
		for range one.Steps() + 1 {
			checkRanks(t, ranks, one)
		}
	})
}

// alone reads a batch without a loader.
func alone(t interface{ Fatalf(string, ...any) }, ds data.Dataset, b data.Batch) ([]float32, []int) {
	r, err := data.ReadRows(ds, b.Indices, b.Epoch, 0)
	return contents(t, r, err)
}

// TestRowsAfterTheSamplesAreZero also where a longer batch was in the same memory.
func TestRowsAfterTheSamplesAreZero(t *testing.T) {
	s := mustSampler(t, data.SamplerConfig{Samples: 7, GlobalBatch: 5})
	l := loader(t, data.LoaderConfig{Dataset: numbers{n: 7}, Order: s, Rows: 6, Workers: 2, Ahead: 1})
	defer l.Close()
	for step := range 8 {
		rows, err := l.Next()
		if err != nil {
			t.Fatal(err)
		}
		n := 5 - 3*(step%2)
		x, y := rows.Values(0).Float32, rows.Values(1).Int
		if rows.Len() != n || len(x) != 36 || len(y) != 6 || !slices.Equal(rows.Tensor(0).Shape(), []int{6, 2, 3}) || &rows.Tensor(1).Ints()[0] != &y[0] {
			t.Fatalf("step %d: %d samples, %d and %d elements", step, rows.Len(), len(x), len(y))
		}
		for row, label := range y {
			if (label == 0) != (row >= n) || (x[6*row+5] == 0) != (row >= n) {
				t.Fatalf("step %d: %v, %v", step, x, y)
			}
		}
	}
}

// TestErrorsComeWithTheirBatch and are those of its first sample, for any number of workers. Other
// batches are whole.
func TestErrorsComeWithTheirBatch(t *testing.T) {
	defer goleak.VerifyNone(t)
	set := numbers{12, map[int]string{5: "no such place", 7: "later", 9: "panic"}}
	for workers := range 4 {
		l := loader(t, data.LoaderConfig{Dataset: set, Order: mustSampler(t, data.SamplerConfig{Samples: 12, GlobalBatch: 4}), Workers: workers + 1})
		for step, want := range []string{
			"", "loader: batch 1 of epoch 0: sample 5: no such place",
			"loader: batch 2 of epoch 0: sample 9: panic in Dataset.Read of data_test.numbers: the reader has a bug", "",
			"loader: batch 1 of epoch 1: sample 5: no such place",
		} {
			rows, err := l.Next()
			if got := fmt.Sprint(err); want != "" && got != want {
				t.Errorf("step %d: %v, want %s", step, err, want)
			}
			if want == "" {
				if _, y := contents(t, rows, err); y[0] != 1 || y[3] != 4 {
					t.Errorf("step %d: samples %v", step, y)
				}
			}
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := data.ReadRows(set, []int{1, 5}, 0, 0); err == nil || err.Error() != "rows: sample 5: no such place" {
		t.Errorf("%v", err)
	}
}

func TestLoaderRefusesMistakes(t *testing.T) {
	sampler := func() *data.Sampler { return mustSampler(t, data.SamplerConfig{Samples: 9, GlobalBatch: 4}) }
	var none data.Dataset
	for name, c := range map[string]data.LoaderConfig{
		"the data set is nil":               {Dataset: none, Order: sampler()},
		"a data set of 0 samples":           {Dataset: numbers{}, Order: sampler()},
		"the order is nil":                  {Dataset: numbers{n: 9}},
		"-1 workers":                        {Dataset: numbers{n: 9}, Order: sampler(), Workers: -1},
		`field "x" has dtype float64, want`: {Dataset: odd{numbers{n: 9}, data.Field{Name: "x", DType: gtensor.Float64}}, Order: sampler()},
		`field "x" has shape [0], want`:     {Dataset: odd{numbers{n: 9}, data.Field{Name: "x", DType: gtensor.Int, Shape: []int{0}}}, Order: sampler()},
	} {
		if _, err := data.NewLoader(c); !errors.Is(err, dist.ErrInvalid) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	l := loader(t, data.LoaderConfig{Dataset: numbers{n: 3}, Order: sampler()})
	if _, err := l.Next(); !errors.Is(err, dist.ErrInvalid) || !strings.Contains(err.Error(), "sample 3: invalid") || !strings.Contains(err.Error(), "samples 0 to 2") {
		t.Errorf("an order of other samples: %v", err)
	}
	if err := l.Seek(data.Cursor{Samples: 5}); !errors.Is(err, dist.ErrInvalid) || !strings.Contains(err.Error(), "the cursor has Samples 5") {
		t.Errorf("a cursor of another order: %v", err)
	}
	if rows, err := l.Next(); err == nil || rows != nil || !strings.Contains(err.Error(), "batch 1 of epoch 0: sample 4") {
		t.Errorf("after a cursor that was refused: %v", err)
	}
	_ = l.Close()
	_, err := l.Next()
	if seek := l.Seek(data.Cursor{}); !errors.Is(err, dist.ErrClosed) || !errors.Is(seek, dist.ErrClosed) {
		t.Errorf("closed: %v, %v", err, seek)
	}
	l = loader(t, data.LoaderConfig{Dataset: numbers{n: 9}, Order: sampler(), Rows: 3})
	defer l.Close()
	if _, err := l.Next(); !errors.Is(err, dist.ErrInvalid) || !strings.Contains(err.Error(), "4 samples for tensors of 3 rows") {
		t.Errorf("too few rows: %v", err)
	}
	if _, err := data.ReadRows(numbers{n: 9}, []int{9}, 0, 0); !errors.Is(err, dist.ErrInvalid) {
		t.Errorf("sample 9 of 9: %v", err)
	}
}

// odd is a data set of one field that Rows cannot hold.
type odd struct {
	numbers
	field data.Field
}

func (o odd) Fields() []data.Field { return []data.Field{o.field} }

// gate is a data set whose samples wait.
type gate struct {
	numbers
	entered chan int
	open    chan struct{}
}

func (g gate) Read(i, epoch int, row []data.Values) error {
	g.entered <- i
	<-g.open
	return g.numbers.Read(i, epoch, row)
}

// TestLoaderIsBounded reads no more than the batches ahead and the one in use.
func TestLoaderIsBounded(t *testing.T) {
	defer goleak.VerifyNone(t)
	g := gate{numbers{n: 100}, make(chan int, 100), make(chan struct{})}
	l := loader(t, data.LoaderConfig{Dataset: g, Order: mustSampler(t, data.SamplerConfig{Samples: 100, GlobalBatch: 2}), Workers: 50, Ahead: 3})
	seen := map[int]bool{}
	for range 8 {
		seen[<-g.entered] = true
	}
	for i := range 8 { // 4 batches of 2: no other sample is read before the first Next
		if !seen[i] {
			t.Errorf("sample %d is not read ahead: %v", i, seen)
		}
	}
	close(g.open)
	for range 2 { // the second makes the memory of the first free
		if _, err := l.Next(); err != nil {
			t.Fatal(err)
		}
	}
	for want := 8; want < 10; want++ {
		if i := <-g.entered; i != 8 && i != 9 {
			t.Errorf("sample %d follows", i)
		}
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if n := len(g.entered); n != 0 {
		t.Errorf("%d samples too many are read", n)
	}
}

func TestLoaderAllocatesNothing(t *testing.T) {
	tokens := open(t, data.TokensConfig{Paths: []string{files(t, map[string][]byte{"a.bin": make([]byte, 20_002)})}})
	set, err := tokens.Dataset(5)
	if err != nil {
		t.Fatal(err)
	}
	images := cifar10(t, 200, data.Transform{Crop: data.CropRandom, Padding: 4, Flip: true})
	for name, ds := range map[string]data.Dataset{"tokens": set, "images": images} {
		s := mustSampler(t, data.SamplerConfig{Samples: ds.Len(), GlobalBatch: 2, Shuffle: true})
		l := loader(t, data.LoaderConfig{Dataset: ds, Order: s, Workers: 2})
		next := func() {
			rows, err := l.Next()
			if err != nil || rows.Tensor(0) == nil || rows.Tensor(1) == nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		for range 4 { // all memory has its tensors, and goroutines their scratch
			next()
		}
		if n := testing.AllocsPerRun(50, next); n >= 1 {
			t.Errorf("%s: %v allocations a batch", name, n)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestTokensAreADataset(t *testing.T) {
	dir := files(t, map[string][]byte{"a.bin": raw(0, 1, 2, 3), "b.bin": raw(4, 5, 6, 7)})
	tokens := open(t, data.TokensConfig{Paths: []string{dir}, Vocabulary: 7})
	set, err := tokens.Dataset(3)
	if err != nil {
		t.Fatal(err)
	}
	last, err := data.Subset(set, 1, 1)
	if err != nil || last.Len() != 1 || set.Len() != 2 {
		t.Fatalf("%v, %v", last, err)
	}
	rows, err := data.ReadRows(set, []int{0}, 0, 2)
	if err != nil {
		t.Fatal(err)
	}
	flat, err := rows.TensorAs(1, 6)
	same, again := rows.TensorAs(1, 6)
	if _, odd := rows.TensorAs(1, 7); err != nil || again != nil || flat != same || flat.Ints()[2] != 3 || !errors.Is(odd, dist.ErrInvalid) {
		t.Errorf("another shape: %v, %v, %v", flat, err, odd)
	}
	if in, next := rows.Values(0).Int, rows.Values(1).Int; !slices.Equal(in, []int{0, 1, 2, 0, 0, 0}) || !slices.Equal(next, []int{1, 2, 3, 0, 0, 0}) {
		t.Errorf("%v, %v", in, next)
	}
	if rows, err = data.ReadRows(last, []int{0}, 0, 0); err != nil || !slices.Equal(rows.Values(1).Int, []int{4, 5, 6}) {
		t.Errorf("%v, %v", rows, err)
	}
	tokens = open(t, data.TokensConfig{Paths: []string{dir}, Vocabulary: 6})
	if set, err = tokens.Dataset(3); err != nil {
		t.Fatal(err)
	}
	if _, err := data.ReadRows(set, []int{1}, 0, 0); !errors.Is(err, dist.ErrInvalid) || !strings.Contains(err.Error(), "b.bin: invalid") || !strings.Contains(err.Error(), "token 6 at byte 4") {
		t.Errorf("a token beyond the vocabulary: %v", err)
	}
	if _, err := tokens.Dataset(8); !errors.Is(err, dist.ErrInvalid) {
		t.Errorf("samples longer than the text: %v", err)
	}
	for _, r := range [][2]int{{-1, 1}, {0, 0}, {0, 3}, {2, 1}} {
		if _, err := data.Subset(set, r[0], r[1]); !errors.Is(err, dist.ErrInvalid) {
			t.Errorf("subset %v: %v", r, err)
		}
	}
	if err := last.Read(1, 0, nil); !errors.Is(err, dist.ErrInvalid) {
		t.Errorf("sample 1 of 1: %v", err)
	}
}

func TestOneHot(t *testing.T) {
	into := []float32{9, 9, 9, 9, 9, 9}
	if err := data.OneHot(into, []int{2, 0}, 3); err != nil || !slices.Equal(into, []float32{0, 0, 1, 1, 0, 0}) {
		t.Errorf("%v, %v", into, err)
	}
	for _, labels := range [][]int{{0}, {0, 3}, {-1, 0}} {
		if err := data.OneHot(into, labels, 3); !errors.Is(err, dist.ErrInvalid) {
			t.Errorf("%v: %v", labels, err)
		}
	}
}
