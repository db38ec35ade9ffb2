package sim

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/symgrad/symgrad/dist"
)

type faultKind uint8

const (
	faultDie faultKind = iota
	faultDrop
	faultDelay
)

// fault is one line of a script.
type fault struct {
	kind  faultKind
	rank  int
	op    uint64
	after []int // of delay: world ranks
}

// parseScript reads the faults of a world of n ranks.
func parseScript(text string, n int) ([]fault, error) {
	var faults []fault
	for i, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, "#")
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		f, err := parseFault(words, n)
		if err == nil && slices.ContainsFunc(faults, func(o fault) bool { return o.rank == f.rank && o.op == f.op }) {
			err = fmt.Errorf("rank %d has a fault at op %d already", f.rank, f.op)
		}
		if err != nil {
			return nil, fmt.Errorf("sim: %w: script line %d: %w", dist.ErrInvalid, i+1, err)
		}
		faults = append(faults, f)
	}
	return faults, nil
}

func parseFault(words []string, n int) (fault, error) {
	var f fault
	want := []string{"rank", "op"}
	switch words[0] {
	case "die":
		f.kind = faultDie
	case "drop":
		f.kind = faultDrop
	case "delay":
		f.kind = faultDelay
		want = append(want, "after")
	default:
		return f, fmt.Errorf("unknown fault %q (one of die, drop, delay)", words[0])
	}
	values, err := parseFields(words[1:], want)
	if err != nil {
		return f, fmt.Errorf("%s: %w", words[0], err)
	}
	if f.rank, err = parseRank(values["rank"], n); err != nil {
		return f, fmt.Errorf("rank: %w", err)
	}
	if f.op, err = strconv.ParseUint(values["op"], 10, 64); err != nil || f.op == 0 {
		return f, fmt.Errorf("op: %q is not a number from 1", values["op"])
	}
	if f.kind == faultDelay {
		f.after, err = parseAfter(values["after"], f.rank, n)
	}
	return f, err
}

// parseFields reads key=value words; every key of want must appear once, and no other.
func parseFields(words, want []string) (map[string]string, error) {
	values := map[string]string{}
	for _, word := range words {
		key, value, ok := strings.Cut(word, "=")
		if !ok {
			return nil, fmt.Errorf("%q is not key=value", word)
		}
		if !slices.Contains(want, key) {
			return nil, fmt.Errorf("unknown key %q (want %s)", key, strings.Join(want, ", "))
		}
		if _, again := values[key]; again {
			return nil, fmt.Errorf("key %q is given twice", key)
		}
		values[key] = value
	}
	for _, key := range want {
		if _, ok := values[key]; !ok {
			return nil, fmt.Errorf("%s= is missing", key)
		}
	}
	return values, nil
}

func parseRank(s string, n int) (int, error) {
	r, err := strconv.Atoi(s)
	if err != nil || r < 0 || r >= n {
		return 0, fmt.Errorf("%q is not in 0 to %d", s, n-1)
	}
	return r, nil
}

func parseAfter(s string, self, n int) ([]int, error) {
	var ranks []int
	if s == "all" {
		for r := range n {
			if r != self {
				ranks = append(ranks, r)
			}
		}
		return ranks, nil
	}
	for _, part := range strings.Split(s, ",") {
		r, err := parseRank(part, n)
		switch {
		case err != nil:
			return nil, fmt.Errorf("after: %w", err)
		case r == self:
			return nil, fmt.Errorf("after: rank %d cannot wait for itself", r)
		}
		ranks = append(ranks, r)
	}
	return ranks, nil
}

// faultOf returns the fault of a rank at an operation of the world's group, or nil.
func (u *universe) faultOf(rank int, op uint64) *fault {
	for i := range u.faults {
		if f := &u.faults[i]; f.rank == rank && f.op == op {
			return f
		}
	}
	return nil
}
