package direct

import (
	"bytes"
	_ "embed" // the rules that come with the program
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/symgrad/symgrad/dist"
)

//go:embed shapes.json
var shapesFile []byte

// builtinRules returns the built-in rules. TestSweep measured them on H100s and H200s, those of
// packets last among 2 and 4 H100s. Shapes without a rule are guessed.
var builtinRules = sync.OnceValues(func() ([]Rule, error) { return DecodeRules(shapesFile) })

// ruleLine is a Rule in a file.
type ruleLine struct {
	Engine  string `json:"engine"`
	Kind    string `json:"kind"`
	Ranks   int    `json:"ranks,omitempty"`
	Bytes   int64  `json:"bytes"`
	Blocks  int    `json:"blocks"`
	Threads int    `json:"threads"`
	Tile    int    `json:"tile,omitempty"`
}

// EncodeRules returns rules as JSON, one a line.
func EncodeRules(rules []Rule) []byte {
	var b bytes.Buffer
	b.WriteString("[")
	for i, r := range rules {
		line, err := json.Marshal(ruleLine{r.Engine, r.Kind.String(), r.Ranks, r.Bytes, r.Shape.Blocks, r.Shape.Threads, r.Shape.Tile})
		if err != nil {
			continue // cannot happen: strings and numbers encode
		}
		if i > 0 {
			b.WriteString(",")
		}
		b.WriteString("\n")
		b.Write(line)
	}
	b.WriteString("\n]\n")
	return b.Bytes()
}

// DecodeRules is the inverse of EncodeRules.
//
// Errors: dist.ErrInvalid, with the rule, for wrong JSON, an unknown field, engine or kind, and an
// impossible shape.
func DecodeRules(text []byte) ([]Rule, error) {
	var lines []ruleLine
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&lines); err != nil {
		return nil, fmt.Errorf("shapes: %w: %w", dist.ErrInvalid, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("shapes: %w: data after their end", dist.ErrInvalid)
	}
	rules := make([]Rule, len(lines))
	for i, l := range lines {
		r := Rule{Engine: l.Engine, Ranks: l.Ranks, Bytes: l.Bytes, Shape: Shape{Blocks: l.Blocks, Threads: l.Threads, Tile: l.Tile}}
		for k := dist.KindAllReduce; k <= dist.KindSync; k++ {
			if k.String() == l.Kind {
				r.Kind = k
			}
		}
		if r.Kind == dist.KindInvalid {
			return nil, fmt.Errorf("shapes: rule %d: %w: unknown operation %q", i, dist.ErrInvalid, l.Kind)
		}
		if err := r.validate(); err != nil {
			return nil, fmt.Errorf("shapes: rule %d: %w", i, err)
		}
		rules[i] = r
	}
	return rules, nil
}
