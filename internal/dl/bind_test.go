package dl

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"unsafe"
)

func TestBindFillsTypedFuncs(t *testing.T) {
	var c struct {
		labs     func(int) int                                  `dl:"labs"`
		Strlen   func(string) uintptr                           `dl:"strlen"`
		strerror func(int32) string                             `dl:"strerror"`
		atof     func(string) float64                           `dl:"atof"`
		div      func(num, den int32) struct{ quot, rem int32 } `dl:"div"`
		untagged func()
		note     string
	}
	c.note = "kept"
	if err := libc(t).Bind(&c); err != nil {
		t.Fatal(err)
	}
	if got := c.labs(-7); got != 7 {
		t.Errorf("labs(-7) = %d", got)
	}
	if got := c.Strlen("twelve bytes"); got != 12 {
		t.Errorf("strlen = %d", got)
	}
	if got := c.strerror(2); got != "No such file or directory" {
		t.Errorf("strerror(ENOENT) = %q", got)
	}
	if got := c.atof("2.5"); got != 2.5 {
		t.Errorf("atof = %v", got)
	}
	if got := c.div(17, 5); got.quot != 3 || got.rem != 2 {
		t.Errorf("div(17, 5) = %+v", got)
	}
	if c.untagged != nil || c.note != "kept" {
		t.Error("a field without the tag was changed")
	}
}

func TestBindPassesFloats(t *testing.T) {
	var m struct {
		cos  func(float64) float64          `dl:"cos"`
		fmaf func(x, y, z float32) float32  `dl:"fmaf"`
		frex func(float64, *int32) float64  `dl:"frexp"`
		pow  func(float64, float64) float64 `dl:"pow"`
	}
	if err := libm(t).Bind(&m); err != nil {
		t.Fatal(err)
	}
	for _, x := range []float64{0, 1, math.Pi, -2.5} {
		if got, want := m.cos(x), math.Cos(x); math.Abs(got-want) > 1e-15 {
			t.Errorf("cos(%v) = %v, want %v", x, got, want)
		}
	}
	if got := m.fmaf(3, 5, -1.5); got != 13.5 {
		t.Errorf("fmaf(3, 5, -1.5) = %v", got)
	}
	var exp int32
	if got := m.frex(12, &exp); got != 0.75 || exp != 4 {
		t.Errorf("frexp(12) = %v, %d, want 0.75, 4", got, exp)
	}
	if got := m.pow(2, 10); got != 1024 {
		t.Errorf("pow(2, 10) = %v", got)
	}
}

func TestBindFillsProcsAndAddresses(t *testing.T) {
	lib := libc(t)
	type address uintptr
	var c struct {
		labs    Proc    `dl:"labs"`
		environ uintptr `dl:"environ"`
		stderr  address `dl:"stderr"`
	}
	if err := lib.Bind(&c); err != nil {
		t.Fatal(err)
	}
	minus9 := -9
	if r, err := c.labs.Call(uintptr(minus9)); err != nil || r != 9 {
		t.Errorf("labs(-9) = %d, %v", r, err)
	}
	if want, err := lib.Lookup("environ"); err != nil || c.environ != want || c.stderr == 0 {
		t.Errorf("environ %#x, stderr %#x, want %#x (%v) and an address", c.environ, c.stderr, want, err)
	}
}

func TestBindLeavesMissingOptionalSymbolsEmpty(t *testing.T) {
	var c struct {
		fn   func(int) int `dl:"no_such_func,optional"`
		proc Proc          `dl:"no_such_proc,optional,since=9.9"`
		addr uintptr       `dl:"no_such_variable,optional"`
		labs func(int) int `dl:"labs,optional,since=0.1"`
	}
	c.fn = func(int) int { return 1 }
	c.addr = 1
	if err := libc(t).Bind(&c); err != nil {
		t.Fatal(err)
	}
	if c.fn != nil || c.addr != 0 {
		t.Errorf("missing func is nil: %t, missing address %#x; want nil and 0", c.fn == nil, c.addr)
	}
	_, err := c.proc.Call(1)
	if !errors.Is(err, ErrUnsupported) || !strings.HasSuffix(err.Error(), `symbol "no_such_proc": unsupported: needs system 9.9 or later`) {
		t.Errorf("Call of a missing Proc: %v", err)
	}
	if c.labs == nil || c.labs(-3) != 3 {
		t.Error("an optional symbol that is there was not bound")
	}
}

func TestBindNamesEveryMissingSymbolAndChangesNothing(t *testing.T) {
	lib := libc(t)
	var c struct {
		labs  func(int) int `dl:"labs"`
		lost  func(int) int `dl:"lost_one"`
		proc  Proc          `dl:"lost_two,since=2.0"`
		there Proc          `dl:"strlen"`
	}
	err := lib.Bind(&c)
	if !errors.Is(err, ErrUnsupported) {
		t.Fatalf("got %v, want ErrUnsupported", err)
	}
	want := "field lost: dl: " + lib.String() + `: symbol "lost_one": unsupported` + "\n" +
		"field proc: dl: " + lib.String() + `: symbol "lost_two": unsupported: needs system 2.0 or later`
	if err.Error() != want {
		t.Errorf("message:\n%s\nwant:\n%s", err, want)
	}
	if c.labs != nil || c.there.Addr() != 0 {
		t.Error("the table was changed by a failing Bind")
	}
}

func TestBindRefusesWhatIsNoTable(t *testing.T) {
	lib := libc(t)
	var number int
	for _, table := range []any{nil, 1, struct{}{}, &number, (*struct{})(nil)} {
		if err := lib.Bind(table); err == nil || !strings.Contains(err.Error(), "bind needs a pointer to a struct") {
			t.Errorf("Bind(%T) = %v", table, err)
		}
	}
}

func TestBindRefusesSignaturesWithoutACCounterpart(t *testing.T) {
	lib := libc(t)
	tests := []struct {
		name  string
		table any
		want  string
	}{
		{"variadic", &struct {
			F func(string, ...any) int32 `dl:"printf"`
		}{}, "variadic C functions cannot be called with floats"},
		{"func parameter", &struct {
			F func(p unsafe.Pointer, n, size uintptr, less func(a, b *int32) int32) `dl:"qsort"`
		}{}, "make a Callback once"},
		{"interface", &struct {
			F func(any) `dl:"labs"`
		}{}, "interface parameter"},
		{"map", &struct {
			F func(map[string]int) `dl:"labs"`
		}{}, "map parameter"},
		{"complex", &struct {
			F func(complex128) float64 `dl:"labs"`
		}{}, "complex128 parameter"},
		{"error result", &struct {
			F func(int) error `dl:"labs"`
		}{}, "interface result"},
		{"slice result", &struct {
			F func(int) []byte `dl:"labs"`
		}{}, "slice result"},
		{"two results", &struct {
			F func(int) (int, int) `dl:"labs"`
		}{}, "2 results"},
		{"struct with a string, found by purego", &struct {
			F func(int) struct{ s string } `dl:"labs"`
		}{}, "struct field type string is not supported"},
		{"too many arguments, found by purego", &struct {
			F func(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, aa, ab, ac, ad, ae, af, ag int) `dl:"labs"`
		}{}, "too many stack arguments"},
		{"optional and missing, still refused", &struct {
			F func(int) error `dl:"no_such_function,optional"`
		}{}, "interface result"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := lib.Bind(tt.table)
			if !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want ErrUnsupported with %q", err, tt.want)
			}
		})
	}
}

func TestBindRefusesMalformedFields(t *testing.T) {
	lib := libc(t)
	tests := []struct {
		table any
		want  string
	}{
		{&struct {
			F func() `dl:""`
		}{}, `field F: tag dl:"" names no symbol`},
		{&struct {
			F func() `dl:",optional"`
		}{}, `field F: tag dl:",optional" names no symbol`},
		{&struct {
			F func() `dl:"labs,maybe"`
		}{}, `field F: tag dl:"labs,maybe": unknown option "maybe", want optional or since=VERSION`},
		{&struct {
			F func() `dl:"labs,since="`
		}{}, `field F: tag dl:"labs,since=": unknown option "since=", want optional or since=VERSION`},
		{&struct {
			F int `dl:"labs"`
		}{}, `field F: symbol "labs": a int cannot hold a symbol: use a func, dl.Proc or uintptr`},
	}
	for _, tt := range tests {
		if err := lib.Bind(tt.table); err == nil || err.Error() != tt.want {
			t.Errorf("got %v, want %s", err, tt.want)
		}
	}
}

func TestCallbackIsCalledByC(t *testing.T) {
	calls := 0
	less, err := Callback(func(a, b *int32) int { calls++; return int(*a) - int(*b) })
	if err != nil {
		t.Skipf("no callbacks on this platform: %v", err)
	}
	values := []int32{5, -1, 3, 3, 0, 99, -40}
	want := slices.Sorted(slices.Values(values))
	if _, err := libc(t).Proc("qsort", "").Call(uintptr(unsafe.Pointer(&values[0])), uintptr(len(values)), 4, less); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(values, want) || calls == 0 {
		t.Errorf("qsort gave %v after %d callbacks, want %v", values, calls, want)
	}
}

func TestCallbackRefusesWhatCCannotCall(t *testing.T) {
	for _, fn := range []any{nil, 1, func(string) {}, func() (int, int) { return 0, 0 }, func() float64 { return 0 }} {
		if addr, err := Callback(fn); addr != 0 || !errors.Is(err, ErrUnsupported) {
			t.Errorf("Callback(%T) = %#x, %v, want ErrUnsupported", fn, addr, err)
		}
	}
}

func FuzzParseTag(f *testing.F) {
	for _, seed := range []string{"labs", "labs,optional", "a,since=2.27,optional", ",", "", "a,,", "since=1"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, tag string) {
		got, err := parseTag(tag)
		if err != nil {
			return
		}
		// An accepted tag can be written back in its normal form and means the same.
		normal := got.symbol
		if got.optional {
			normal += ",optional"
		}
		if got.since != "" {
			normal += ",since=" + got.since
		}
		again, err := parseTag(normal)
		if err != nil || again != got || got.symbol == "" || strings.Contains(got.symbol, ",") {
			t.Errorf("%q parsed as %+v, its normal form %q as %+v, %v", tag, got, normal, again, err)
		}
	})
}
