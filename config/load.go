package config

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/go-viper/mapstructure/v2"
	"github.com/spf13/pflag"
	"github.com/spf13/viper"
)

// Source has the sources of settings for Load, in addition to the defaults.
type Source struct {
	File string // a YAML file; "" means none
	// Content is the content of File after Read; nil means that Load reads File.
	Content []byte
	Env     []string // "name=value" as from Environ; the last of a name counts, and empty values count as unset
	Set     []string // "key=value" as after --set; the last of a key counts

	// Reserved are variables of Env that start with EnvPrefix but are not settings, such as
	// launch.Variables(). SYMGRAD_TEST_*, SYMGRAD_REQUIRE and SYMGRAD_REQUIRE_*, which tests use,
	// are always reserved.
	Reserved []string

	unread error // why Read could not read File
}

// Read returns s with the content of its file, so that every Load gives the same settings: a pipe
// can be read only once, and a file can change meanwhile. If the file cannot be read, Load reports
// the error.
func (s Source) Read() Source {
	if s.File != "" && s.Content == nil && s.unread == nil {
		s.Content, s.unread = readBounded(s.File)
	}
	return s
}

// Environ returns the variables of this process that start with EnvPrefix, for Source.Env.
func Environ() []string {
	return slices.DeleteFunc(os.Environ(), func(s string) bool { return !strings.HasPrefix(s, EnvPrefix) })
}

// AddFlags defines --config and --set, which fill s.
func (s *Source) AddFlags(flags *pflag.FlagSet) {
	flags.StringVar(&s.File, "config", "", "YAML `file` with settings")
	// StringArray, because StringSlice would split a value at its commas.
	flags.StringArrayVar(&s.Set, "set", nil, "a setting as `key=value`, overrides file and environment (repeatable)")
}

// Load returns the settings of s and the origin of each. Errors: *Error with all errors.
func Load(s Source) (*Config, *Origins, error) {
	layers := []*layer{newLayer()}
	if s.File != "" {
		layers = append(layers, readFile(s.Read()))
	}
	layers = append(layers, readEnv(s.Env, s.Reserved), readSet(s.Set))
	cfg, err := merge(layers)
	if err != nil {
		return nil, nil, err
	}
	origins := &Origins{map[string]Origin{}}
	var problems []Problem
	for _, l := range layers {
		problems = append(problems, l.problems...)
		for _, f := range schema() {
			if at, ok := l.origins[f.key]; ok {
				origins.of[f.key] = at
			}
		}
	}
	if _, set := origins.of["optim.weight_decay"]; !set {
		cfg.Optim.WeightDecay = cfg.Optim.defaultDecay()
	}
	wrong := misunderstood(layers)
	for _, p := range append(cfg.invalid(), cfg.ineffective(origins)...) {
		// An error that depends on an invalid value would be misleading.
		if !slices.ContainsFunc(append(p.with, p.Key), func(key string) bool { return wrong[key] }) {
			p.Origin = p.blame(origins)
			problems = append(problems, p)
		}
	}
	slices.SortStableFunc(problems, func(a, b Problem) int { return a.Origin.compare(b.Origin) })
	if err := asError(problems); err != nil {
		return nil, nil, err
	}
	return cfg, origins, nil
}

// misunderstood returns the settings with an invalid value that no higher layer replaces.
func misunderstood(layers []*layer) map[string]bool {
	wrong := map[string]bool{}
	for _, l := range layers {
		for _, f := range schema() {
			_, set := l.values[f.key]
			wrong[f.key] = l.unread || l.wrong[f.key] || wrong[f.key] && !set
		}
	}
	return wrong
}

// blame returns the origin of the problem's setting or, if it has its default, of a setting that
// the problem depends on.
func (p Problem) blame(o *Origins) Origin {
	for _, key := range append([]string{p.Key}, p.with...) {
		if at := o.Origin(key); at.Level != LevelDefault {
			return at
		}
	}
	return Origin{}
}

// merge combines the layers, later ones over earlier ones. Viper does it: its defaults are ours,
// its config map is the layers below the flags, its overrides are the flags. It does not read the
// environment: it would take all variables of the process and could not detect misspelt names.
func merge(layers []*layer) (*Config, error) {
	v := viper.New()
	def := Default()
	for _, f := range schema() {
		v.SetDefault(f.key, f.get(&def))
		for i, l := range layers {
			value, ok := l.values[f.key]
			switch {
			case !ok:
			case i == len(layers)-1:
				v.Set(f.key, value)
			default:
				if err := v.MergeConfigMap(nested(f.key, value)); err != nil {
					return nil, fmt.Errorf("merge %s: %w", f.key, err)
				}
			}
		}
	}
	var cfg Config
	if err := v.UnmarshalExact(&cfg, strict); err != nil {
		return nil, fmt.Errorf("decode the merged configuration: %w", err)
	}
	return &cfg, nil
}

// nested returns {"optim": {"lr": value}} for optim.lr.
func nested(key string, value any) map[string]any {
	head, tail, ok := strings.Cut(key, ".")
	if !ok {
		return map[string]any{key: value}
	}
	return map[string]any{head: nested(tail, value)}
}

// readEnv returns the settings in an environment.
func readEnv(env, reserved []string) *layer {
	l := newLayer()
	vars := map[string]string{}
	for _, s := range env {
		if name, value, ok := strings.Cut(s, "="); ok && strings.HasPrefix(name, EnvPrefix) && !isReserved(name, reserved) {
			vars[name] = value
		}
	}
	for _, f := range schema() {
		name := f.env()
		if value := vars[name]; value != "" {
			l.set(Origin{Level: LevelEnv, Var: name}, f, value)
		}
		delete(vars, name)
	}
	var rest []string
	for name, value := range vars {
		if value != "" {
			rest = append(rest, name)
		}
	}
	slices.Sort(rest)
	for _, name := range rest {
		hint := "symgrad config keys lists all settings; unset it otherwise"
		if near := nearestVar(name, reserved); near != "" {
			hint = "did you mean " + near + "?"
		}
		l.problem(Origin{Level: LevelEnv, Var: name}, "", "unknown setting: %s", hint)
	}
	return l
}

// nearestVar returns the variable most similar to name, or "". It replaces the underscores after
// section names by dots, because similarity depends on the last name of a key.
func nearestVar(name string, reserved []string) string {
	for _, r := range reserved {
		if edits(name, r) <= 1 {
			return r
		}
	}
	flat := strings.ToLower(strings.TrimPrefix(name, EnvPrefix))
	text := flat
	for _, s := range sections() { // an outer section comes before its inner ones
		if rest, ok := strings.CutPrefix(flat, strings.ReplaceAll(s, ".", "_")+"_"); ok {
			text = s + "." + rest
		}
	}
	if near := lookup(nearest(text, keyNames())); near != nil {
		return near.env()
	}
	return ""
}

func isReserved(name string, reserved []string) bool {
	return slices.Contains(reserved, name) || strings.HasPrefix(name, EnvPrefix+"TEST_") || strings.HasPrefix(name+"_", EnvPrefix+"REQUIRE_")
}

// readSet returns the settings of --set flags.
func readSet(set []string) *layer {
	l := newLayer()
	at := Origin{Level: LevelFlag}
	for _, s := range set {
		key, value, ok := strings.Cut(s, "=")
		key = strings.TrimSpace(key)
		f := lookup(key)
		switch {
		case !ok:
			l.problem(at, "", "%q: want key=value%s", s, didYouMean(key, keyNames()))
		case f != nil:
			l.set(at, f, value)
		case isSection(key):
			l.problem(at, "", "%q is a section: set one of its keys, such as %s", key, firstOf(key))
		default:
			l.problem(at, "", "%s", unknownKey(key, keyNames()))
		}
	}
	return l
}

// firstOf returns the first setting of a section.
func firstOf(section string) string {
	i := slices.IndexFunc(schema(), func(f *field) bool { return strings.HasPrefix(f.key, section+".") })
	return schema()[i].key
}

// strict makes viper's decoder use the tags of Config, convert nothing and require every field.
func strict(d *mapstructure.DecoderConfig) {
	d.TagName = "yaml"
	d.WeaklyTypedInput = false
	d.ErrorUnset = true
	d.DecodeHook = nil
}
