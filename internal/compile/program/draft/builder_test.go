package draft

import (
	"math"
	"testing"

	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/tensor"
)

// A number is in memory once for a type, and 0 is another one than -0.
func TestNumbersInMemoryAreKnownByTheirBits(t *testing.T) {
	l := New("numbers")
	id := func(num float64, dt tensor.DType) program.ID {
		return l.Stored(Operand{IsNum: true, Num: num, DType: dt}).View.Value
	}
	zero := id(0, tensor.F32)
	if again := id(0, tensor.F32); again != zero {
		t.Errorf("0 is values %d and %d", zero, again)
	}
	if id(0, tensor.F64) == zero {
		t.Errorf("0 of two types is one value")
	}
	minus := id(math.Copysign(0, -1), tensor.F32)
	if minus == zero {
		t.Fatal("0 and -0 are one value")
	}
	if data := l.Program.Values[minus].Data; data[3] != 0x80 {
		t.Errorf("-0 is % x in memory", data)
	}
}
