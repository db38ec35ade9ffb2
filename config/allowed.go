package config

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// interval is an in tag such as "[0,1)": an interval of numbers or durations.
type interval struct{ low, high bound }

// bound is one side of an interval. Durations count in seconds.
type bound struct {
	text  string // as written; "" means unbounded
	value float64
	open  bool // the bound itself is excluded
}

// parseInterval parses tag and reports whether it is an interval.
func parseInterval(tag string) (interval, bool) {
	if len(tag) < 3 || !strings.ContainsAny(tag[:1], "[(") || !strings.ContainsAny(tag[len(tag)-1:], "])") {
		return interval{}, false
	}
	low, high, comma := strings.Cut(tag[1:len(tag)-1], ",")
	v := interval{bound{text: low, open: tag[0] == '('}, bound{text: high, open: tag[len(tag)-1] == ')'}}
	return v, v.low.parse() && v.high.parse() && comma
}

// parse fills in the value, and reports whether the text is valid.
func (b *bound) parse() bool {
	d, err := time.ParseDuration(b.text)
	if b.value = d.Seconds(); err == nil || b.text == "" {
		return true
	}
	b.value, err = strconv.ParseFloat(b.text, 64)
	return err == nil
}

// contains reports whether x is in v. NaN is in no interval.
func (v interval) contains(x float64) bool {
	above := x > v.low.value || !v.low.open && x == v.low.value
	below := x < v.high.value || !v.high.open && x == v.high.value
	return x == x && (above || v.low.text == "") && (below || v.high.text == "")
}

// String returns "at least 0 and less than 1".
func (v interval) String() string {
	var sides []string
	if v.low.text != "" {
		sides = append(sides, choose(v.low.open, "more than ", "at least ")+v.low.text)
	}
	if v.high.text != "" {
		sides = append(sides, choose(v.high.open, "less than ", "at most ")+v.high.text)
	}
	return strings.Join(sides, " and ")
}

func choose(yes bool, a, b string) string {
	if yes {
		return a
	}
	return b
}

// describe returns an in tag in words: "auto, shm or sim", "at least 0"; "" for the empty tag.
func describe(tag string) string {
	if v, ok := parseInterval(tag); ok {
		return v.String()
	}
	names := strings.Split(tag, "|")
	if len(names) == 1 {
		return tag
	}
	return strings.Join(names[:len(names)-1], ", ") + " or " + names[len(names)-1]
}

// check returns the error of value by itself, or nil. Every item of a list must be in the interval.
func (f *field) check(value any) error {
	switch v := value.(type) {
	case string:
		if _, err := parseString(v); err != nil || f.in == "" {
			return err
		}
		names := strings.Split(f.in, "|")
		for _, name := range names {
			if v == name {
				return nil
			}
		}
		if near := nearest(v, names); near != "" {
			return fmt.Errorf("unknown %q: did you mean %s? (%s)", v, near, describe(f.in))
		}
		return fmt.Errorf("unknown %q: use %s", v, describe(f.in))
	case int:
		return f.inside(float64(v), format(v))
	case int64:
		return f.inside(float64(v), format(v))
	case float64:
		return f.inside(v, format(v))
	case time.Duration:
		return f.inside(v.Seconds(), format(v))
	case []int:
		for i, x := range v {
			if err := f.inside(float64(x), format(x)); err != nil {
				return fmt.Errorf("item %d of the list: %w", i+1, err)
			}
		}
	}
	return nil
}

func (f *field) inside(x float64, text string) error {
	if v, ok := parseInterval(f.in); ok && !v.contains(x) {
		return fmt.Errorf("%s is out of range: %v", text, v)
	}
	return nil
}
