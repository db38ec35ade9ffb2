package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/symgrad/symgrad/internal/foreign"
)

// layer has the settings of one level: valid values, and the keys of invalid ones.
type layer struct {
	values   map[string]any
	origins  map[string]Origin
	wrong    map[string]bool
	unread   bool // the file could not be read, so any setting may have been in it
	problems []Problem
}

func newLayer() *layer {
	return &layer{values: map[string]any{}, origins: map[string]Origin{}, wrong: map[string]bool{}}
}

// problem records an error at an origin; key is "" if it concerns no setting.
func (l *layer) problem(at Origin, key, text string, args ...any) {
	l.problems = append(l.problems, Problem{Origin: at, Key: key, Text: fmt.Sprintf(text, args...)})
	if key != "" {
		l.wrong[key] = true
	}
}

// set parses text as the value of f.
func (l *layer) set(at Origin, f *field, text string) {
	value, err := f.parse(text)
	if err != nil {
		l.problem(at, f.key, "%v", err)
		return
	}
	l.put(at, f, value)
}

func (l *layer) put(at Origin, f *field, value any) {
	l.values[f.key], l.origins[f.key] = value, at
	delete(l.wrong, f.key)
}

// file is a YAML file that is read into a layer.
type file struct {
	*layer
	path string
}

// MostFileBytes bounds a file of settings. A file with every setting has less than 100 KiB.
const MostFileBytes = 16 << 20

// readBounded returns the content of a file of settings, which is never nil without an error.
func readBounded(path string) ([]byte, error) {
	data, err := foreign.ReadNamed(path, MostFileBytes)
	if data == nil && err == nil {
		data = []byte{}
	}
	return data, err
}

// readFile returns the settings of the file that s has read. Errors are in the layer's problems.
func readFile(s Source) *layer {
	f := file{newLayer(), s.File}
	if err := s.unread; err != nil {
		var pe *os.PathError
		if errors.As(err, &pe) {
			err = pe.Err // the origin names the file
		}
		f.unread = true
		f.problem(Origin{Level: LevelFile, File: s.File}, "", "%v", err)
		return f.layer
	}
	f.read(s.Content)
	return f.layer
}

func (f file) read(data []byte) {
	d := yaml.NewDecoder(bytes.NewReader(data))
	var doc, more yaml.Node
	err := d.Decode(&doc)
	switch {
	case errors.Is(err, io.EOF): // only comments
		return
	case err != nil:
		f.syntax(data, err)
		return
	}
	if top := doc.Content[0]; !isNull(top) {
		f.section("", top)
	}
	switch err := d.Decode(&more); {
	case errors.Is(err, io.EOF):
	case err != nil:
		f.syntax(data, err)
	default:
		f.problem(f.at(&more), "", "second document: put all settings into one document, without ---")
	}
}

var (
	yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)
	// Messages of yaml.v3's parser, as opposed to its scanner. The parser counts lines from 0
	// (parser.fail in its decode.go).
	fromZero = regexp.MustCompile(`^did not find expected (key|node content|'-' indicator|',' or '[\]}]'|'<document start>')`)
)

// syntax records an error of the YAML parser for data, with its line if known. A tab in the
// indentation of that line has a message of its own.
func (f file) syntax(data []byte, err error) {
	at := Origin{Level: LevelFile, File: f.path}
	text := err.Error()
	if m := yamlLine.FindStringSubmatch(text); m != nil {
		text = text[len(m[0]):]
		at.Line, _ = strconv.Atoi(m[1]) // 0, the whole file, if unknown
	}
	if at.Line > 0 && fromZero.MatchString(text) {
		at.Line++
	}
	if tab := indentTab(data, at.Line); tab > 0 {
		at.Col, text = tab, "tab in the indentation: indent with spaces, not tabs"
	}
	f.unread = true
	f.problem(at, "", "%s", text)
}

// indentTab returns the column of the first tab in the indentation of a line, from 1, or 0 if the
// line has none.
func indentTab(data []byte, line int) int {
	lines := bytes.Split(data, []byte("\n"))
	if line < 1 || line > len(lines) {
		return 0
	}
	text := lines[line-1]
	indent := text[:len(text)-len(bytes.TrimLeft(text, " \t"))]
	return bytes.IndexByte(indent, '\t') + 1
}

func (f file) at(n *yaml.Node) Origin {
	return Origin{Level: LevelFile, File: f.path, Line: n.Line, Col: n.Column}
}

// section reads the settings of a section, prefix, from its mapping.
func (f file) section(prefix string, n *yaml.Node) {
	if n.Kind != yaml.MappingNode {
		f.problem(f.at(n), "", "%s: want lines of key: value, got %s", choose(prefix == "", "top of the file", prefix), nodeKind(n))
		return
	}
	lines := map[string]int{} // line of the first use of each name
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, value := n.Content[i], target(n.Content[i+1])
		if name.Kind != yaml.ScalarNode || name.ShortTag() == "!!merge" {
			f.problem(f.at(name), "", "a key must be a plain name: list the settings one by one")
			continue
		}
		key := join(prefix, name.Value)
		if line, twice := lines[name.Value]; twice {
			f.problem(f.at(name), "", "%q is set a second time: the first is on line %d", key, line)
			continue
		}
		lines[name.Value] = name.Line
		f.entry(key, name, value)
	}
}

// entry reads one key of a section, which may be a section itself.
func (f file) entry(key string, name, value *yaml.Node) {
	switch known := lookup(key); {
	case strings.Contains(name.Value, "."):
		f.problem(f.at(name), "", "unknown key %q: write dotted keys as nested ones%s", key, didYouMean(key, keyNames()))
	case known != nil:
		f.setting(known, name, value)
	case isSection(key) && isNull(value): // all its settings may be commented out
	case isSection(key):
		f.section(key, value)
	default:
		candidates := keyNames()
		if value.Kind == yaml.MappingNode {
			candidates = sections()
		}
		f.problem(f.at(name), "", "%s", unknownKey(key, candidates))
	}
}

// setting reads the value of a known key.
func (f file) setting(known *field, name, value *yaml.Node) {
	at := f.at(value)
	switch {
	case isNull(value):
		f.problem(f.at(name), known.key, "value is missing: add one, or remove the line for the default, %s", format(known.get(new(Default()))))
	case value.Kind == yaml.SequenceNode && known.kind == kindInts:
		f.list(known, value)
	case value.Kind != yaml.ScalarNode || known.kind == kindInts:
		f.problem(at, known.key, "want %s, got %s", article(known.kind), nodeKind(value))
	case value.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) != 0 && !known.kind.quotable():
		f.problem(at, known.key, "want %s, got a string: remove the quotes around %s", article(known.kind), strings.TrimSpace(value.Value))
	case value.Style&yaml.TaggedStyle != 0:
		f.problem(at, known.key, "want %s without the tag %s", article(known.kind), value.Tag)
	default:
		f.set(at, known, value.Value)
	}
}

// list reads a sequence of integers.
func (f file) list(known *field, n *yaml.Node) {
	list, ok := make([]int, 0, len(n.Content)), true
	for i, item := range n.Content {
		item = target(item)
		if quoted := item.ShortTag() == "!!str" && item.Style != 0; item.Kind != yaml.ScalarNode || quoted || isNull(item) {
			f.problem(f.at(item), known.key, "item %d of the list: want an integer, got %s", i+1, nodeKind(item))
			ok = false
			continue
		}
		x, err := parseInt(item.Value)
		if err != nil {
			f.problem(f.at(item), known.key, "item %d of the list: %v", i+1, err)
			ok = false
			continue
		}
		list = append(list, int(x))
	}
	if ok {
		f.put(f.at(n), known, list)
	}
}

// quotable reports whether a value of this kind may be quoted.
func (k kind) quotable() bool { return k == kindString || k == kindDuration }

func isSection(key string) bool {
	for _, f := range schema() {
		if strings.HasPrefix(f.key, key+".") {
			return true
		}
	}
	return false
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

// target resolves an alias. It is used only for scalars and list items, so that aliases can neither
// loop nor multiply.
func target(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

// nodeKind describes a node in words.
func nodeKind(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a section"
	case yaml.SequenceNode:
		return "a list"
	}
	switch n.ShortTag() {
	case "!!null":
		return "nothing"
	case "!!int", "!!float":
		return "the number " + n.Value
	}
	return fmt.Sprintf("the text %q", n.Value)
}

// unknownKey returns the error text for an unknown key.
func unknownKey(key string, candidates []string) string {
	if hint := didYouMean(key, candidates); hint != "" {
		return fmt.Sprintf("unknown key %q%s", key, hint)
	}
	return fmt.Sprintf("unknown key %q: symgrad config keys lists them all", key)
}

// didYouMean returns ": did you mean optim.lr?", or "".
func didYouMean(key string, candidates []string) string {
	near := nearest(key, candidates)
	if near == "" {
		return ""
	}
	return ": did you mean " + near + "?"
}
