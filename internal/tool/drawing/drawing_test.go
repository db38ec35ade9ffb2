package drawing

import (
	"strings"
	"testing"
)

func TestFormatIsTheEndingOfTheName(t *testing.T) {
	for name, want := range map[string]Format{"a.svg": SVG, "b/a.PNG": PNG, "a.b.png": PNG} {
		if got, err := FormatOf(name, SVG, PNG); got != want || err != nil {
			t.Errorf("%s: %q, %v, want %q", name, got, err, want)
		}
	}
	for _, name := range []string{"a", "a.pdf", "svg", "a.svg.gz", "", "a.html"} {
		if f, err := FormatOf(name, SVG, PNG); err == nil || !strings.Contains(err.Error(), "want .svg or .png") {
			t.Errorf("%s: %q, %v", name, f, err)
		}
	}
	if _, err := FormatOf("a.pdf", HTML, SVG, PNG); err == nil || !strings.HasSuffix(err.Error(), `unknown ending ".pdf": want .html, .svg or .png`) {
		t.Error(err)
	}
}

func TestTicksAreNamedWhereTheyAreFew(t *testing.T) {
	named := func(low, high float64) string {
		var names []string
		for _, tick := range DecadeTicks(low, high) {
			if tick.Label != "" {
				names = append(names, tick.Label)
			}
		}
		return strings.Join(names, " ")
	}
	for want, of := range map[string][2]float64{"0.01 0.1 1": {0.005, 3}, "0.2 0.3 0.4": {0.15, 0.45}, "2 3": {1.5, 3}, "0.2 0.3 0.5 1 2": {0.15, 2.5}} {
		if got := named(of[0], of[1]); got != want {
			t.Errorf("from %v to %v: %s, want %s", of[0], of[1], got, want)
		}
	}
}
