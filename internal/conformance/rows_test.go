package conformance

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/sim"
	"github.com/symgrad/symgrad/tensor"
)

// plainWant returns element i of rank's destination after c, computed from its inputs alone.
func plainWant(c scenario, n, rank, i int) uint64 {
	in := func(r, i int) uint64 { return input(c.data, c.dt, c.red, n, r, i) }
	if c.kind.Reduces() {
		if c.kind == dist.KindReduceScatter {
			i += rank * c.count
		}
		column := make([]uint64, n)
		for r := range column {
			column[r] = in(r, i)
		}
		return combine(c.dt, c.red, column, factors(c.data, c.dt, n))
	}
	switch c.kind {
	case dist.KindBroadcast:
		return in(c.root, i)
	case dist.KindScatter:
		return in(c.root, rank*c.count+i)
	case dist.KindAllGather, dist.KindGather:
		return in(i/c.count, i%c.count)
	}
	return in(i/c.count, rank*c.count+i%c.count) // alltoall
}

// everyCase is all collectives, types, reductions and data with one count.
func everyCase(count, root int) []scenario {
	var all []scenario
	for _, dt := range tensor.DTypes() {
		for _, data := range []dataKind{exact, random, special, anyBits, gentle} {
			for _, kind := range copying {
				all = append(all, scenario{kind: kind, dt: dt, data: data, count: count, root: root})
			}
			for _, kind := range reducing {
				for _, red := range redsOf(dt) {
					all = append(all, scenario{kind: kind, dt: dt, red: red, data: data, count: count, root: root})
				}
			}
		}
	}
	return all
}

// Rows made for another count or kind, by another rank or by this one, have the elements that
// single computations give.
func TestRowsAreTheElements(t *testing.T) {
	for _, n := range []int{1, 2, 5} {
		base, own := newRows(n, nil), newRows(n, nil)
		over := newRows(n, base)
		for _, count := range counts(n) { // rows grow
			for _, c := range everyCase(count, count%n) {
				if count <= 13 {
					base.foresee(c)
				}
				for rank := range n {
					s := suite{n: n, rank: rank}
					_, length := s.elements(c)
					if length < 0 {
						continue
					}
					want := make([]byte, length*c.dt.Size())
					for i := range length {
						put(want, c.dt, i, plainWant(c, n, rank, i))
					}
					for _, m := range []*rows{own, over} {
						if got := bytes.Join(m.wanted(c, rank), nil); !bytes.Equal(got, want) {
							t.Fatalf("rank %d of %d, %v: %x, want %x", rank, n, c, got, want)
						}
					}
					for i := range count {
						if got := get(own.input(c, rank, 0, count), c.dt, i); got != input(c.data, c.dt, c.red, n, rank, i) {
							t.Fatalf("rank %d of %d, %v: element %d of the input is %#x", rank, n, c, i, got)
						}
					}
				}
			}
		}
	}
}

// The foreseen rows are complete: no rank makes a row of its own.
func TestForeseenRowsSuffice(t *testing.T) {
	opt := Options{Large: 1009}
	for _, p := range parts[:3] {
		for _, n := range []int{1, 3} {
			made := p.foreseen(opt, n)
			err := drive(t, n, sim.Config{}, straight, func(w *dist.World) error {
				s := &suite{space: opt.space(w.Group), w: w, g: w.Group, n: n, rank: w.Rank(), opt: opt, rows: newRows(n, made())}
				err := p.run(s)
				if err == nil && len(s.rows.made) > 0 {
					err = fmt.Errorf("%s: rank %d made %d rows", p.name, w.Rank(), len(s.rows.made))
				}
				return err
			})
			if err != nil || len(made().made) == 0 {
				t.Errorf("%d rows foreseen: %v", len(made().made), err)
			}
		}
	}
	if made := parts[4].foreseen(opt, 3)(); made != nil {
		t.Error("a part without cases has rows")
	}
}

// Every wrong element is found, and the first is named, wherever it is; a NaN may have any bits of
// a NaN.
func TestEqualsNamesTheFirstWrongElement(t *testing.T) {
	m := newRows(3, nil)
	p := &space{}
	for _, dt := range tensor.DTypes() {
		for _, kind := range []dist.Kind{dist.KindAllGather, dist.KindAllToAll, dist.KindAllReduce, dist.KindScatter} {
			c := scenario{kind: kind, dt: dt, count: 5}
			want := m.wanted(c, 1)
			all := bytes.Join(want, nil)
			n := len(all) / dt.Size()
			b := p.take(dt, n)
			for i := range n {
				p.store(b, all)
				if err := p.equals(b, want...); err != nil {
					t.Fatalf("%v: %v", c, err)
				}
				good := get(all, dt, i)
				for _, j := range []int{n - 1, i} {
					put(b.Raw(), dt, j, get(all, dt, j)^1)
				}
				text := fmt.Sprintf("element %d is %s, want %s", i, format(dt, good^1), format(dt, good))
				plain := p.holds(b, n, func(i int) uint64 { return plainWant(c, 3, 1, i) })
				if err := p.equals(b, want...); err == nil || err.Error() != text || plain == nil || plain.Error() != text {
					t.Fatalf("%v: errors %q and %q, want %q", c, err, plain, text)
				}
			}
		}
		if !dt.IsFloat() {
			continue
		}
		c := scenario{kind: dist.KindAllReduce, dt: dt, data: special, count: 40}
		want := m.wanted(c, 0)[0]
		b := p.take(dt, c.count)
		p.store(b, want)
		nans := 0
		for i := range c.count {
			if bits := get(want, dt, i); math.IsNaN(asFloat(dt, bits)) {
				put(b.Raw(), dt, i, bits^1)
				nans++
			}
		}
		if err := p.equals(b, want); err != nil || nans == 0 || bytes.Equal(b.Raw(), want) {
			t.Errorf("%v: %d NaNs with other bits: %v", dt, nans, err)
		}
		put(b.Raw(), dt, c.count-1, fromInt(dt, 77))
		if err := p.equals(b, want); err == nil || !strings.Contains(err.Error(), "element 39 is 77 ") {
			t.Errorf("%v: a wrong element behind NaNs: %v", dt, err)
		}
	}
}

// Ranks request the foreseen rows concurrently, and they are made once.
func TestForeseenRowsAreShared(t *testing.T) {
	made := parts[1].foreseen(Options{}, 4)
	var ranks sync.WaitGroup
	var got [4]*rows
	for r := range got {
		ranks.Go(func() { got[r] = made() })
	}
	ranks.Wait()
	for r, m := range got {
		if m == nil || m != got[0] {
			t.Errorf("rank %d has rows of its own", r)
		}
	}
}

// With math.Ldexp and math.Frexp, the conversions and the inputs are the same.
func TestPowersAreLdexp(t *testing.T) {
	for e := -1022; e <= 1023; e++ {
		if power(e) != math.Ldexp(1, e) {
			t.Fatalf("power(%d) is %v", e, power(e))
		}
	}
	for _, dt := range []tensor.DType{tensor.F16, tensor.BF16} {
		for bits := range uint64(1 << 16) {
			got, want := asFloat(dt, bits), ldexpFloat(dt, bits)
			if math.Float64bits(got) != math.Float64bits(want) && !(math.IsNaN(got) && math.IsNaN(want)) {
				t.Fatalf("%v %#x: %v, want %v", dt, bits, got, want)
			}
			next := asFloat(dt, bits+1&0xffff)
			for _, v := range []float64{got, (got + next) / 2, math.Nextafter((got+next)/2, got), math.Nextafter((got+next)/2, next)} {
				sameConversion(t, dt, v)
			}
		}
		for i := range 50000 {
			sameConversion(t, dt, math.Float64frombits(hash(0, i, 4))) // of all exponents
		}
		for _, v := range []float64{0, math.SmallestNonzeroFloat64, 0x1p-1022, math.Nextafter(0x1p-1022, 0), math.MaxFloat64, math.Inf(-1), math.NaN()} {
			sameConversion(t, dt, v)
			sameConversion(t, dt, -v)
		}
	}
	for _, dt := range tensor.DTypes() {
		for _, k := range []dataKind{random, gentle} {
			for i := range 3000 {
				h, lowest, exponents := hash(i%7, i, uint64(k)), -4, uint64(9)
				if k == gentle {
					lowest, exponents = -1, 2
				}
				want := h & mask(dt)
				if dt.IsFloat() {
					v := math.Ldexp(1+float64(h>>12)/(1<<52), int(h%exponents)+lowest)
					if h&(1<<10) != 0 {
						v = -v
					}
					want = ldexpBits(dt, v)
				}
				if got := input(k, dt, dist.RedSum, 7, i%7, i); got != want {
					t.Fatalf("%v %v, element %d: %#x, want %#x", dt, k, i, got, want)
				}
			}
		}
	}
}

func sameConversion(t *testing.T, dt tensor.DType, v float64) {
	t.Helper()
	if got, want := fromFloat(dt, v), ldexpBits(dt, v); got != want {
		t.Fatalf("%v of %v: %#x, want %#x", dt, v, got, want)
	}
}

// ldexpFloat is asFloat of a 16-bit float.
func ldexpFloat(dt tensor.DType, bits uint64) float64 {
	expBits, fracBits := halfFormat(dt)
	exp, frac := int(bits>>fracBits)&(1<<expBits-1), float64(bits&(1<<fracBits-1))
	lowest := 2 - 1<<(expBits-1) - fracBits
	sign := 1 - 2*float64(bits>>15)
	switch {
	case exp == 1<<expBits-1 && frac != 0:
		return math.NaN()
	case exp == 1<<expBits-1:
		return math.Inf(int(sign))
	case exp == 0:
		return sign * math.Ldexp(frac, lowest)
	}
	return sign * math.Ldexp(frac+math.Ldexp(1, fracBits), exp-1+lowest)
}

// ldexpBits is fromFloat; infinities, NaNs and other types need no power of two.
func ldexpBits(dt tensor.DType, v float64) uint64 {
	if dt.Size() != 2 || v == 0 || math.IsNaN(v) || math.IsInf(v, 0) {
		return fromFloat(dt, v)
	}
	expBits, fracBits := halfFormat(dt)
	sign, infinity := math.Float64bits(v)>>63<<15, uint64(1<<expBits-1)<<fracBits
	v = math.Abs(v)
	lowest := 2 - 1<<(expBits-1)
	_, e := math.Frexp(v)
	e = max(e-1, lowest)
	steps := uint64(math.RoundToEven(math.Ldexp(v, fracBits-e)))
	return sign | min(uint64(e-lowest)<<fracBits+steps, infinity)
}
