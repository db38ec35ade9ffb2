package hostexec

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/internal/compile/program/oracle"
	"github.com/symgrad/symgrad/tensor"
)

// variants is the ways to run a program on this machine: each instruction set, plain Go among them.
func variants() map[string]*level {
	all := map[string]*level{"plain": nil}
	for i := range levels {
		if levels[i].has {
			all[levels[i].name] = &levels[i]
		}
	}
	return all
}

// aligned is n bytes at a place that fits all types.
func aligned(n int64) []byte {
	words := make([]uint64, n/8+2)
	return unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), n)
}

// numbers fills memory with numbers of a dtype from f.
func numbers(dt tensor.DType, b []byte, f func() float64) {
	for i := range len(b) / dt.Size() {
		program.SetElement(dt, b, i, f())
	}
}

// contents is memory for each Outside value, filled from f.
func contents(p *program.Program, f func() float64) map[program.ID][]byte {
	m := map[program.ID][]byte{}
	for i := range p.Values {
		if v := &p.Values[i]; v.Place == program.Outside {
			m[program.ID(i)] = aligned(v.Bytes())
			if program.ID(i) != p.Clock || v.DType != tensor.U64 {
				numbers(v.DType, m[program.ID(i)], f)
			}
		}
	}
	return m
}

func clone(m map[program.ID][]byte) map[program.ID][]byte {
	c := map[program.ID][]byte{}
	for id, b := range m {
		c[id] = aligned(int64(len(b)))
		copy(c[id], b)
	}
	return c
}

// bindAll binds copies of memory.
func bindAll(t testing.TB, r program.Runner, p *program.Program, m map[program.ID][]byte) {
	t.Helper()
	for i := range p.Values {
		b, ok := m[program.ID(i)]
		if !ok {
			continue
		}
		dt := p.Values[i].DType
		buf, err := tensor.FromPointer(unsafe.Pointer(unsafe.SliceData(b)), len(b)/dt.Size(), dt, tensor.Host)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Bind(program.ID(i), buf); err != nil {
			t.Fatal(err)
		}
	}
}

type fataler interface {
	Fatalf(format string, args ...any)
	Fatal(args ...any)
}

// agree runs a program with the oracle and with every variant, with one and with three threads, and
// compares all Outside values and Outputs: bit for bit if limit is 0, else to limit times one plus
// the value. Threads never change a bit.
func agree(t testing.TB, f fataler, p *program.Program, memory map[program.ID][]byte, limit float64) {
	t.Helper()
	agreeIn(t, f, p, program.Env{}, memory, limit)
}

// agreeIn is agree with an environment. Its groups have one rank.
func agreeIn(t testing.TB, f fataler, p *program.Program, env program.Env, memory map[program.ID][]byte, limit float64) {
	t.Helper()
	if err := program.Plan(p); err != nil {
		f.Fatal(err)
	}
	want := clone(memory)
	if err := oracle.RunRanks([]oracle.Rank{{Program: p, Memory: want, Calls: env.Calls}}); err != nil {
		f.Fatal(err)
	}
	for name, l := range variants() {
		var first map[program.ID][]byte
		for _, threads := range []int{1, 3} {
			got := clone(memory)
			r, err := load(p, Config{Threads: threads}, env, l)
			if err != nil {
				f.Fatal(err)
			}
			bindAll(t, r, p, got)
			for range 1 {
				if err := r.Run(); err != nil {
					f.Fatal(err)
				}
			}
			for i := range p.Values {
				if p.Values[i].Role == program.Output && p.Values[i].Place == program.Arena {
					b, err := r.Memory(program.ID(i))
					if err != nil {
						f.Fatal(err)
					}
					got[program.ID(i)] = bytes.Clone(b.Raw())
				}
			}
			if err := r.Close(); err != nil {
				f.Fatal(err)
			}
			if first == nil {
				compareAll(f, name+", 1 thread", p, got, want, limit)
				first = got
				continue
			}
			compareAll(f, name+", 3 threads against 1", p, got, first, 0) // first was compared with the oracle
		}
	}
}

func compareAll(f fataler, name string, p *program.Program, got, want map[program.ID][]byte, limit float64) {
	for i := range p.Values {
		v, id := &p.Values[i], program.ID(i)
		have, ok := got[id]
		wanted := want[id]
		if !ok || bytes.Equal(have, wanted) { // bytes are compared much faster than numbers
			continue
		}
		for e := range v.Len() {
			x, y := program.Element(v.DType, have, e), program.Element(v.DType, wanted, e)
			if !close(v.DType, x, y, limit) {
				f.Fatalf("%s: value %d %q %v%v: element %d is %v, want %v\n%v", name, i, v.Name, v.DType, v.Shape, e, x, y, p)
			}
		}
	}
}

func close(dt tensor.DType, x, y, limit float64) bool {
	if math.Float64bits(x) == math.Float64bits(y) || x != x && y != y {
		return true
	}
	switch {
	case limit > 0 && dt == tensor.F16:
		limit = max(limit, 0x1p-10)
	case limit > 0 && dt == tensor.BF16:
		limit = max(limit, 0x1p-7)
	}
	return limit > 0 && math.Abs(x-y) <= limit*(1+math.Abs(y))
}

// normal is numbers like those of training, with some that are zero and some that are equal.
func normal(r *rand.Rand) func() float64 {
	return func() float64 {
		if r.IntN(8) == 0 {
			return float64(r.IntN(5) - 2)
		}
		return float64(float32(r.NormFloat64()))
	}
}

// build is a program under construction.
type build struct {
	program.Program
}

func newBuild() *build { return &build{program.Program{Name: "test", Clock: program.None}} }

// value adds an Outside value.
func (b *build) value(name string, dt tensor.DType, shape ...int) program.View {
	return b.Whole(b.Add(program.Value{Name: name, DType: dt, Shape: shape, Place: program.Outside, Role: program.Input}))
}

func (b *build) step(op program.Op, in, out []program.View) {
	b.Steps = append(b.Steps, program.Step{Name: fmt.Sprintf("s%d", len(b.Steps)), Op: op, In: in, Out: out})
}

func views(v ...program.View) []program.View { return v }
