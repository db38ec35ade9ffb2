package config

import (
	"cmp"
	"fmt"
	"strings"
)

// Level is a source of settings. A higher level overrides a lower one.
type Level int

// The levels, lowest first.
const (
	LevelDefault Level = iota
	LevelFile
	LevelEnv
	LevelFlag
)

// Origin is the place of a value. The zero Origin is the default.
type Origin struct {
	Level Level
	File  string // LevelFile: as given
	Line  int    // LevelFile: from 1; 0 means the file as a whole
	Col   int    // LevelFile: from 1; 0 means the whole line
	Var   string // LevelEnv: the variable
}

// String returns "default", "mnist.yaml:4:9", "$SYMGRAD_RUN_SEED" or "--set".
func (o Origin) String() string {
	switch o.Level {
	case LevelFile:
		switch {
		case o.Line == 0:
			return o.File
		case o.Col == 0:
			return fmt.Sprintf("%s:%d", o.File, o.Line)
		}
		return fmt.Sprintf("%s:%d:%d", o.File, o.Line, o.Col)
	case LevelEnv:
		return "$" + o.Var
	case LevelFlag:
		return "--set"
	}
	return "default"
}

// compare orders origins: the file from top to bottom, the environment, flags, and last the
// defaults.
func (o Origin) compare(p Origin) int {
	place := func(o Origin) int { return (int(o.Level) + int(LevelFlag)) % (int(LevelFlag) + 1) }
	return cmp.Or(cmp.Compare(place(o), place(p)), cmp.Compare(o.Line, p.Line), cmp.Compare(o.Col, p.Col))
}

// Origins has the origin of each value of a Config.
type Origins struct {
	of map[string]Origin // settings with their default are not in it
}

// Origin returns the origin of the setting with this key. A nil Origins returns defaults.
func (o *Origins) Origin(key string) Origin {
	if o == nil {
		return Origin{}
	}
	return o.of[key]
}

// Problem is one error in a configuration.
type Problem struct {
	Origin Origin // zero also if Validate found it, which knows no origins
	Key    string // the setting; "" if it is unknown or the problem concerns none
	Text   string // the error and its remedy

	with []string // other settings that the problem depends on
}

// String returns "mnist.yaml:4:9: run.epochs: -1 is out of range: at least 0".
func (p Problem) String() string {
	s := p.Text
	if p.Key != "" {
		s = p.Key + ": " + s
	}
	if p.Origin != (Origin{}) {
		s = p.Origin.String() + ": " + s
	}
	return s
}

// Error has all problems of a configuration, ordered by origin. Load and Validate return it.
type Error struct {
	Problems []Problem // at least one
}

// Error returns the problem or, for several, their number and one per line.
func (e *Error) Error() string {
	if len(e.Problems) == 1 {
		return e.Problems[0].String()
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d problems in the configuration:", len(e.Problems))
	for _, p := range e.Problems {
		b.WriteString("\n  " + p.String())
	}
	return b.String()
}

// asError returns nil if there are no problems.
func asError(problems []Problem) error {
	if len(problems) == 0 {
		return nil
	}
	return &Error{problems}
}
