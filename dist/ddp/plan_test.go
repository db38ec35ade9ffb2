package ddp

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/symgrad/symgrad/tensor"
)

// small is a plan for bounds of 16 and 40 bytes.
func small(params ...PlanParam) *Plan {
	p := &Plan{Params: params, Memory: "a test"}
	order := make([]int, len(params)) // the last parameter's gradient comes first
	for i := range order {
		order[i] = len(params) - 1 - i
	}
	p.fill(order, 16, 40, 1)
	return p
}

func f32s(name string, n int) PlanParam {
	return PlanParam{Name: name, Shape: []int{n}, DType: tensor.F32}
}

func f64s(name string, n int) PlanParam {
	return PlanParam{Name: name, Shape: []int{n}, DType: tensor.F64}
}

func TestBucketsFillInTheOrderOfGradients(t *testing.T) {
	for _, c := range []struct {
		name string
		plan *Plan
		want string
	}{
		{"one", small(f32s("a", 1)), "f32: a"},
		{"scalar", small(PlanParam{Name: "s", DType: tensor.F64}), "f64: s"},
		{
			"first bucket small, later ones larger", small(f32s("e", 5), f32s("d", 5), f32s("c", 1), f32s("b", 2), f32s("a", 2)),
			"f32: a b | f32: c d | f32: e",
		},
		{"exactly full", small(f32s("c", 10), f32s("b", 2), f32s("a", 2)), "f32: a b | f32: c"},
		{"larger than the bound", small(f32s("c", 1), f32s("b", 100), f32s("a", 1)), "f32: a | f32: b | f32: c"},
		{"larger than the bound at the start", small(f32s("b", 1), f32s("a", 100)), "f32: a | f32: b"},
		{
			"a first bucket for each dtype", small(f64s("d", 2), f32s("c", 2), f64s("b", 1), f32s("a", 2)),
			"f64: b | f32: a c | f64: d",
		},
		{
			"in the order in which they are full", small(f32s("d", 4), f64s("c", 2), f64s("b", 2), f32s("a", 1)),
			"f32: a | f64: b | f64: c | f32: d",
		},
		{
			"a bucket that fills late starts late", small(f32s("d", 1), f64s("c", 2), f64s("b", 2), f32s("a", 1)),
			"f64: b | f64: c | f32: a d",
		},
	} {
		var got []string
		for _, b := range c.plan.Buckets {
			got = append(got, fmt.Sprintf("%v: %s", b.DType, c.plan.names(b)))
		}
		if s := strings.Join(got, " | "); s != c.want {
			t.Errorf("%s: buckets are %s, want %s", c.name, s, c.want)
		}
	}
}

// A gradient too small for its own collective is put with the next parameter, of any size.
func TestLittleGradientsGoWithLargeOnes(t *testing.T) {
	const first, later = 4 * 40, 64 * 40
	for _, c := range []struct {
		name   string
		params []PlanParam // the last one's gradient comes first
		want   [][]string
	}{
		{"a bias", []PlanParam{f32s("w", 1000), f32s("b", 9), f32s("v", 100)}, [][]string{{"v"}, {"b", "w"}}},
		{"as much as a part", []PlanParam{f32s("w", 1000), f32s("b", 10), f32s("v", 100)}, [][]string{{"v"}, {"b"}, {"w"}}},
		{"in the first bucket", []PlanParam{f32s("w", 1000), f32s("b", 9)}, [][]string{{"b", "w"}}},
		{"the last", []PlanParam{f32s("b", 1), f32s("w", 1000), f32s("v", 100)}, [][]string{{"v"}, {"w"}, {"b"}}},
		{"two", []PlanParam{f32s("w", 1000), f32s("c", 4), f32s("b", 4), f32s("v", 100)}, [][]string{{"v"}, {"b", "c", "w"}}},
	} {
		p := &Plan{Params: c.params}
		order := make([]int, len(c.params))
		for i := range order {
			order[i] = len(order) - 1 - i
		}
		p.fill(order, first, later, 1)
		var got [][]string
		for _, b := range p.Buckets {
			var names []string
			for _, i := range b.Params {
				names = append(names, p.Params[i].Name)
			}
			got = append(got, names)
		}
		if fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// The bound of the first bucket counts, however large the others may be.
func TestTheFirstBucketStaysSmall(t *testing.T) {
	p := &Plan{}
	order := make([]int, 20)
	for i := range order {
		p.Params, order[i] = append(p.Params, f32s(fmt.Sprint(i), 128<<10)), i
	}
	p.fill(order, 1<<20, 256<<20, 1)
	if len(p.Buckets) != 2 || len(p.Buckets[0].Params) != 2 {
		t.Errorf("20 gradients of 512 KiB fill %v", p)
	}
}

func TestPlansHoldEveryParameterOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var p Plan
		for i := range rapid.IntRange(1, 30).Draw(t, "params") {
			q := f32s(fmt.Sprint("p", i), rapid.IntRange(1, 40).Draw(t, "len"))
			if rapid.Bool().Draw(t, "double") {
				q.DType = tensor.F64
			}
			p.Params = append(p.Params, q)
		}
		order := rapid.Permutation(indexRange(len(p.Params))).Draw(t, "order")
		first := rapid.Int64Range(4, 100).Draw(t, "first")
		later := rapid.Int64Range(4, 200).Draw(t, "later")
		p.fill(order, first, later, 1)
		position := make([]int, len(order))
		for pos, i := range order {
			position[i] = pos
		}
		var seen []int
		lastFull := -1
		firsts := map[tensor.DType]bool{}
		for b, bucket := range p.Buckets {
			at := 0
			before := -1
			for _, i := range bucket.Params {
				q := p.Params[i]
				if q.Bucket != b || q.Offset != at || q.DType != bucket.DType {
					t.Fatalf("parameter %d says bucket %d, offset %d, and lies in bucket %d at %d", i, q.Bucket, q.Offset, b, at)
				}
				if position[i] <= before {
					t.Fatalf("bucket %d holds parameters in another order than that of their gradients", b)
				}
				at, before = at+q.Len(), position[i]
			}
			if at != bucket.Elements {
				t.Fatalf("bucket %d says %d elements, has %d", b, bucket.Elements, at)
			}
			if before < lastFull {
				t.Fatalf("bucket %d is full before bucket %d", b, b-1)
			}
			limit := later
			if !firsts[bucket.DType] {
				limit, firsts[bucket.DType] = first, true
			}
			if bucket.Bytes() > limit && len(bucket.Params) > 1 {
				t.Fatalf("bucket %d has %d B, over the bound of %d", b, bucket.Bytes(), limit)
			}
			lastFull = before
			seen = append(seen, bucket.Params...)
		}
		slices.Sort(seen)
		if !slices.Equal(seen, indexRange(len(p.Params))) {
			t.Fatalf("the buckets hold the parameters %v", seen)
		}
	})
}

func indexRange(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

func TestPlanIsATable(t *testing.T) {
	p := small(f32s("w0", 100), f32s("b0", 3))
	p.Unused = []string{"idle"}
	want := strings.Join([]string{
		"2 parameters, 103 elements, 412 B in 2 buckets in a test",
		"bucket  dtype  elements  bytes  parameters",
		"0       f32    3         12     b0",
		"1       f32    100       400    w0",
		"not used by the cost, not trained: idle", "",
	}, "\n")
	if got := p.String(); got != want {
		t.Errorf("the plan is\n%s, want\n%s", got, want)
	}
}

func TestConfigDefaultsAndBounds(t *testing.T) {
	for _, c := range []struct {
		cfg          Config
		first, later int64
	}{
		{Config{}, 1 << 20, 25 << 20},
		{Config{BucketMB: 0.5}, 1 << 19, 1 << 19},
		{Config{BucketMB: 1.0 / 1024}, 1024, 1024},
		{Config{BucketMB: 4, FirstBucketMB: 2.5}, 5 << 19, 4 << 20},
		{Config{FirstBucketMB: 50}, 50 << 20, 25 << 20},
	} {
		if err := c.cfg.Validate(); err != nil {
			t.Errorf("%+v: %v", c.cfg, err)
		}
		if first, later := c.cfg.withDefaults().bucketBytes(); first != c.first || later != c.later {
			t.Errorf("%+v: bounds are %d and %d, want %d and %d", c.cfg, first, later, c.first, c.later)
		}
	}
	for _, cfg := range []Config{{BucketMB: -1}, {BucketMB: 1.0 / 2048}, {FirstBucketMB: 1e300}, {FirstBucketMB: nan()}} {
		if cfg.Validate() == nil {
			t.Errorf("%+v is taken", cfg)
		}
	}
}
