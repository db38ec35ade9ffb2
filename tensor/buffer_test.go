package tensor

import (
	"math"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"pgregory.net/rapid"
)

func TestOfAliasesTheSlice(t *testing.T) {
	s := []int32{1, 2, 3}
	b := Of(s)
	if b.DType() != I32 || b.Len() != 3 || b.Bytes() != 12 || b.Device() != Host || b.IsZero() {
		t.Fatalf("%v: %d bytes, zero %v", b, b.Bytes(), b.IsZero())
	}
	if b.Pointer() != unsafe.Pointer(&s[0]) {
		t.Error("it points elsewhere")
	}
	s[1] = 7
	if got, err := Data[int32](b); err != nil || !slices.Equal(got, []int32{1, 7, 3}) {
		t.Errorf("elements %v, %v", got, err)
	}
}

func TestEveryElementTypeHasABuffer(t *testing.T) {
	for _, c := range []struct {
		b    Buffer
		want DType
	}{
		{Of(make([]Float16, 3)), F16},
		{Of(make([]BFloat16, 3)), BF16},
		{Of(make([]float32, 3)), F32},
		{Of(make([]float64, 3)), F64},
		{Of(make([]int8, 3)), I8},
		{Of(make([]int16, 3)), I16},
		{Of(make([]int32, 3)), I32},
		{Of(make([]int64, 3)), I64},
		{Of(make([]uint8, 3)), U8},
		{Of(make([]uint16, 3)), U16},
		{Of(make([]uint32, 3)), U32},
		{Of(make([]uint64, 3)), U64},
	} {
		if c.b.DType() != c.want || c.b.Len() != 3 || c.b.Bytes() != int64(3*c.want.Size()) {
			t.Errorf("%v: %v, %d bytes", c.want, c.b, c.b.Bytes())
		}
	}
}

func TestZeroBuffer(t *testing.T) {
	var b Buffer
	if !b.IsZero() || b.Len() != 0 || b.Bytes() != 0 || b.Pointer() != nil || b.Raw() != nil {
		t.Errorf("%v has something in it", b)
	}
	if b.String() != "no buffer" {
		t.Errorf("it is called %q", b)
	}
	if Of([]float32(nil)).IsZero() {
		t.Error("an empty buffer of a type counts as none")
	}
	if s, err := b.Slice(0, 0); err != nil || !s.IsZero() {
		t.Errorf("its empty slice is %v, %v", s, err)
	}
}

func TestFromPointerChecks(t *testing.T) {
	words := make([]uint64, 4)
	p := unsafe.Pointer(&words[0])
	for name, c := range map[string]struct {
		p    unsafe.Pointer
		n    int
		dt   DType
		want string // part of the error; "" for none
	}{
		"whole":            {p, 4, U64, ""},
		"other type":       {p, 32, I8, ""},
		"empty":            {p, 0, F32, ""},
		"nil and empty":    {nil, 0, F32, ""},
		"odd for bytes":    {unsafe.Add(p, 1), 3, U8, ""},
		"odd for halves":   {unsafe.Add(p, 1), 3, BF16, "aligned to 2"},
		"half for floats":  {unsafe.Add(p, 2), 3, F32, "aligned to 4"},
		"float for double": {unsafe.Add(p, 4), 1, F64, "aligned to 8"},
		"nil":              {nil, 1, F32, "nil pointer"},
		"negative":         {p, -1, F32, "negative length -1"},
		"huge":             {p, math.MaxInt/8 + 1, F64, "more than memory"},
		"no type":          {p, 1, Invalid, "invalid is no element type"},
		"unknown type":     {p, 1, 99, "dtype(99)"},
	} {
		t.Run(name, func(t *testing.T) {
			b, err := FromPointer(c.p, c.n, c.dt, Host)
			if c.want != "" {
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Fatalf("%v, error %v, want one with %q", b, err, c.want)
				}
				if !b.IsZero() {
					t.Errorf("a buffer with the error: %v", b)
				}
				return
			}
			if err != nil || b.Pointer() != c.p || b.Len() != c.n || b.DType() != c.dt {
				t.Errorf("%v at %v, %v", b, b.Pointer(), err)
			}
		})
	}
}

func TestDeviceMemoryIsNotReadable(t *testing.T) {
	words := make([]float32, 4)
	b, err := FromPointer(unsafe.Pointer(&words[0]), 4, F32, CUDA(1))
	if err != nil {
		t.Fatal(err)
	}
	if b.Raw() != nil {
		t.Error("Raw hands out device memory")
	}
	if _, err := Data[float32](b); err == nil || !strings.Contains(err.Error(), "cuda:1") {
		t.Errorf("Data: %v", err)
	}
	if got := b.String(); got != "f32[4] on cuda:1" {
		t.Errorf("it is called %q", got)
	}
	if Overlap(b, Of(words)) || Same(b, Of(words)) {
		t.Error("equal addresses on two devices count as one place")
	}
}

func TestDataChecksTheType(t *testing.T) {
	b := Of([]float32{1})
	if _, err := Data[int32](b); err == nil || !strings.Contains(err.Error(), "f32, not i32") {
		t.Errorf("f32 read as i32: %v", err)
	}
	if _, err := Data[float32](Buffer{}); err == nil {
		t.Error("the zero buffer was read")
	}
	if s, err := Data[float32](Of([]float32{})); err != nil || len(s) != 0 {
		t.Errorf("an empty buffer: %v, %v", s, err)
	}
}

func TestRawAliases(t *testing.T) {
	s := []uint16{0, 0}
	raw := Of(s).Raw()
	if len(raw) != 4 {
		t.Fatalf("%d bytes", len(raw))
	}
	for i := range raw {
		raw[i] = 0xff
	}
	if s[0] != 0xffff || s[1] != 0xffff {
		t.Errorf("elements are %x after a write to the bytes", s)
	}
}

func TestSliceBounds(t *testing.T) {
	b := Of(make([]float64, 5))
	for _, c := range []struct {
		i, j int
		ok   bool
	}{
		{0, 5, true},
		{0, 0, true},
		{5, 5, true},
		{2, 3, true},
		{4, 5, true},
		{-1, 2, false},
		{0, 6, false},
		{3, 2, false},
		{6, 6, false},
		{math.MinInt, math.MaxInt, false},
	} {
		s, err := b.Slice(c.i, c.j)
		if (err == nil) != c.ok {
			t.Errorf("[%d:%d]: %v", c.i, c.j, err)
		}
		if c.ok && s.Len() != c.j-c.i {
			t.Errorf("[%d:%d] has %d elements", c.i, c.j, s.Len())
		}
		if !c.ok && !s.IsZero() {
			t.Errorf("[%d:%d]: a buffer with the error", c.i, c.j)
		}
	}
}

// An empty slice at the end must not hold a pointer past its memory: it would keep another object
// alive.
func TestEmptySliceStaysInside(t *testing.T) {
	b := Of(make([]float64, 5))
	s, err := b.Slice(5, 5)
	if err != nil || s.Pointer() != b.Pointer() {
		t.Errorf("empty slice at %v of memory at %v, %v", s.Pointer(), b.Pointer(), err)
	}
}

// Slices of a Buffer equal slices of its Go slice.
func TestSliceProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.SliceOfN(rapid.Int16(), 0, 40).Draw(t, "s")
		b := Of(s)
		for range rapid.IntRange(1, 4).Draw(t, "depth") {
			i := rapid.IntRange(0, len(s)).Draw(t, "i")
			j := rapid.IntRange(i, len(s)).Draw(t, "j")
			var err error
			if b, err = b.Slice(i, j); err != nil {
				t.Fatal(err)
			}
			s = s[i:j]
			got, err := Data[int16](b)
			if err != nil || !slices.Equal(got, s) {
				t.Fatalf("%v, %v, want %v", got, err, s)
			}
			if b.Bytes() != int64(2*len(s)) || len(b.Raw()) != 2*len(s) {
				t.Fatalf("%d bytes, %d raw, of %d elements", b.Bytes(), len(b.Raw()), len(s))
			}
			if len(s) > 0 && b.Pointer() != unsafe.Pointer(&s[0]) {
				t.Fatal("the slice is a copy")
			}
		}
	})
}

// Two ranges of one slice overlap if their index ranges do, for all element types.
func TestOverlapProperty(t *testing.T) {
	words := make([]uint64, 9) // 64 bytes, and one word so that byte 64 has an address
	bytes, err := FromPointer(unsafe.Pointer(&words[0]), 64, U8, Host)
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		draw := func(label string) (b Buffer, from, to int) {
			dt := rapid.SampledFrom(DTypes()).Draw(t, label+" type")
			from = rapid.IntRange(0, 64/dt.Size()).Draw(t, label+" from") * dt.Size()
			n := rapid.IntRange(0, (64-from)/dt.Size()).Draw(t, label+" n")
			b, err := FromPointer(unsafe.Add(bytes.Pointer(), from), n, dt, Host)
			if err != nil {
				t.Fatal(err)
			}
			return b, from, from + n*dt.Size()
		}
		a, a0, a1 := draw("a")
		b, b0, b1 := draw("b")
		want := false
		for i := a0; i < a1; i++ {
			want = want || i >= b0 && i < b1
		}
		if Overlap(a, b) != want || Overlap(b, a) != want {
			t.Fatalf("bytes [%d,%d) and [%d,%d): %v and %v, want %v", a0, a1, b0, b1, Overlap(a, b), Overlap(b, a), want)
		}
		if same := a0 == b0 && a1 == b1 && a.DType() == b.DType(); Same(a, b) != same {
			t.Fatalf("%v at %d and %v at %d: same %v", a, a0, b, b0, Same(a, b))
		}
	})
}

func TestNothingHereAllocates(t *testing.T) {
	s := make([]float32, 64)
	n := testing.AllocsPerRun(100, func() {
		b, err := Of(s).Slice(3, 60)
		if err != nil {
			t.Fatal(err)
		}
		d, err := Data[float32](b)
		if err != nil || len(d) != 57 || len(b.Raw()) != 228 || Overlap(b, Of(s[60:])) {
			t.Fatal("wrong slice", err)
		}
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestAsViewsTheSameMemory(t *testing.T) {
	words := []int64{1, -2, 3}
	raw := Of(words).Untyped()
	if !raw.IsUntyped() || raw.DType() != U8 || raw.Len() != 24 || raw.String() != "24 untyped B on host" {
		t.Errorf("untyped: %v, %v", raw, raw.IsUntyped())
	}
	b, err := raw.As(I64)
	if err != nil || b.IsUntyped() || !Same(b, Of(words)) {
		t.Fatalf("as i64: %v, %v", b, err)
	}
	got, err := Data[int64](b)
	if err != nil || got[1] != -2 {
		t.Fatalf("elements %v, %v", got, err)
	}
	if u8, err := raw.As(U8); err != nil || u8.IsUntyped() || !Same(u8, raw) {
		t.Errorf("as u8: %v, %v", u8, err)
	}
	if f16, err := Of(words).As(F16); err != nil || f16.Len() != 12 {
		t.Errorf("typed elements as f16: %v, %v", f16, err)
	}
	if none, err := Of([]int64{}).Untyped().As(F64); err != nil || none.Len() != 0 || none.DType() != F64 {
		t.Errorf("no bytes as f64: %v, %v", none, err)
	}
	far, err := FromPointer(raw.Pointer(), 24, U8, CUDA(3))
	if err != nil {
		t.Fatal(err)
	}
	if far, err = far.Untyped().As(F32); err != nil || far.Device() != CUDA(3) || far.Len() != 6 {
		t.Errorf("on a device: %v, %v", far, err)
	}
}

func TestAsRefusesBytesThatAreNoElements(t *testing.T) {
	raw := Of(make([]int64, 2)).Untyped()
	cut := func(i, j int) Buffer {
		b, err := raw.Slice(i, j)
		if err != nil || !b.IsUntyped() {
			t.Fatalf("a slice of untyped bytes is %v, %v", b, err)
		}
		return b
	}
	for name, c := range map[string]struct {
		b    Buffer
		dt   DType
		says string
	}{
		"a part of an element": {cut(0, 12), I64, "12 B are not a multiple of 8 B (i64)"},
		"misaligned":           {cut(1, 9), I64, "not aligned to 8 bytes (i64)"},
		"no type":              {raw, Invalid, "no element type"},
		"unknown type":         {raw, 99, "no element type"},
		"no buffer":            {Buffer{}, I64, "no buffer to view as i64"},
	} {
		if b, err := c.b.As(c.dt); err == nil || !b.IsZero() || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, %v, want an error with %q", name, b, err, c.says)
		}
	}
	if _, err := Data[int64](raw); err == nil || !strings.Contains(err.Error(), "take As(i64) of them first") {
		t.Errorf("elements of untyped bytes: %v", err)
	}
}
