package config

import (
	"cmp"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"
)

// EnvPrefix starts the name of every environment variable that is a setting.
const EnvPrefix = "SYMGRAD_"

// Key describes one setting.
type Key struct {
	Name    string // "run.max_steps"
	Env     string // "SYMGRAD_RUN_MAX_STEPS"
	Type    string // "string", "bool", "int", "float", "duration", "list of int"
	Default string // in the syntax of a file
	Allowed string // "at least 0"; "" if every value of the type is allowed
	Only    string // "optim.name is momentum"; "" if it always has an effect
	Help    string // one sentence without a full stop
	Hashed  bool   // whether Hash covers it
	Fixed   bool   // whether a resumed training must not change it
}

// Keys returns all settings, sorted by name.
func Keys() []Key {
	def := Default()
	keys := make([]Key, 0, len(schema()))
	for _, f := range schema() {
		keys = append(keys, Key{
			Name:    f.key,
			Env:     f.env(),
			Type:    f.kind.String(),
			Default: format(f.get(&def)),
			Allowed: describe(f.in),
			Only:    f.only.String(),
			Help:    f.help,
			Hashed:  f.hashed,
			Fixed:   f.fixed,
		})
	}
	slices.SortFunc(keys, func(a, b Key) int { return cmp.Compare(a.Name, b.Name) })
	return keys
}

// field is one setting in the schema.
type field struct {
	key    string // dotted
	path   []int  // for reflect.Value.FieldByIndex
	typ    reflect.Type
	kind   kind
	in     string // the tag
	only   condition
	help   string
	hashed bool
	fixed  bool
}

func (f *field) env() string { return EnvPrefix + strings.ToUpper(strings.ReplaceAll(f.key, ".", "_")) }

// get returns the setting's value in c, of the type of its field.
func (f *field) get(c *Config) any { return reflect.ValueOf(c).Elem().FieldByIndex(f.path).Interface() }

// schema returns all settings in the order of Config. It is read-only.
var schema = sync.OnceValue(func() []*field { return fields(reflect.TypeFor[Config](), "", nil) })

// fields returns the settings in t, a struct with the key prefix: its own, then those of its
// sections.
func fields(t reflect.Type, prefix string, path []int) []*field {
	var own, below []*field
	for sf := range t.Fields() {
		key, at := join(prefix, sf.Tag.Get("yaml")), append(slices.Clone(path), sf.Index...)
		if sf.Type.Kind() == reflect.Struct {
			below = append(below, fields(sf.Type, key, at)...)
			continue
		}
		own = append(own, &field{
			key: key, path: at, typ: sf.Type, kind: kindOf(sf.Type),
			in: sf.Tag.Get("in"), only: parseCondition(sf.Tag.Get("only")),
			help: sf.Tag.Get("help"), hashed: sf.Tag.Get("hash") != "-",
			fixed: sf.Tag.Get("resume") == "fixed",
		})
	}
	return append(own, below...)
}

// lookup returns the setting with this key, or nil.
func lookup(key string) *field {
	i := slices.IndexFunc(schema(), func(f *field) bool { return f.key == key })
	if i < 0 {
		return nil
	}
	return schema()[i]
}

// sections returns the keys that contain settings, such as "optim" and "optim.schedule", sorted.
func sections() []string {
	var names []string
	for _, f := range schema() {
		for s := parent(f.key); s != "" && !slices.Contains(names, s); s = parent(s) {
			names = append(names, s)
		}
	}
	slices.Sort(names)
	return names
}

func keyNames() []string {
	names := make([]string, 0, len(schema()))
	for _, f := range schema() {
		names = append(names, f.key)
	}
	return names
}

// parent returns the section of a key, "" at the top; last returns its name in the section.
func parent(key string) string { return key[:max(0, strings.LastIndexByte(key, '.'))] }
func last(key string) string   { return key[strings.LastIndexByte(key, '.')+1:] }

func join(section, name string) string {
	if section == "" {
		return name
	}
	return section + "." + name
}

// kind is the type of a setting's text.
type kind int

const (
	kindNone kind = iota // a type that no setting may have
	kindString
	kindBool
	kindInt
	kindFloat
	kindDuration
	kindInts
)

func kindOf(t reflect.Type) kind {
	switch t {
	case reflect.TypeFor[string]():
		return kindString
	case reflect.TypeFor[bool]():
		return kindBool
	case reflect.TypeFor[int](), reflect.TypeFor[int64]():
		return kindInt
	case reflect.TypeFor[float64]():
		return kindFloat
	case reflect.TypeFor[time.Duration]():
		return kindDuration
	case reflect.TypeFor[[]int]():
		return kindInts
	}
	return kindNone
}

func (k kind) String() string {
	return [...]string{"none", "string", "bool", "int", "float", "duration", "list of int"}[k]
}

// condition is the condition under which a setting has an effect: the setting other has one of
// values or, if there are none, any value except "". The zero condition always holds.
type condition struct {
	other  string
	values []string
}

func parseCondition(tag string) condition {
	other, values, ok := strings.Cut(tag, "=")
	if !ok {
		return condition{other: other}
	}
	return condition{other, strings.Split(values, "|")}
}

// holds reports whether the condition is true in cfg.
func (c condition) holds(cfg *Config) bool {
	if c.other == "" {
		return true
	}
	value := format(lookup(c.other).get(cfg))
	if len(c.values) == 0 {
		return value != format("")
	}
	return slices.Contains(c.values, value)
}

// String returns "optim.name is adam or adamw", or "" for the zero condition.
func (c condition) String() string {
	switch {
	case c.other == "":
		return ""
	case len(c.values) == 0:
		return c.other + " is set"
	}
	return c.other + " is " + strings.Join(c.values, " or ")
}

// unmet returns why the condition does not hold in cfg: "optim.name is sgd".
func (c condition) unmet(cfg *Config) string {
	if len(c.values) == 0 {
		return c.other + " is empty"
	}
	return c.other + " is " + format(lookup(c.other).get(cfg))
}
