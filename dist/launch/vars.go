package launch

import (
	"fmt"
	"strconv"
	"strings"
)

// maxRanks bounds sizes, so that a mistyped one is an error and not a huge table.
const maxRanks = 1 << 20

// EnvError is an environment variable that is wrong, or missing while related ones are set.
type EnvError struct {
	Variable string // its name
	Value    string // its value; "" if it is not set
	Want     string // a description of valid values
}

// Error returns `environment variable RANK="x": want a rank, 0 to 3`.
func (e *EnvError) Error() string {
	if e.Value == "" {
		return fmt.Sprintf("environment variable %s is not set: want %s", e.Variable, e.Want)
	}
	return fmt.Sprintf("environment variable %s=%q: want %s", e.Variable, e.Value, e.Want)
}

// vars is an environment. An empty variable counts as unset.
type vars map[string]string

// newVars takes "name=value" strings; the last of a name counts, as in exec.Cmd.
func newVars(environ []string) vars {
	v := make(vars, len(environ))
	for _, s := range environ {
		name, value, ok := strings.Cut(s, "=")
		switch {
		case !ok || name == "":
		case value == "":
			delete(v, name)
		default:
			v[name] = value
		}
	}
	return v
}

// any reports whether one of names is set.
func (v vars) any(names ...string) bool {
	for _, n := range names {
		if v[n] != "" {
			return true
		}
	}
	return false
}

// wrong returns the EnvError for name.
func (v vars) wrong(name, format string, args ...any) error {
	return &EnvError{Variable: name, Value: v[name], Want: fmt.Sprintf(format, args...)}
}

// number returns the value of name, which must be digits and lo to hi; noun describes it.
func (v vars) number(name, noun string, lo, hi int) (int, error) {
	n, ok := parseNumber(v[name])
	if !ok || n < lo || n > hi {
		return 0, v.wrong(name, "%s, %d to %d", noun, lo, hi)
	}
	return n, nil
}

// parseNumber reads decimal digits; unlike strconv.Atoi it takes no sign.
func parseNumber(s string) (int, bool) {
	for _, c := range s {
		if c < '0' || c > '9' {
			return 0, false
		}
	}
	n, err := strconv.Atoi(s)
	return n, err == nil
}

// rankVars names the variables by which a launcher identifies a rank.
type rankVars struct{ rank, size, localRank, localSize string }

func (r rankVars) all() []string { return []string{r.rank, r.size, r.localRank, r.localSize} }

// world reads rank and size. Both must be set.
func (v vars) world(names rankVars) (Env, error) {
	size, err := v.number(names.size, "the number of ranks", 1, maxRanks)
	if err != nil {
		return Env{}, err
	}
	rank, err := v.number(names.rank, "a rank", 0, size-1)
	if err != nil {
		return Env{}, err
	}
	return Env{Rank: rank, Size: size, from: names.rank}, nil
}

// ranks reads all four numbers. The local ones may be missing when the world is one rank.
func (v vars) ranks(names rankVars) (Env, error) {
	e, err := v.world(names)
	if err != nil {
		return Env{}, err
	}
	if e.Size == 1 && !v.any(names.localRank, names.localSize) {
		e.LocalSize = 1
		return e, nil
	}
	if e.LocalSize, err = v.number(names.localSize, "the number of ranks on this host", 1, e.Size); err != nil {
		return Env{}, err
	}
	if e.LocalRank, err = v.number(names.localRank, "a rank of this host", 0, e.LocalSize-1); err != nil {
		return Env{}, err
	}
	return e, nil
}

// nodes reads the index of this node and the number of nodes. Without both variables they follow
// from the local size if all ranks are on this host.
func (v vars) nodes(e *Env, node, nodes string) (err error) {
	if !v.any(node, nodes) {
		e.guessNodes()
		return nil
	}
	if e.Nodes, err = v.number(nodes, "the number of nodes", 1, maxRanks); err != nil {
		return err
	}
	if e.Nodes > 1 && e.LocalSize == e.Size {
		return v.wrong(nodes, "1, because all %d ranks are on this host", e.Size)
	}
	e.Node, err = v.number(node, "the index of this node", 0, e.Nodes-1)
	return err
}
