package config

import (
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

// otherText is text that is no value of a kind, in any of the three places.
var otherText = map[kind]string{kindBool: "maybe", kindInt: "1.5", kindFloat: "fast", kindDuration: "10", kindInts: "[1, two]"}

// Every setting that is not text refuses other text, wherever it stands, in one problem that names
// place and setting.
func TestEverySettingRefusesOtherTypesEverywhere(t *testing.T) {
	for _, f := range schema() {
		text, typed := otherText[f.kind]
		if !typed {
			continue
		}
		for _, tt := range []struct {
			src  Source
			want string
		}{
			{Source{File: inFile(t, [2]string{f.key, text})}, ""},
			{Source{Env: []string{f.env() + "=" + text}}, "$" + f.env() + ": " + f.key + ": "},
			{Source{Set: []string{f.key + "=" + text}}, "--set: " + f.key + ": "},
		} {
			_, _, err := Load(tt.src)
			got := texts(t, err, "")
			if tt.src.File != "" {
				tt.want = tt.src.File + ":"
			}
			if len(got) != 1 || !strings.HasPrefix(got[0], tt.want) || !strings.Contains(got[0], ": "+f.key+": ") {
				t.Errorf("%s = %s: problems %q, want one that starts with %q", f.key, text, got, tt.want)
			}
		}
	}
}

// Every setting with a range rejects values outside it, from every source.
func TestEverySettingRefusesWhatIsNotAllowed(t *testing.T) {
	outside := map[kind]string{kindString: "nonesuch", kindInt: "-1", kindFloat: "-1", kindDuration: "-1s", kindInts: "[-1]"}
	checked := 0
	for _, f := range schema() {
		if f.in == "" {
			continue
		}
		var set []string
		if f.only.other != "" {
			set = append(set, f.only.other+"="+append(f.only.values, "t.json")[0])
		}
		_, _, err := Load(Source{Set: append(set, f.key+"="+outside[f.kind])})
		got := texts(t, err, "")
		if len(got) != 1 || !strings.HasPrefix(got[0], "--set: "+f.key+": ") || !strings.Contains(got[0], describe(f.in)) {
			t.Errorf("%s = %s: problems %q, want one that says %s", f.key, outside[f.kind], got, describe(f.in))
		}
		checked++
	}
	if checked < 20 {
		t.Errorf("only %d settings have a range: the test looks at too little", checked)
	}
}

// A slip in the name of a variable is met with a variable that exists.
func TestNearestVariableSurvivesOneEdit(t *testing.T) {
	reserved := []string{"SYMGRAD_RANK"}
	rapid.Check(t, func(t *rapid.T) {
		f := rapid.SampledFrom(schema()).Draw(t, "meant")
		written := strings.ToUpper(strings.ReplaceAll(slip(t, f.key), ".", "_"))
		if lookupVar(EnvPrefix+written) != nil {
			return // the slip gave the name of another setting, or none at all
		}
		near := nearestVar(EnvPrefix+written, reserved)
		if lookupVar(near) == nil {
			t.Fatalf("%s%s, meant as %s: %q", EnvPrefix, written, f.env(), near)
		}
	})
	if got := nearestVar("SYMGRAD_RNAK", reserved); got != "SYMGRAD_RANK" {
		t.Errorf("SYMGRAD_RNAK: %q, want the reserved variable", got)
	}
	if got := nearestVar("SYMGRAD_QWERTZUIOP", reserved); got != "" {
		t.Errorf("SYMGRAD_QWERTZUIOP is near %s", got)
	}
}

func lookupVar(name string) *field {
	for _, f := range schema() {
		if f.env() == name {
			return f
		}
	}
	return nil
}

// Loads share the schema and nothing else.
func TestLoadsDoNotDisturbEachOther(t *testing.T) {
	want := Default()
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 20 {
				cfg, _, err := Load(Source{Set: []string{"model.hidden=1,2"}})
				if err != nil || cfg.Model.Hidden[0] != 1 {
					t.Errorf("load %d: %v, %v", i, cfg, err)
					return
				}
				cfg.Model.Hidden[0] = 99 // a list belongs to the config it is in
			}
		})
	}
	wg.Wait()
	if got := mustLoad(t, Source{}); got.Hash() != want.Hash() {
		t.Errorf("the defaults changed:\n%v", got)
	}
	a := mustLoad(t, Source{})
	a.Model.Hidden[0] = 99
	if b := mustLoad(t, Source{}); b.Model.Hidden[0] != 512 {
		t.Errorf("a change of one config is in the next: hidden %v", b.Model.Hidden)
	}
}
