package config

import (
	"slices"
	"strings"
	"testing"
)

func TestChangesNameWhatIsComputedOtherwise(t *testing.T) {
	for _, tt := range []struct {
		name string
		set  []string
		want []string
	}{
		{"nothing", nil, nil},
		{"places and logs", []string{"run.output_dir=b", "checkpoint.dir=ck", "checkpoint.every=7", "run.resume=none", "log.every=3"}, nil},
		{"ranks and stage", []string{"launch.nproc_per_node=4", "shard.stage=3"}, []string{
			"launch.nproc_per_node: 0 before, 4 now", "shard.stage: 0 before, 3 now",
		}},
		{"another training", []string{"run.seed=2", "model.hidden=8", "data.global_batch=64"}, []string{
			"fixed run.seed: 1 before, 2 now", "fixed model.hidden: [512, 512] before, [8] now", "fixed data.global_batch: 128 before, 64 now",
		}},
		{"another rule", []string{"optim.name=sgd"}, []string{
			"fixed optim.name: adam before, sgd now", "optim.beta1: 0.9 before, none now", "optim.beta2: 0.999 before, none now",
			"optim.eps: 1e-08 before, none now",
		}},
	} {
		before := Default()
		changes, err := mustLoad(t, Source{Set: tt.set}).Changes(before.Canonical())
		var got []string
		for _, c := range changes {
			got = append(got, choose(c.Fixed, "fixed ", "")+c.String())
		}
		if err != nil || !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q, %v, want %q", tt.name, got, err, tt.want)
		}
	}
}

func TestChangesRefuseForeignText(t *testing.T) {
	c := Default()
	for _, tt := range []struct{ text, want string }{
		{"", `"" is the settings of another version, want "symgrad config `},
		{"symgrad config 1\nrun.seed: 1\n", `"symgrad config 1" is the settings of another version`},
		{canonicalHeader + "run.seed\n", `"run.seed\n" is no setting`},
		{c.Canonical() + "run.speed: 3\n", "run.speed: 3: unknown setting in this version"},
	} {
		if _, err := c.Changes(tt.text); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%.30q: %v, want %s", tt.text, err, tt.want)
		}
	}
}

// Settings that may change decide how and where a run computes, never which training it is.
func TestFixedSettingsAreHashed(t *testing.T) {
	n := 0
	for _, f := range schema() {
		if f.fixed {
			n++
			if !f.hashed {
				t.Errorf("%s is fixed and not hashed: a change of it would not be seen", f.key)
			}
		}
	}
	if n < 15 {
		t.Errorf("%d settings are fixed", n)
	}
}

func TestScaleOfTheLoss(t *testing.T) {
	for text, want := range map[string]float64{"0": 0, "1024": 1024, "0.5": 0.5, "dynamic": -1} {
		scale, dynamic, err := Optim{LossScale: text}.Scale()
		if err != nil || dynamic != (want < 0) || !dynamic && scale != want {
			t.Errorf("%s: %v, %t, %v", text, scale, dynamic, err)
		}
	}
}
