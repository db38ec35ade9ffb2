package train

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/symgrad/symgrad/config"
)

// Settings that define a training must not change when it resumes. The error names the setting.
func TestAnotherTrainingIsRefused(t *testing.T) {
	dir := t.TempDir()
	how := []string{ranks(2), "checkpoint.dir=" + dir}
	run(t, program, append(how, "optim.schedule.name=cosine")...).summary(t)
	for _, test := range []struct {
		set  []string
		want []string
	}{
		{[]string{"model.hidden=16,8"}, []string{"model.hidden: [16, 12] before, [16, 8] now", "run.resume=none"}},
		{[]string{"model.name=cnn"}, []string{"model.name: mlp before, cnn now"}},
		{[]string{"optim.name=sgd"}, []string{"optim.name: adam before, sgd now"}},
		{[]string{"optim.ema_decay=0.9"}, []string{"optim.ema_decay: 0 before, 0.9 now"}},
		{[]string{"data.global_batch=23", "run.seed=2"}, []string{"data.global_batch: 24 before, 23 now", "run.seed: 1 before, 2 now"}},
		{[]string{"data.shuffle=false"}, []string{"data.shuffle: true before, false now"}},
		{[]string{steps(4)}, []string{"optim.schedule.total_steps=5"}},
		{[]string{steps(9)}, []string{"optim.schedule: the new length of the run", "optim.schedule.total_steps=5"}},
		{[]string{steps(4), "optim.schedule.total_steps=5"}, []string{"5 steps are done, and the run ends after 4: raise run.max_steps"}},
		{[]string{"run.resume=none"}, []string{"checkpoint.dir: ", "step-00000005", "use an empty folder"}},
		{[]string{"run.resume=" + filepath.Join(dir, "nothing")}, []string{"run.resume: ", "no checkpoint"}},
	} {
		set := append(append([]string{"optim.schedule.name=cosine"}, how...), test.set...)
		if strings.HasPrefix(test.set[0], "model.name=cnn") {
			set = append(set, "model.channels=3")
		}
		r := run(t, program, set...)
		if r.code != ExitUsage {
			t.Errorf("%v: code %d, %s", test.set, r.code, r.err)
		}
		for _, want := range test.want {
			if !strings.Contains(r.err, want) {
				t.Errorf("%v: %q is missing in %s", test.set, want, r.err)
			}
		}
	}
	for _, set := range [][]string{ // settings that may change
		{steps(9), "optim.schedule.total_steps=5"},
		{steps(9), "optim.lr=0.001"},
		{"data.accum_steps=2", "ddp.bucket_mb=0.01", "ddp.overlap=false"},
		{"run.machine=tape", "optim.clip_norm=1"},
		{"run.output_dir=" + t.TempDir(), "log.every=1", "checkpoint.dir=" + t.TempDir(), "checkpoint.every=2"},
	} {
		r := run(t, program, append([]string{"optim.schedule.name=cosine", ranks(3), "run.resume=" + dir}, set...)...)
		if r.code != 0 {
			t.Errorf("%v: code %d, %s", set, r.code, r.err)
		}
	}
}

// Other samples under the same settings are another training, too.
func TestOtherDataIsRefused(t *testing.T) {
	ck := "checkpoint.dir=" + t.TempDir()
	run(t, program, ck).summary(t)
	p := program
	p.Open = func(c *config.Config) (Problem, error) {
		own, err := openPatterns(c)
		return otherDigest{own}, err
	}
	if r := run(t, p, ck, steps(9)); r.code != ExitUsage || !strings.Contains(r.err, "data.path: the samples differ: patterns before, other now") {
		t.Errorf("code %d, %s", r.code, r.err)
	}
}

type otherDigest struct{ Problem }

func (otherDigest) Digest() string { return "other" }

// Broken checkpoints are skipped, with a report of each and the reason.
func TestBrokenCheckpointIsPassedOver(t *testing.T) {
	dir := t.TempDir()
	ck := []string{"checkpoint.dir=" + dir, ranks(2), "checkpoint.every=4"}
	unbroken := run(t, program, ranks(2), steps(15)).summary(t)
	run(t, program, append(ck, steps(12))...).summary(t)
	torn := filepath.Join(dir, "step-00000012", "rank-00001-of-00002.safetensors")
	if err := os.Truncate(torn, 100); err != nil {
		t.Fatal(err)
	}
	rotten := filepath.Join(dir, "step-00000008", "rank-00000-of-00002.safetensors")
	text, err := os.ReadFile(rotten)
	if err != nil {
		t.Fatal(err)
	}
	text[len(text)-3] ^= 8
	if err := os.WriteFile(rotten, text, 0o600); err != nil {
		t.Fatal(err)
	}
	r := run(t, program, append(ck, steps(15))...)
	s := r.summary(t)
	sameBits(t, "from an older one", s, unbroken)
	if s.ResumedStep != 4 || strings.Count(r.out, "skipped    ") != 2 || !strings.Contains(r.out, torn[:len(torn)-35]) {
		t.Errorf("from step %d:\n%s", s.ResumedStep, r.out)
	}
	if s := run(t, program, append(ck, steps(15))...).summary(t); s.ResumedStep != 15 {
		t.Errorf("from step %d, want 15: the broken ones have been replaced", s.ResumedStep)
	}
}

// Without a complete checkpoint the training starts from the beginning, and says so.
func TestNothingWholeIsABeginning(t *testing.T) {
	dir := t.TempDir()
	ck := []string{"checkpoint.dir=" + dir, "checkpoint.every=0"}
	first := run(t, program, ck...).summary(t)
	if err := os.Remove(filepath.Join(dir, "step-00000005", "manifest.json")); err != nil {
		t.Fatal(err)
	}
	r := run(t, program, ck...)
	sameBits(t, "anew", r.summary(t), first)
	if s := r.summary(t); s.ResumedStep != 0 || !strings.Contains(r.out, "skipped    ") {
		t.Errorf("from step %d:\n%s", s.ResumedStep, r.out)
	}
}

// Weights that are not finite are no state to go on from: the checkpoint before stays the newest.
func TestBrokenWeightsAreNotSaved(t *testing.T) {
	how := []string{"checkpoint.dir=" + t.TempDir(), ranks(2), "checkpoint.every=1", "optim.name=sgd"}
	run(t, program, append(how, steps(2))...).summary(t)
	r := run(t, program, append(how, steps(4), "optim.lr=3e38", "optim.weight_decay=3e38")...)
	if r.code != 1 || !strings.Contains(r.err, "checkpoint of step 3: parameter ") || !strings.Contains(r.err, "lower optim.lr") {
		t.Errorf("code %d, %s", r.code, r.err)
	}
	if s := run(t, program, append(how, steps(4))...).summary(t); s.ResumedStep != 2 {
		t.Errorf("from step %d, want 2", s.ResumedStep)
	}
}

// Settings that exclude each other are refused before anything starts.
func TestRulesThatExcludeEachOther(t *testing.T) {
	for _, test := range []struct {
		set  []string
		want string
	}{
		{[]string{"optim.no_decay=*.bias"}, "optim.no_decay: has no effect, because optim.weight_decay is 0"},
		{[]string{"ddp.local_steps=2", "shard.stage=1"}, "LocalSteps needs whole weights on every rank, and Stage is 1"},
		{[]string{"ddp.virtual_ranks=4", "data.accum_steps=2"}, "data.accum_steps=2: ddp.virtual_ranks=4"},
		{[]string{"ddp.virtual_ranks=4", "comm.wire_dtype=bf16"}, "VirtualRanks sums exact gradients"},
		{[]string{"ddp.virtual_ranks=3", ranks(2)}, "ddp.virtual_ranks=3: not divisible by 2 ranks"},
		{[]string{"optim.no_decay=vectors,*.gain", "optim.weight_decay=0.1"}, `optim.no_decay: "*.gain" matches no parameter: use names of `},
		{[]string{"ddp.hook=powersgd", "shard.stage=2"}, "does not work with Stage 2"},
		{[]string{"ddp.hook=powersgd", "--verify"}, "ddp.hook=powersgd does not send all of it"},
		{[]string{"ddp.local_steps=2", "--verify"}, "ddp.local_steps=2 gradients are not exchanged"},
		{[]string{"ddp.local_steps=2", "optim.ema_decay=0.9"}, "optim.ema_decay=0.9: with ddp.local_steps=2"},
		{[]string{"ddp.bucket_mb=0.0001"}, "ddp.bucket_mb: 0.0001 is out of range"},
	} {
		if r := run(t, program, test.set...); r.code != ExitUsage || !strings.Contains(r.err, test.want) {
			t.Errorf("%v: code %d, %s, want %s", test.set, r.code, r.err, test.want)
		}
	}
}

// A setting for GPUs only causes a warning on the host.
func TestSettingWithoutEffectIsTold(t *testing.T) {
	const warning = "\nwarning    shard.overlap_gather has no effect on the host\n"
	for _, set := range []string{"shard.overlap_gather=false", "shard.overlap_gather=true"} {
		r := run(t, program, ranks(2), steps(1), "shard.stage=1", set)
		if r.code != 0 || strings.Count(r.out, warning) != strings.Count(set, "true") {
			t.Errorf("%s: code %d, %s\n%s", set, r.code, r.err, r.out)
		}
	}
}

// The test is made with the averages of the weights, and the run goes on with the weights.
func TestAveragesAreTested(t *testing.T) {
	how := []string{ranks(2), steps(60), "optim.lr=0.02"}
	plain := run(t, program, how...).summary(t)
	averaged := run(t, program, append(how, "optim.ema_decay=0.9")...).summary(t)
	frozen := run(t, program, append(how, "optim.ema_decay=0.9999")...).summary(t) // of next to the initial weights
	sameBits(t, "with averages", averaged, plain)
	sameBits(t, "with slow averages", frozen, plain)
	if averaged.TestCorrect < 9*testSamples/10 || frozen.TestCorrect > testSamples/2 {
		t.Errorf("%d right with averages, %d with those of the beginning, %d with weights, of %d",
			averaged.TestCorrect, frozen.TestCorrect, plain.TestCorrect, testSamples)
	}
	for _, stage := range []string{"shard.stage=1", "shard.stage=3"} {
		if s := run(t, program, append(how, "optim.ema_decay=0.9", stage)...).summary(t); s.TestCorrect != averaged.TestCorrect || s.ParamsSHA256 != plain.ParamsSHA256 {
			t.Errorf("%s: %d right, want %d", stage, s.TestCorrect, averaged.TestCorrect)
		}
	}
}

// A scale that is a power of two changes no bit except by overflow, and the reported loss is
// unscaled.
func TestScaleOfTheLossIsTakenOut(t *testing.T) {
	for _, machine := range []string{"run.machine=compiled", "run.machine=tape"} {
		how := []string{machine, ranks(2), steps(12), "--verify"}
		plain := run(t, program, how...).summary(t)
		for _, scale := range []string{"optim.loss_scale=1024", "optim.loss_scale=dynamic"} {
			r := run(t, program, append(how, scale)...)
			sameBits(t, machine+" "+scale, r.summary(t), plain)
			if !strings.Contains(r.out, "loss_scale=") {
				t.Errorf("%s is not told:\n%s", scale, r.out)
			}
		}
	}
	// So large a scale, times 24 samples, overflows: steps are left out, and nothing changes.
	how := []string{ranks(2), "ddp.average=sum", "optim.loss_scale=3e38"}
	s := run(t, program, append(how, steps(10), "optim.skip_nonfinite=true")...).summary(t)
	if s.SkippedSteps != 10 {
		t.Errorf("%d steps left out, want all of 10", s.SkippedSteps)
	}
	if r := run(t, program, append(how, "optim.clip_norm=1")...); r.code != 1 || !strings.Contains(r.err, "not finite") {
		t.Errorf("without optim.skip_nonfinite: code %d, %s", r.code, r.err)
	}
}

// Half as wide on the way is half the bytes.
func TestBytesOnTheWireAreCounted(t *testing.T) {
	f32 := run(t, program, ranks(2)).summary(t)
	for _, narrow := range []string{"comm.wire_dtype=bf16", "comm.wire_dtype=f16"} {
		s := run(t, program, ranks(2), narrow, "--verify").summary(t)
		if f32.WireBytes-s.WireBytes != int64(2*f32.Parameters) {
			t.Errorf("%s: %d B a step, f32 %d for %d parameters", narrow, s.WireBytes, f32.WireBytes, f32.Parameters)
		}
		if s.ParamsSHA256 == f32.ParamsSHA256 {
			t.Errorf("%s: the parameters are those of f32", narrow)
		}
	}
}

// With --plan the run prints prediction and measurement, and they are equal.
func TestPlanIsHeldAgainstTheRun(t *testing.T) {
	for _, set := range [][]string{
		{"shard.stage=0", "optim.clip_norm=1"},
		{"shard.stage=1", "--verify"},
		{"shard.stage=2", "data.accum_steps=2"},
		{"shard.stage=3", "log.every=2"},
		{"ddp.virtual_ranks=4"},
		{"comm.wire_dtype=bf16"},
	} {
		r := run(t, program, append(set, ranks(2), "--plan")...)
		m := r.summary(t).Memory
		for _, name := range []string{"memory in all", "collectives of a step", "bytes of a step", "sent in a step"} {
			row := regexp.MustCompile(name + `\s+\S+(?: \S*B)?\s+\S+(?: \S*B)?\s+([+-]\d+\.\d)%`).FindStringSubmatch(r.out)
			if row == nil || row[1] != "+0.0" && row[1] != "-0.0" && (name != "memory in all" || len(row[1]) != 4) {
				t.Errorf("%v: %s: %q in\n%s", set, name, row, r.out)
			}
		}
		if m.Params == 0 || m.Gradients == 0 || m.State == 0 || m.Activations == 0 {
			t.Errorf("%v: %+v", set, m)
		}
	}
	if r := run(t, program, "--plan", "run.machine=tape"); r.code != ExitUsage || !strings.Contains(r.err, "--plan: the tape machine's memory is unknown") {
		t.Errorf("with the tape machine: code %d, %s", r.code, r.err)
	}
}

// Pieces are the same number on all ranks, cover each rank's part, and are those of as many ranks
// with virtual ones.
func TestCutsCoverTheBatch(t *testing.T) {
	for _, size := range []int{1, 2, 3, 4, 6, 12} {
		for global := range 40 {
			for _, rows := range []int{1, 2, 5, 40} {
				runs := -1
				for rank := range size {
					c := cuts{first: share(global, rank, size), rows: rows, have: share(global, rank+1, size) - share(global, rank, size)}
					c.n = max(1, ceilDiv(ceilDiv(global, size), rows))
					if runs >= 0 && c.n != runs {
						t.Fatalf("%d samples on %d ranks in rows of %d: %d and %d pieces", global, size, rows, c.n, runs)
					}
					if runs = c.n; c.at(0) != 0 || c.at(c.n) != c.have {
						t.Fatalf("%d samples on %d ranks in rows of %d: rank %d has %d to %d of %d", global, size, rows, rank, c.at(0), c.at(c.n), c.have)
					}
				}
			}
			for rank := range size {
				c := cuts{n: 12 / size, first: share(global, rank, size), global: global, virtual: 12, before: rank * (12 / size)}
				for i := range c.n + 1 {
					if got, want := c.first+c.at(i), share(global, c.before+i, 12); got != want {
						t.Fatalf("%d samples, rank %d of %d: piece %d begins at %d, want %d", global, rank, size, i, got, want)
					}
				}
				if c.at(c.n) != share(global, rank+1, size)-c.first {
					t.Fatalf("%d samples, rank %d of %d: the pieces end at %d", global, rank, size, c.at(c.n))
				}
			}
		}
	}
}
