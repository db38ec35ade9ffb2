package machine

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/symgrad/symgrad/internal/compile/program"
)

// Precision says in which dtypes a program computes, and how much it computes again.
type Precision struct {
	Kinds   []Kind   `json:"kinds"`            // results of steps by dtype, those with the most bytes first
	Largest []Result `json:"largest"`          // the largest results of steps
	Narrow  []Result `json:"narrow,omitempty"` // rounded copies of parameters, which products read
	Again   int      `json:"again"`            // steps that compute results of the forward pass again: see Recompute
}

// Kind is all results of one dtype.
type Kind struct {
	DType  string `json:"dtype"`
	Values int    `json:"values"`
	Bytes  int64  `json:"bytes"` // of all; not all are in memory at the same time
}

// Result is a result of a step, in the arena.
type Result struct {
	Name  string `json:"name"` // of the node or the parameter
	DType string `json:"dtype"`
	Bytes int64  `json:"bytes"`
}

// mostLargest is the number of results in Precision.Largest.
const mostLargest = 5

// precisionOf returns the Precision of a program.
func precisionOf(p *program.Program) Precision {
	var all Precision
	touched := make([]bool, len(p.Values))
	for i := range p.Steps {
		s := &p.Steps[i]
		for _, v := range s.Out {
			touched[v.Value] = true
		}
		if s.Again {
			all.Again++
		}
	}
	params := map[string]bool{}
	for i := range p.Values {
		if v := &p.Values[i]; v.Role == program.Param {
			params[v.Name] = true
		}
	}
	for i := range p.Values {
		v := &p.Values[i]
		if !touched[i] || v.Place != program.Arena {
			continue
		}
		r := Result{Name: v.Name, DType: v.DType.String(), Bytes: v.Bytes()}
		all.add(r)
		if params[v.Name] && v.DType.Size() < 4 && v.DType.IsFloat() {
			all.Narrow = append(all.Narrow, r)
		}
		all.Largest = append(all.Largest, r)
	}
	slices.SortStableFunc(all.Kinds, func(a, b Kind) int { return cmp.Compare(b.Bytes, a.Bytes) })
	slices.SortStableFunc(all.Largest, func(a, b Result) int { return cmp.Compare(b.Bytes, a.Bytes) })
	all.Largest = slices.Clip(all.Largest[:min(len(all.Largest), mostLargest)])
	return all
}

func (p *Precision) add(r Result) {
	k := slices.IndexFunc(p.Kinds, func(k Kind) bool { return k.DType == r.DType })
	if k < 0 {
		k = len(p.Kinds)
		p.Kinds = append(p.Kinds, Kind{DType: r.DType})
	}
	p.Kinds[k].Values++
	p.Kinds[k].Bytes += r.Bytes
}

// String returns a line for results by dtype, one for the largest, and lines for rounded parameters
// and repeated steps if there are any.
func (p Precision) String() string {
	var b strings.Builder
	b.WriteString("results of steps:")
	for i, k := range p.Kinds {
		fmt.Fprintf(&b, "%s %d in %s (%d B)", comma(i), k.Values, k.DType, k.Bytes)
	}
	if len(p.Kinds) == 0 {
		b.WriteString(" none in the arena")
	}
	b.WriteString(names("largest", p.Largest))
	b.WriteString(names("parameters rounded for products", p.Narrow))
	if p.Again > 0 {
		fmt.Fprintf(&b, "\ncomputed again in the backward pass: %d steps", p.Again)
	}
	return b.String()
}

func names(title string, all []Result) string {
	if len(all) == 0 {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\n%s:", title)
	for i, r := range all {
		fmt.Fprintf(&b, "%s %q %s (%d B)", comma(i), r.Name, r.DType, r.Bytes)
	}
	return b.String()
}

func comma(i int) string {
	if i > 0 {
		return ","
	}
	return ""
}
