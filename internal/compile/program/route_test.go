package program

import (
	"slices"
	"testing"

	"github.com/symgrad/symgrad/tensor"
	"pgregory.net/rapid"
)

// TestRouteFindsEachElement checks a route against the elements themselves: a maker's index, looked
// up by its element.
func TestRouteFindsEachElement(t *testing.T) {
	found := 0
	rapid.Check(t, func(r *rapid.T) {
		n := func(lo, hi int) int { return rapid.IntRange(lo, hi).Draw(r, "n") }
		maker := make([]int, n(0, 3))
		for a := range maker {
			maker[a] = n(1, 4)
		}
		order := make([]int, len(maker))
		for a := range order {
			order[a] = a
		}
		order = rapid.Permutation(order).Draw(r, "order")
		by := View{Strides: make([]int, len(maker))}
		total := 1
		for _, a := range order {
			by.Strides[a] = total
			total *= maker[a]
		}
		reader := View{}
		var space []int
		last := 0
		for range n(0, 3) {
			d, s := n(1, 6), n(0, 4)
			if last+(d-1)*s < total {
				space, reader.Strides = append(space, d), append(reader.Strides, s)
				last += (d - 1) * s
			}
		}
		reader.Offset = n(0, total-1-last)
		route, ok := routeOf(maker, &by, space, &reader)
		if !ok {
			return
		}
		found++
		made := make([]int, total) // the maker's number of each element
		count := 0
		each(maker, &by, func(e int) { made[e] = count; count++ })
		var want, got, split []int
		each(space, &reader, func(e int) { want = append(want, made[e]) })
		line := route.carry(View{Strides: Contiguous(maker)})
		each(route.space(), &line, func(e int) { got = append(got, e) })
		again := route.split(reader)
		each(route.space(), &again, func(e int) { split = append(split, made[e]) })
		if !slices.Equal(got, want) || !slices.Equal(split, want) {
			r.Fatalf("maker %v by %v, reader %v over %v: got %v and %v, want %v", maker, by, reader, space, got, split, want)
		}
		if whole, ok := route.whole(View{Strides: Contiguous(maker)}); ok {
			var e2 []int
			each(space, &whole, func(e int) { e2 = append(e2, e) })
			if !slices.Equal(e2, want) {
				r.Fatalf("whole view %v gives %v, want %v", whole, e2, want)
			}
		}
	})
	if found < 20 {
		t.Errorf("only %d routes", found)
	}
}

func TestRouteOfAReshape(t *testing.T) {
	maker := []int{4, 6}
	by := View{Strides: []int{6, 1}}
	line := View{Strides: []int{1}}
	r, ok := routeOf(maker, &by, []int{24}, &line)
	if !ok || !slices.Equal(r.space(), []int{4, 6}) || !r.straight(maker) || r.repeats() {
		t.Errorf("a row of all elements: %v, %v", r, ok)
	}
	turned := View{Strides: []int{1, 6}}
	if r, ok = routeOf(maker, &by, []int{6, 4}, &turned); !ok || r.straight(maker) {
		t.Errorf("a transpose: %v, %v", r, ok)
	}
	if _, ok = routeOf(maker, &by, []int{10}, &View{Strides: []int{1}}); ok {
		t.Error("ten elements of rows of six have no route")
	}
}

func TestDisjointFindsBlocksThatLieApart(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		n := func(lo, hi int) int { return rapid.IntRange(lo, hi).Draw(r, "n") }
		block := func() ([]int, View) {
			i, j := n(0, 4), n(0, 5)
			return []int{n(1, 5-i), n(1, 6-j)}, View{Offset: 6*i + j, Strides: []int{6, 1}}
		}
		aSpace, a := block()
		bSpace, b := block()
		seen, meet := map[int]bool{}, false
		each(aSpace, &a, func(e int) { seen[e] = true })
		each(bSpace, &b, func(e int) { meet = meet || seen[e] })
		if got := disjoint(aSpace, &a, bSpace, &b); got == meet {
			r.Fatalf("%v over %v and %v over %v: disjoint is %v", a, aSpace, b, bSpace, got)
		}
		if blocksApart(aSpace, &a, bSpace, &b) && meet {
			r.Fatalf("%v over %v and %v over %v have elements in common", a, aSpace, b, bSpace)
		}
	})
}

// Two Maps over nothing are one.
func TestOptimizeJoinsMapsWithoutElements(t *testing.T) {
	p := &Program{Clock: None}
	for range 2 {
		x := p.Add(Value{Name: "x", DType: tensor.F32, Shape: []int{2, 0}, Role: State, Place: Outside})
		code := []Instr{{Op: Load}, {Op: Neg}}
		op := &Map{Space: []int{2, 0}, Code: code, Stores: []int{1}}
		p.Steps = append(p.Steps, Step{Op: op, In: []View{p.Whole(x)}, Out: []View{p.Whole(x)}})
	}
	if err := Optimize(p); err != nil {
		t.Fatal(err)
	}
	if err := Validate(p); err != nil || len(p.Steps) != 1 {
		t.Errorf("%d steps: %v", len(p.Steps), err)
	}
}
