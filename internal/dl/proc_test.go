package dl

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"unsafe"
)

func TestCallPassesAndReturnsWords(t *testing.T) {
	lib := libc(t)
	labs := lib.Proc("labs", "")
	for _, v := range []int{0, 1, -1, -1 << 40} {
		r, err := labs.Call(uintptr(v))
		if want := max(v, -v); err != nil || int(r) != want {
			t.Errorf("labs(%d) = %d, %v", v, int(r), err)
		}
	}
	addr, err := lib.Lookup("labs")
	if err != nil || labs.Addr() != addr || labs.Err() != nil {
		t.Errorf("Addr %#x, Err %v, want %#x, nil (%v)", labs.Addr(), labs.Err(), addr, err)
	}
}

func TestCallPassesArgumentsOverTheStack(t *testing.T) {
	// snprintf with integers only: eleven words, five of them beyond the six registers.
	var out [64]byte
	format := []byte("%d %d %d %d %d %d %d %d\x00")
	n, err := libc(t).Proc("snprintf", "").Call(uintptr(unsafe.Pointer(&out[0])), uintptr(len(out)), uintptr(unsafe.Pointer(&format[0])),
		1, 2, 3, 4, 5, 6, 7, 8)
	if got := string(out[:15]); err != nil || n != 15 || got != "1 2 3 4 5 6 7 8" {
		t.Errorf("snprintf wrote %q, %d, %v", got, n, err)
	}
}

func TestCallKeepsGoMemoryWhileCollecting(t *testing.T) {
	memcpy := libc(t).Proc("memcpy", "")
	stop := make(chan struct{})
	var collector, callers sync.WaitGroup
	collector.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				runtime.GC()
			}
		}
	})
	for g := range 4 {
		callers.Go(func() {
			for i := range 200 {
				src := bytes.Repeat([]byte{byte(g*37 + i)}, 4096)
				dst := make([]byte, len(src))
				if _, err := memcpy.Call(uintptr(unsafe.Pointer(&dst[0])), uintptr(unsafe.Pointer(&src[0])), uintptr(len(src))); err != nil {
					t.Error(err)
					return
				}
				if !bytes.Equal(dst, src) {
					t.Errorf("caller %d copy %d differs", g, i)
					return
				}
			}
		})
	}
	callers.Wait()
	close(stop)
	collector.Wait()
}

func TestCallOfAMissingFunctionIsAnError(t *testing.T) {
	lib := libc(t)
	tests := []struct {
		name string
		proc Proc
		want string
	}{
		{"missing symbol", lib.Proc("no_such_function", ""), `symbol "no_such_function": unsupported`},
		{"with version", lib.Proc("no_such_function", "3.1"), "unsupported: needs system 3.1 or later"},
		{"no address", ProcAt(0, "cuGetProcAddress"), "dl: cuGetProcAddress has no address: unsupported"},
		{"zero Proc", Proc{}, "dl: call of a function that was never looked up: unsupported"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r, err := tt.proc.Call(1, 2)
			if r != 0 || !errors.Is(err, ErrUnsupported) || !strings.HasSuffix(err.Error(), tt.want) {
				t.Errorf("Call = %d, %v, want an error ending in %q", r, err, tt.want)
			}
			if tt.proc.Addr() != 0 || tt.proc.Err() == nil || tt.proc.Err().Error() != err.Error() {
				t.Errorf("Addr %#x, Err %v, want 0 and Call's error", tt.proc.Addr(), tt.proc.Err())
			}
		})
	}
}

func TestCallRefusesTooManyWords(t *testing.T) {
	labs := libc(t).Proc("labs", "")
	words := make([]uintptr, maxArgs+1)
	words[0] = ^uintptr(6)
	if r, err := labs.Call(words[:maxArgs]...); err != nil || r != 7 {
		t.Errorf("with %d words: %d, %v, want 7", maxArgs, r, err)
	}
	if _, err := labs.Call(words...); !errors.Is(err, ErrUnsupported) {
		t.Errorf("with %d words: %v, want ErrUnsupported", len(words), err)
	}
}

func TestProcAtCallsTheAddress(t *testing.T) {
	addr, err := libc(t).Lookup("labs")
	if err != nil {
		t.Fatal(err)
	}
	minus5 := -5
	if r, err := ProcAt(addr, "labs").Call(uintptr(minus5)); err != nil || r != 5 {
		t.Errorf("labs(-5) = %d, %v", r, err)
	}
}

func TestCallWithAnOwnedSliceDoesNotAllocate(t *testing.T) {
	labs := libc(t).Proc("labs", "")
	words := make([]uintptr, 15)
	var bad error
	allocs := testing.AllocsPerRun(1000, func() {
		words[0]++
		if r, err := labs.Call(words...); err != nil || r != words[0] {
			bad = errors.Join(err, errors.New("wrong result"))
		}
	})
	if bad != nil {
		t.Fatal(bad)
	}
	// Under the race detector sync.Pool drops a share of what is put back, so purego's own pool
	// allocates.
	if allocs != 0 && !raceEnabled {
		t.Errorf("%v allocations a call, want 0", allocs)
	}
}

func TestCallWordsPassesAndReturnsWords(t *testing.T) {
	lib := libc(t)
	labs := lib.Proc("labs", "")
	for _, v := range []int{0, 1, -1, -1 << 40} {
		r, err := labs.CallWords(uintptr(v))
		if want := max(v, -v); err != nil || int(r) != want {
			t.Errorf("labs(%d) = %d, %v", v, int(r), err)
		}
	}
	if r, err := lib.Proc("strlen", "").CallWords(errorText(t, 2)); err != nil || r != uintptr(len("No such file or directory")) {
		t.Errorf("strlen(strerror(ENOENT)) = %d, %v", r, err)
	}
}

// errorText is the address of C's text for an error number.
func errorText(t *testing.T, number uintptr) uintptr {
	r, err := libc(t).Proc("strerror", "").CallWords(number)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestCallWordsTakesAsManyAsCall(t *testing.T) {
	callback, err := Callback(func(a, b, c, d, e, f, g, h, i, j uintptr) uintptr {
		return a + 10*b + 100*c + 1000*d + 10000*e + 100000*f + 1000000*g + 10000000*h + 100000000*i + 1000000000*j
	})
	if err != nil {
		t.Skipf("no callbacks on this platform: %v", err)
	}
	if r, err := ProcAt(callback, "digits").CallWords(1, 2, 3, 4, 5, 6, 7, 8, 9, 1); err != nil || r != 1987654321 {
		t.Errorf("ten words arrive as %d, %v, want 1987654321", r, err)
	}
	labs := libc(t).Proc("labs", "")
	words := make([]uintptr, maxArgs+1)
	words[0] = ^uintptr(6)
	if r, err := labs.CallWords(words[:maxArgs]...); err != nil || r != 7 {
		t.Errorf("with %d words: %d, %v, want 7", maxArgs, r, err)
	}
	if _, err := labs.CallWords(words...); !errors.Is(err, ErrUnsupported) {
		t.Errorf("with %d words: %v, want ErrUnsupported", len(words), err)
	}
	if _, err := libc(t).Proc("no_such_function", "3.1").CallWords(1); !errors.Is(err, ErrUnsupported) || !strings.HasSuffix(err.Error(), "needs system 3.1 or later") {
		t.Errorf("of a missing function: %v", err)
	}
}

func TestCallWordsDoesNotAllocate(t *testing.T) {
	labs := libc(t).Proc("labs", "")
	var bad error
	word := uintptr(0)
	allocs := testing.AllocsPerRun(1000, func() {
		word++
		if r, err := labs.CallWords(word, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11); err != nil || r != word {
			bad = errors.Join(err, errors.New("wrong result"))
		}
	})
	if bad != nil {
		t.Fatal(bad)
	}
	if allocs != 0 && !raceEnabled { // see TestCallWithAnOwnedSliceDoesNotAllocate
		t.Errorf("%v allocations a call, want 0", allocs)
	}
}

// The list of words is on the stack of a goroutine, which moves when it grows.
func TestCallWordsOnAGrowingStack(t *testing.T) {
	labs := libc(t).Proc("labs", "")
	var descend func(depth int) error
	descend = func(depth int) error {
		var room [64]uintptr
		room[0] = uintptr(depth)
		if r, err := labs.CallWords(room[0], room[1], room[2]); err != nil || r != uintptr(depth) {
			return errors.Join(err, errors.New("wrong result"))
		}
		if depth == 0 {
			return nil
		}
		return descend(depth - 1)
	}
	done := make(chan error)
	for range 8 {
		go func() { done <- descend(2000) }()
	}
	for range 8 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// six is a C function of six words, each below ten, that puts them together, the first as the last
// digit. It needs a larger stack than it is called on.
func six(t *testing.T) Proc {
	t.Helper()
	callback, err := Callback(func(a, b, c, d, e, f uintptr) uintptr {
		return deep(64, a+10*b+100*c+1000*d+10000*e+100000*f)
	})
	if err != nil {
		t.Skipf("no callbacks on this platform: %v", err)
	}
	return ProcAt(callback, "six")
}

// deep is x, from the bottom of a stack of depth KiB.
func deep(depth int, x uintptr) uintptr {
	var room [128]uintptr
	room[depth%len(room)] = x
	if depth > 0 {
		room[depth%len(room)] = deep(depth-1, x)
	}
	return room[depth%len(room)]
}

func TestStatusPassesWordsAndReturnsAnInt(t *testing.T) {
	if r, err := six(t).Status(1, 2, 3, 4, 5, 6); err != nil || r != 654321 {
		t.Errorf("six words arrive as %d, %v, want 654321", r, err)
	}
	seven, err := Callback(func(a, b, c, d, e, f, g uintptr) uintptr { return g })
	if err != nil {
		t.Fatal(err)
	}
	if r, err := ProcAt(seven, "seven").Status(1, 2, 3, 4, 5, 6, 7); err != nil || r != 7 {
		t.Errorf("the seventh word arrives as %d, %v, want 7", r, err)
	}
	eight, err := Callback(func(a, b, c, d, e, f, g, h uintptr) uintptr { return a + 10*f + 100*g + 1000*h })
	if err != nil {
		t.Fatal(err)
	}
	if r, err := ProcAt(eight, "eight").Status(1, 2, 3, 4, 5, 6, 7, 8); err != nil || r != 8761 {
		t.Errorf("eight words arrive as %d, %v, want 8761", r, err)
	}
	ten, err := Callback(func(a, b, c, d, e, f, g, h, i, j uintptr) uintptr {
		return a + 10*b + 100*c + 1000*d + 10000*e + 100000*f + 1000000*g + 10000000*h + 100000000*i + 1000000000*j
	})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := ProcAt(ten, "ten").Status(1, 2, 3, 4, 5, 6, 7, 8, 9, 1); err != nil || r != 1987654321 {
		t.Errorf("ten words arrive as %d, %v, want 1987654321", r, err)
	}
	abs := libc(t).Proc("abs", "")
	minus := ^uintptr(6)
	for _, words := range [][]uintptr{{minus}, {minus, 1, 2, 3, 4, 5, 6, 7, 8}} {
		if r, err := abs.Status(words...); err != nil || r != 7 {
			t.Errorf("abs(-7) among %d words = %d, %v", len(words), r, err)
		}
	}
	// -1 as an int, whatever the upper half of the register has.
	if r, err := libc(t).Proc("close", "").Status(minus); err != nil || r != -1 {
		t.Errorf("close(-7) = %d, %v, want -1", r, err)
	}
	if _, err := libc(t).Proc("no_such_function", "3.1").Status(1); !errors.Is(err, ErrUnsupported) {
		t.Errorf("of a missing function: %v, want ErrUnsupported", err)
	}
	if _, err := abs.Status(make([]uintptr, maxArgs+1)...); !errors.Is(err, ErrUnsupported) {
		t.Errorf("with too many words: %v, want ErrUnsupported", err)
	}
}

func TestStatus2PassesWordsAndReturnsAnInt(t *testing.T) {
	two, err := Callback(func(a, b uintptr) uintptr { return 1<<40 | a + 10*b })
	if err != nil {
		t.Skipf("no callbacks on this platform: %v", err)
	}
	f, missing := ProcAt(two, "two"), libc(t).Proc("no_such_function", "")
	if r := f.Status2(3, 4); r != 43 {
		t.Errorf("two words arrive as %d, want 43", r)
	}
	if r := missing.Status2(3, 4); r != -1 {
		t.Errorf("a missing function answers %d, want -1", r)
	}
	abs, bad := libc(t).Proc("abs", ""), false
	if allocs := testing.AllocsPerRun(1000, func() { bad = bad || abs.Status2(5, 0) != 5 }); allocs != 0 || bad {
		t.Errorf("%v allocations a call, wrong results: %v", allocs, bad)
	}
}

func TestStatusDoesNotAllocate(t *testing.T) {
	abs := libc(t).Proc("abs", "")
	var bad error
	word := int32(0)
	allocs := testing.AllocsPerRun(1000, func() {
		word++
		if r, err := abs.Status(uintptr(word), 2, 3, 4, 5, 6); err != nil || r != word {
			bad = errors.Join(err, errors.New("wrong result"))
		}
	})
	if bad != nil {
		t.Fatal(bad)
	}
	if allocs != 0 {
		t.Errorf("%v allocations a call, want 0", allocs)
	}
}

// Goroutines that call from stacks of their own, which callbacks make grow, while others collect
// garbage.
func TestStatusOfCallbacksThatGrowTheStack(t *testing.T) {
	f := six(t)
	const callers, calls = 8, 200
	done := make(chan error)
	for caller := range callers {
		go func() {
			for i := range calls {
				word := uintptr((caller + i) % 10)
				if r, err := f.Status(word, word, word, word, word, word); err != nil || r != int32(word)*111111 {
					done <- errors.Join(err, fmt.Errorf("six words %d arrive as %d", word, r))
					return
				}
				if i%50 == 0 {
					runtime.GC()
				}
			}
			done <- nil
		}()
	}
	for range callers {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func BenchmarkCall(b *testing.B) {
	labs := libc(b).Proc("labs", "")
	b.Run("1 word", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := labs.Call(1); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("15 words of an owned slice", func(b *testing.B) {
		b.ReportAllocs()
		words := make([]uintptr, 15)
		for b.Loop() {
			if _, err := labs.Call(words...); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("11 words of CallWords", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := labs.CallWords(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("2 words of Status", func(b *testing.B) {
		abs := libc(b).Proc("abs", "")
		b.ReportAllocs()
		for b.Loop() {
			if _, err := abs.Status(1, 2); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("2 words of CallWords", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := labs.CallWords(1, 2); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("typed", func(b *testing.B) {
		b.ReportAllocs()
		var table struct {
			labs func(int) int `dl:"labs"`
		}
		if err := libc(b).Bind(&table); err != nil {
			b.Fatal(err)
		}
		for b.Loop() {
			table.labs(1)
		}
	})
}
