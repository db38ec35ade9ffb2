package oracle_test

import (
	"bytes"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/internal/compile/program/oracle"
	"github.com/symgrad/symgrad/tensor"
)

func clone(p *program.Program) *program.Program {
	c := *p
	c.Values = slices.Clone(p.Values)
	c.Steps = slices.Clone(p.Steps)
	return &c
}

// run returns the Outside values and Outputs after two ranks have run p.
func run(t rapid.TB, p *program.Program, seed uint64) [][]byte {
	t.Helper()
	var ranks []oracle.Rank
	for r := range 2 {
		memory := map[program.ID][]byte{}
		random := rand.New(rand.NewPCG(seed, uint64(r)))
		for i := range p.Values {
			v := &p.Values[i]
			if v.Place != program.Outside {
				continue
			}
			memory[program.ID(i)] = make([]byte, v.Bytes())
			for e := range v.Len() {
				program.SetElement(v.DType, memory[program.ID(i)], e, math.Round(random.NormFloat64()*32)/16)
			}
		}
		ranks = append(ranks, oracle.Rank{Program: p, Memory: memory})
	}
	if err := oracle.RunRanks(ranks); err != nil {
		t.Fatalf("%v\n%v", err, p)
	}
	var seen [][]byte
	for _, r := range ranks {
		for i := range p.Values {
			if v := &p.Values[i]; v.Place == program.Outside || v.Role == program.Output {
				seen = append(seen, r.Memory[program.ID(i)])
			}
		}
	}
	return seen
}

// lookedAt returns the IDs of the values that run returns, for messages and dtypes.
func lookedAt(p *program.Program) []program.ID {
	var ids []program.ID
	for range 2 {
		for i := range p.Values {
			if v := &p.Values[i]; v.Place == program.Outside || v.Role == program.Output {
				ids = append(ids, program.ID(i))
			}
		}
	}
	return ids
}

func sameBits(dt tensor.DType, a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	for e := range len(a) / dt.Size() {
		x, y := program.Element(dt, a, e), program.Element(dt, b, e)
		if math.IsNaN(x) && math.IsNaN(y) {
			continue
		}
		if math.Float64bits(x) != math.Float64bits(y) {
			return false
		}
	}
	return true
}

func compare(t rapid.TB, what string, raw, p *program.Program, want, got [][]byte) {
	t.Helper()
	for k, id := range lookedAt(raw) {
		if v := &raw.Values[id]; !sameBits(v.DType, want[k], got[k]) {
			t.Fatalf("%s: value %d %q differs:\nwant %x\ngot  %x\nbefore:\n%v\nafter:\n%v", what, id, v.Name, want[k], got[k], raw, p)
		}
	}
}

// planned validates p, plans it and validates it again.
func planned(t rapid.TB, p *program.Program) {
	t.Helper()
	if err := program.Validate(p); err != nil {
		t.Fatalf("before Plan: %v\n%v", err, p)
	}
	if err := program.Plan(p); err != nil {
		t.Fatalf("Plan: %v\n%v", err, p)
	}
	if err := program.Validate(p); err != nil {
		t.Fatalf("after Plan: %v\n%v", err, p)
	}
}

func TestPassesKeepResults(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		raw := randomProgram(r)
		seed := rapid.Uint64().Draw(r, "seed")
		want := run(r, raw, seed)

		plain := clone(raw)
		if err := program.Pack(plain); err != nil {
			r.Fatalf("Pack: %v", err)
		}
		planned(r, plain)
		compare(r, "packed and planned", raw, plain, want, run(r, plain, seed))

		best := clone(raw)
		best.Again = rapid.Bool().Draw(r, "again")
		best.Aside = rapid.Bool().Draw(r, "aside")
		best.Recompute = rapid.SampledFrom(recomputes).Draw(r, "recompute")
		best.ArenaLimit = rapid.Int64Range(0, 1<<12).Draw(r, "limit")
		if err := program.Optimize(best); err != nil {
			r.Fatalf("Optimize: %v\n%v", err, raw)
		}
		planned(r, best)
		compare(r, "optimized and planned", raw, best, want, run(r, best, seed))
	})
}
