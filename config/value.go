package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// parse parses text as a value of the setting's type. The text is from a file, the environment or a
// flag. Errors: invalid text, with the valid forms.
func (f *field) parse(text string) (any, error) {
	v, err := parseKind(f.kind, text)
	if err != nil {
		return nil, err
	}
	return reflect.ValueOf(v).Convert(f.typ).Interface(), nil
}

func parseKind(k kind, text string) (any, error) {
	if k == kindString {
		return parseString(text)
	}
	text = strings.TrimSpace(text)
	if text == "" && k != kindInts {
		return nil, fmt.Errorf("value is missing: want %s", article(k))
	}
	switch k {
	case kindBool:
		if text != "true" && text != "false" {
			return nil, fmt.Errorf("%q is not true or false", text)
		}
		return text == "true", nil
	case kindInt:
		return parseInt(text)
	case kindFloat:
		x, err := strconv.ParseFloat(text, 64)
		switch {
		case errors.Is(err, strconv.ErrRange):
			return nil, fmt.Errorf("%s is too large", text)
		case err != nil:
			return nil, fmt.Errorf("%q is not a number", text)
		case math.IsInf(x, 0) || math.IsNaN(x):
			return nil, fmt.Errorf("%s is not a finite number", text)
		}
		return x, nil
	case kindDuration:
		return parseDuration(text)
	case kindInts:
		return parseInts(text)
	}
	return nil, fmt.Errorf("unsupported type of setting")
}

// parseString rejects text that YAML cannot represent or that would garble a terminal.
func parseString(text string) (string, error) {
	if !utf8.ValidString(text) {
		return "", fmt.Errorf("%q is not UTF-8", text)
	}
	for _, r := range text {
		if !unicode.IsPrint(r) {
			return "", fmt.Errorf("%q has an unprintable character", text)
		}
	}
	return text, nil
}

// parseInt reads 60000, 60_000 and 0xea60. It rejects a leading zero, which means an octal number
// only in YAML 1.1.
func parseInt(text string) (int64, error) {
	digits := strings.TrimLeft(text, "+-")
	if len(digits) > 1 && digits[0] == '0' && (digits[1] == '_' || '0' <= digits[1] && digits[1] <= '9') {
		return 0, fmt.Errorf("%q has a leading zero: remove it, or write 0o for an octal number", text)
	}
	x, err := strconv.ParseInt(text, 0, 64)
	switch {
	case errors.Is(err, strconv.ErrRange):
		return 0, fmt.Errorf("%s is too large for an integer", text)
	case err != nil:
		return 0, fmt.Errorf("%q is not an integer", text)
	}
	return x, nil
}

func parseDuration(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err == nil {
		return d, nil
	}
	if _, err := strconv.ParseFloat(text, 64); err == nil {
		return 0, fmt.Errorf("%s has no unit: write %ss for seconds", text, text)
	}
	return 0, fmt.Errorf("%q is not a duration: write one as 2s, 100ms or 1m30s", text)
}

// parseInts reads [256, 128], 256,128 and "", which is the empty list.
func parseInts(text string) ([]int, error) {
	inner := text
	if s, ok := strings.CutPrefix(text, "["); ok {
		if inner, ok = strings.CutSuffix(s, "]"); !ok {
			return nil, fmt.Errorf("%q is not a list: the bracket does not close", text)
		}
	}
	list := []int{}
	if strings.TrimSpace(inner) == "" {
		return list, nil
	}
	for i, item := range strings.Split(inner, ",") {
		x, err := parseInt(strings.TrimSpace(item))
		if err != nil {
			return nil, fmt.Errorf("item %d of the list: %w", i+1, err)
		}
		list = append(list, int(x))
	}
	return list, nil
}

func article(k kind) string {
	switch k {
	case kindBool:
		return "true or false"
	case kindInt:
		return "an integer"
	case kindFloat:
		return "a number"
	case kindInts:
		return "a list of integers, such as [256, 128]"
	}
	return "a " + k.String()
}

// format returns a value as one line of text that YAML reads back and, except for quoted strings,
// parse as well.
func format(v any) string {
	switch v := v.(type) {
	case string:
		return quote(v)
	case float64:
		return strconv.FormatFloat(v+0, 'g', -1, 64) // -0 is 0
	case []int:
		items := make([]string, len(v))
		for i, x := range v {
			items[i] = strconv.Itoa(x)
		}
		return "[" + strings.Join(items, ", ") + "]"
	}
	return fmt.Sprint(v)
}

// quote returns s as a YAML scalar: plain if YAML reads it as a string, else in double quotes.
func quote(s string) string {
	if b, err := yaml.Marshal(s); err == nil {
		if text := strings.TrimSuffix(string(b), "\n"); !strings.Contains(text, "\n") {
			return text
		}
	}
	b, err := json.Marshal(s) // JSON strings are YAML strings (YAML 1.2, section 1.3)
	if err != nil {
		return strconv.Quote(s)
	}
	return string(b)
}
