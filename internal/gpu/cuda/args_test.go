package cuda

import (
	"encoding/binary"
	"errors"
	"math"
	"runtime"
	"strings"
	"testing"
	"unsafe"
)

// at reads an argument as the driver does: by the address in the list.
func (b *argBlock) argument(i int) []byte {
	p := b.params[i]
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&p)), b.sizes[i])
}

func TestArgsAreWhereTheListPoints(t *testing.T) {
	var a Args
	for range 3 { // an Args is used again and again
		a.Reset()
		a.Ptr(0x7f00_1234_5678)
		a.I32(-2)
		a.U32(3)
		a.F32(1.5)
		a.F64(-0.25)
		a.I64(-5)
		a.U64(1 << 63)
		a.Bytes([]byte{7})
		a.Bytes([]byte("0123456789ab"))
		runtime.GC()
		want := []uint64{0x7f00_1234_5678, 0xffff_fffe, 3, uint64(math.Float32bits(1.5)), math.Float64bits(-0.25), 0xffff_ffff_ffff_fffb, 1 << 63, 7}
		sizes := []int{8, 4, 4, 4, 8, 8, 8, 1}
		if a.Len() != len(want)+1 || a.b.failed != nil {
			t.Fatalf("%d arguments, %v", a.Len(), a.b.failed)
		}
		for i, w := range want {
			var word [8]byte
			if n := copy(word[:], a.b.argument(i)); n != sizes[i] || binary.LittleEndian.Uint64(word[:]) != w {
				t.Errorf("argument %d is % x, want %d B of %#x", i, a.b.argument(i), sizes[i], w)
			}
			if a.b.params[i]%16 != 0 && i > 0 && (a.b.params[i]-a.b.params[0])%16 != 0 {
				t.Errorf("argument %d is %d B behind the first", i, a.b.params[i]-a.b.params[0])
			}
		}
		if got := string(a.b.argument(8)); got != "0123456789ab" {
			t.Errorf("the struct is %q", got)
		}
	}
}

func TestArgsThatDoNotFitAreAnErrorOfTheLaunch(t *testing.T) {
	tests := []struct {
		name string
		add  func(a *Args)
		want string
	}{
		{"too many", func(a *Args) {
			for range mostArgs + 1 {
				a.I32(1)
			}
		}, "argument 128 of 4 B, after 2048 B of others, does not fit"},
		{"too large", func(a *Args) {
			a.U64(1)
			a.Bytes(make([]byte, mostArgBytes-8))
			a.I32(1)
		}, "argument 1 of 4088 B, after 16 B of others, does not fit"},
		{"empty", func(a *Args) { a.Bytes(nil) }, "argument 0 of 0 B"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a, err := NewArgs(4)
			if err != nil {
				t.Fatal(err)
			}
			tt.add(a)
			f := &Function{name: "k"}
			if err := f.takes(a.b); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), `kernel "k"`) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want ErrInvalid with %q", err, tt.want)
			}
			a.Reset()
			if err := f.takes(a.b); err != nil || a.Len() != 0 {
				t.Errorf("after Reset: %v, %d arguments", err, a.Len())
			}
		})
	}
	whole := Args{}
	whole.Bytes(make([]byte, mostArgBytes))
	if err := (&Function{}).takes(whole.b); err != nil || whole.Len() != 1 {
		t.Errorf("an argument of %d B: %v", mostArgBytes, err)
	}
}

func TestNewArgsRefusesMoreThanThereIsRoomFor(t *testing.T) {
	for _, n := range []int{-1, mostArgs + 1} {
		if a, err := NewArgs(n); a != nil || !errors.Is(err, ErrInvalid) {
			t.Errorf("NewArgs(%d) = %v, %v", n, a, err)
		}
	}
}

func TestKernelTakesArgumentsByNumberAndSize(t *testing.T) {
	f := &Function{name: "add", params: []uint16{8, 4}, known: true}
	var a Args
	for _, tt := range []struct {
		name string
		add  func()
		ok   bool
	}{
		{"its own", func() { a.Ptr(1); a.F32(1) }, true},
		{"one too few", func() { a.Ptr(1) }, false},
		{"one too many", func() { a.Ptr(1); a.F32(1); a.F32(1) }, false},
		{"another size", func() { a.Ptr(1); a.F64(1) }, false},
		{"another order", func() { a.F32(1); a.Ptr(1) }, false},
		{"none", func() {}, false},
	} {
		a.Reset()
		tt.add()
		err := f.takes(a.b)
		if tt.ok != (err == nil) || !tt.ok && (!errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), `kernel "add": invalid argument: it takes arguments of [8 4] B, got [`)) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
	if err := f.takes(nil); !errors.Is(err, ErrInvalid) {
		t.Errorf("no Args: %v", err)
	}
	if err := (&Function{name: "none", known: true}).takes(nil); err != nil {
		t.Errorf("no Args for a kernel that takes none: %v", err)
	}
	if err := (&Function{name: "unknown"}).takes(a.b); err != nil {
		t.Errorf("of a driver that does not tell: %v", err)
	}
}

// An argument that does not fit is not added in part: the driver would read past its end.
func TestKernelOfMoreParametersThanArgsHoldTakesNone(t *testing.T) {
	for _, tt := range []struct {
		params int
		ok     bool
	}{{mostArgs - 1, false}, {mostArgs, true}, {mostArgs + 1, false}, {mostArgs + 2, false}} {
		d := &Driver{front: texts()}
		d.api.ctxPush = answers(t, func(_, _, _, _ uintptr) int32 { return success })
		d.api.ctxPop = d.api.ctxPush
		d.api.moduleFunc = func(out *uintptr, _ uintptr, _ string) int32 {
			*out = 1
			return success
		}
		d.api.funcAttr = func(*int32, int32, uintptr) int32 { return success }
		d.api.funcParam = func(_ uintptr, i uint64, _, bytes *uint64) int32 {
			if i >= uint64(tt.params) {
				return codeInvalidValue
			}
			*bytes = 4
			return success
		}
		m := &Module{v: &Device{d: d}}
		m.h.Store(1)
		f, err := m.Function("many")
		if err != nil {
			t.Fatal(err)
		}
		var a Args
		for range mostArgs {
			a.U32(0)
		}
		if err := f.takes(a.b); tt.ok != (err == nil) || !tt.ok && !errors.Is(err, ErrInvalid) {
			t.Errorf("%d arguments for %d parameters: %v", mostArgs, tt.params, err)
		}
	}
}

func TestArgsDoNotAllocate(t *testing.T) {
	a, err := NewArgs(8)
	if err != nil {
		t.Fatal(err)
	}
	bytes := []byte{1, 2, 3}
	allocs := testing.AllocsPerRun(100, func() {
		a.Reset()
		a.Ptr(1)
		a.I32(2)
		a.F32(3)
		a.Bytes(bytes)
	})
	if allocs != 0 {
		t.Errorf("%v allocations, want 0", allocs)
	}
}

func FuzzArgsKeepWhatTheyAreGiven(f *testing.F) {
	f.Add([]byte{1, 2, 3}, []byte{4})
	f.Add([]byte{}, make([]byte, mostArgBytes))
	f.Fuzz(func(t *testing.T, x, y []byte) {
		var a Args
		a.Bytes(x)
		a.Bytes(y)
		got := [][]byte{}
		for i := range a.Len() {
			got = append(got, a.b.argument(i))
		}
		if a.b.failed == nil && (len(got) != 2 || string(got[0]) != string(x) || string(got[1]) != string(y)) {
			t.Errorf("%q and %q are %q", x, y, got)
		}
		if fits := len(x) > 0 && len(y) > 0 && (len(x)+15)&^15+len(y) <= mostArgBytes; fits != (a.b.failed == nil) {
			t.Errorf("%d and %d B: %v", len(x), len(y), a.b.failed)
		}
	})
}
