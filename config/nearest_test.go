package config

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestNearestFindsWhatWasMeant(t *testing.T) {
	for _, tt := range []struct{ name, want string }{
		{"run.max_step", "run.max_steps"},
		{"run.maxsteps", "run.max_steps"},
		{"run.max-steps", "run.max_steps"},
		{"RUN.MAX_STEPS", "run.max_steps"},
		{"run.steps", "run.max_steps"},
		{"run.stepz", "run.max_steps"},
		{"run.sede", "run.seed"},
		{"rn.seed", "run.seed"},
		{"lr", "optim.lr"},
		{"train.lr", "optim.lr"},
		{"optim.learning_rate", "optim.lr"},
		{"learning-rate", "optim.lr"},
		{"optim.warmup_steps", "optim.schedule.warmup_steps"},
		{"data.batch", "data.global_batch"},
		{"batch", "data.global_batch"},
		{"launch.nproc", "launch.nproc_per_node"},
		{"ddp.bucket", "ddp.bucket_mb"},
		{"ddp.bucket_cap_mb", "ddp.bucket_mb"},
		{"comm.timeout_stop", "comm.timeout_step"},
		{"foo", ""},
		{"checkpoint.every_n_epochs", ""},
		{"", ""},
		{"...", ""},
		{strings.Repeat("x", 10000), ""},
	} {
		if got := nearest(tt.name, keyNames()); got != tt.want {
			t.Errorf("%.40q: %q, want %q", tt.name, got, tt.want)
		}
	}
	for name, want := range map[string]string{"optimizer": "optim", "optm": "optim", "optim.shedule": "optim.schedule", "schedule": "optim.schedule", "logs": "log"} {
		if got := nearest(name, sections()); got != want {
			t.Errorf("section %q: %q, want %q", name, got, want)
		}
	}
}

// One edit is always detected, and the suggestion is at most as distant as the intended name.
func TestNearestSurvivesOneEdit(t *testing.T) {
	keys := keyNames()
	rapid.Check(t, func(t *rapid.T) {
		meant := rapid.SampledFrom(keys).Draw(t, "meant")
		written := slip(t, meant)
		got := nearest(written, keys)
		if got == "" || dissimilarity(normal(written), got) > max(1, dissimilarity(normal(written), meant)) {
			t.Fatalf("%q, meant as %s: %q", written, meant, got)
		}
	})
}

// slip inserts, drops, replaces or swaps letters at one place of the last name of a key.
func slip(t *rapid.T, key string) string {
	start := len(key) - len(last(key))
	i := rapid.IntRange(start, len(key)-1).Draw(t, "at")
	letter := string(rapid.RuneFrom([]rune("abcxyz_")).Draw(t, "letter"))
	switch rapid.IntRange(0, 3).Draw(t, "edit") {
	case 0:
		return key[:i] + letter + key[i:]
	case 1:
		return key[:i] + key[i+1:]
	case 2:
		return key[:i] + letter + key[i+1:]
	}
	b := []byte(key)
	if i+1 < len(b) {
		b[i], b[i+1] = b[i+1], b[i]
	}
	return string(b)
}

func TestEditsCounts(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"a", "", 1}, {"", "abc", 3}, {"lr", "lr", 0}, {"lr", "rl", 1}, {"kitten", "sitting", 3}, {"ca", "abc", 3}, {"seed", "sede", 1},
	} {
		if got := edits(tt.a, tt.b); got != tt.want {
			t.Errorf("%q to %q: %d edits, want %d", tt.a, tt.b, got, tt.want)
		}
		if got := edits(tt.b, tt.a); got != tt.want {
			t.Errorf("%q to %q: %d edits, want %d", tt.b, tt.a, got, tt.want)
		}
	}
}

// The definition, word for word, is the oracle.
func TestEditsMatchesItsDefinition(t *testing.T) {
	short := rapid.StringOfN(rapid.RuneFrom([]rune("ab_")), 0, 6, -1)
	rapid.Check(t, func(t *rapid.T) {
		a, b := short.Draw(t, "a"), short.Draw(t, "b")
		if got, want := edits(a, b), editsByDefinition(a, b); got != want {
			t.Fatalf("%q to %q: %d edits, want %d", a, b, got, want)
		}
	})
}

func editsByDefinition(a, b string) int {
	if a == "" || b == "" {
		return len(a) + len(b)
	}
	restA, restB := a[:len(a)-1], b[:len(b)-1]
	d := editsByDefinition(restA, restB)
	if a[len(a)-1] != b[len(b)-1] {
		d++
	}
	d = min(d, editsByDefinition(restA, b)+1, editsByDefinition(a, restB)+1)
	if len(a) > 1 && len(b) > 1 && a[len(a)-1] == b[len(b)-2] && a[len(a)-2] == b[len(b)-1] {
		d = min(d, editsByDefinition(a[:len(a)-2], b[:len(b)-2])+1)
	}
	return d
}

func FuzzNearest(f *testing.F) {
	for _, s := range []string{"run.seed", "lr", "", ".", "a.b.c.d", "ÄÖÜ", "data.batch\x00"} {
		f.Add(s)
	}
	keys := keyNames()
	f.Fuzz(func(t *testing.T, name string) {
		got := nearest(name, keys)
		if got != "" && !slices.Contains(keys, got) {
			t.Errorf("%q: %q is not one of the candidates", name, got)
		}
		if slices.Contains(keys, name) && got != name {
			t.Errorf("%q: %q is nearer than itself", name, got)
		}
	})
}
