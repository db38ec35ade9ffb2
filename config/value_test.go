package config

import (
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestParseReadsValues(t *testing.T) {
	for _, tt := range []struct {
		kind kind
		text string
		want any
	}{
		{kindString, "", ""},
		{kindString, " a b ", " a b "},
		{kindString, "größe=1", "größe=1"},
		{kindBool, "true", true},
		{kindBool, " false ", false},
		{kindInt, "128", int64(128)},
		{kindInt, "-7", int64(-7)},
		{kindInt, "+7", int64(7)},
		{kindInt, "0", int64(0)},
		{kindInt, "60_000", int64(60000)},
		{kindInt, "0x10", int64(16)},
		{kindInt, "0o17", int64(15)},
		{kindInt, "9223372036854775807", int64(math.MaxInt64)},
		{kindFloat, "1e-3", 1e-3},
		{kindFloat, "25", 25.0},
		{kindFloat, ".5", .5},
		{kindFloat, "0.0009765625", 1.0 / 1024},
		{kindDuration, "2s", 2 * time.Second},
		{kindDuration, "1m30s", 90 * time.Second},
		{kindDuration, "0", time.Duration(0)},
		{kindInts, "[256,128]", []int{256, 128}},
		{kindInts, "256,128", []int{256, 128}},
		{kindInts, " [ 256 , 128 ] ", []int{256, 128}},
		{kindInts, "512", []int{512}},
		{kindInts, "[]", []int{}},
		{kindInts, "", []int{}},
	} {
		got, err := parseKind(tt.kind, tt.text)
		if err != nil || !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%v %q: %#v, %v, want %#v", tt.kind, tt.text, got, err, tt.want)
		}
	}
}

func TestParseSaysWhatIsWrong(t *testing.T) {
	for _, tt := range []struct {
		kind kind
		text string
		want string
	}{
		{kindString, "a\xff", `"a\xff" is not UTF-8`},
		{kindString, "a\nb", `"a\nb" has an unprintable character`},
		{kindString, "\x1b[31m", `"\x1b[31m" has an unprintable character`},
		{kindBool, "", "value is missing: want true or false"},
		{kindBool, "yes", `"yes" is not true or false`},
		{kindBool, "True", `"True" is not true or false`},
		{kindBool, "1", `"1" is not true or false`},
		{kindInt, " ", "value is missing: want an integer"},
		{kindInt, "12x", `"12x" is not an integer`},
		{kindInt, "1e6", `"1e6" is not an integer`},
		{kindInt, "1.0", `"1.0" is not an integer`},
		{kindInt, "010", `"010" has a leading zero: remove it, or write 0o for an octal number`},
		{kindInt, "-0_1", `"-0_1" has a leading zero: remove it, or write 0o for an octal number`},
		{kindInt, "9223372036854775808", "9223372036854775808 is too large for an integer"},
		{kindFloat, "", "value is missing: want a number"},
		{kindFloat, "fast", `"fast" is not a number`},
		{kindFloat, "nan", "nan is not a finite number"},
		{kindFloat, "-inf", "-inf is not a finite number"},
		{kindFloat, "1e999", "1e999 is too large"},
		{kindDuration, "", "value is missing: want a duration"},
		{kindDuration, "2", "2 has no unit: write 2s for seconds"},
		{kindDuration, "1.5", "1.5 has no unit: write 1.5s for seconds"},
		{kindDuration, "soon", `"soon" is not a duration: write one as 2s, 100ms or 1m30s`},
		{kindInts, "[1,2", `"[1,2" is not a list: the bracket does not close`},
		{kindInts, "1,,2", `item 2 of the list: "" is not an integer`},
		{kindInts, "1,b", `item 2 of the list: "b" is not an integer`},
		{kindNone, "1", "unsupported type of setting"},
	} {
		got, err := parseKind(tt.kind, tt.text)
		if err == nil || err.Error() != tt.want {
			t.Errorf("%v %q: %v, %v, want the error %s", tt.kind, tt.text, got, err, tt.want)
		}
	}
}

func TestParseGivesTheTypeOfTheField(t *testing.T) {
	for key, want := range map[string]any{"run.seed": int64(3), "run.epochs": 3, "optim.lr": 3.0} {
		if got, err := lookup(key).parse("3"); err != nil || got != want {
			t.Errorf("%s: %T %v, %v, want %T", key, got, got, err, want)
		}
	}
}

func TestFormatReadsBack(t *testing.T) {
	printable := rapid.StringOf(rapid.Rune().Filter(func(r rune) bool { return strings.ContainsRune(" \t", r) == (r == ' ') && isPrintable(r) }))
	rapid.Check(t, func(t *rapid.T) {
		values := map[kind]any{
			kindBool:     rapid.Bool().Draw(t, "bool"),
			kindInt:      rapid.Int64().Draw(t, "int"),
			kindFloat:    rapid.Float64().Draw(t, "float"),
			kindDuration: time.Duration(rapid.Int64().Draw(t, "duration")),
			kindInts:     append([]int{}, rapid.SliceOf(rapid.Int()).Draw(t, "ints")...),
		}
		for k := kindBool; k <= kindInts; k++ {
			got, err := parseKind(k, format(values[k]))
			if err != nil || !reflect.DeepEqual(got, values[k]) {
				t.Fatalf("%v %v is written %q and read back as %v, %v", k, values[k], format(values[k]), got, err)
			}
		}
		// Strings are quoted for YAML, which --set does not undo: they go through a file.
		want := printable.Draw(t, "string")
		l := file{newLayer(), "f"}
		l.read([]byte("run:\n  name: " + format(want) + "\n"))
		if got := l.values["run.name"]; got != want || len(l.problems) > 0 {
			t.Fatalf("%q is written %s and read back as %q, %v", want, format(want), got, l.problems)
		}
	})
}

func isPrintable(r rune) bool {
	_, err := parseString(string(r))
	return err == nil
}

func TestQuoteKeepsStringsThatLookLikeSomethingElse(t *testing.T) {
	for in, want := range map[string]string{
		"mnist-mlp": "mnist-mlp", "": `""`, "true": `"true"`, "12": `"12"`, "~": `"~"`, "a: b": `'a: b'`, "# no": `'# no'`, "yes": `"yes"`,
		"a\nb": `"a\nb"`,
	} {
		if got := quote(in); got != want {
			t.Errorf("%q is quoted as %s, want %s", in, got, want)
		}
	}
}
