package train

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/symgrad/symgrad/checkpoint"
	"github.com/symgrad/symgrad/config"
	"github.com/symgrad/symgrad/tensor"
	"github.com/symgrad/symgrad/train/internal/measure"
	"github.com/symgrad/symgrad/train/internal/save"
)

// told has the output of a program and its exit code.
type told struct {
	code     int
	out, err string
	dir      string
}

func run(t *testing.T, p Program, more ...string) told {
	t.Helper()
	dir := t.TempDir()
	var out, errs bytes.Buffer
	code := p.Execute(smallRun(dir, more...), &out, &errs)
	return told{code, out.String(), errs.String(), dir}
}

// summary returns the summary of a run, which must have succeeded.
func (r told) summary(t *testing.T) Summary {
	t.Helper()
	if r.code != 0 {
		t.Fatalf("code %d: %s", r.code, r.err)
	}
	text, err := os.ReadFile(filepath.Join(r.dir, config.SummaryName))
	if err != nil {
		t.Fatal(err)
	}
	var s Summary
	if err := json.Unmarshal(text, &s); err != nil {
		t.Fatal(err)
	}
	return s
}

func ranks(n int) string { return fmt.Sprint("launch.nproc_per_node=", n) }
func steps(n int) string { return fmt.Sprint("run.max_steps=", n) }

// sameBits compares curves and final parameters.
func sameBits(t *testing.T, what string, got, want Summary) {
	t.Helper()
	if got.ParamsSHA256 != want.ParamsSHA256 || !slices.Equal(got.Losses, want.Losses) || len(want.Losses) == 0 {
		t.Errorf("%s: parameters %.8s and %d losses to %v, want %.8s and %d to %v", what, got.ParamsSHA256,
			len(got.Losses), got.FinalLoss, want.ParamsSHA256, len(want.Losses), want.FinalLoss)
	}
}

// apart is the largest relative difference between two curves.
func apart(t *testing.T, a, b measure.Curve) float64 {
	t.Helper()
	if len(a) != len(b) || len(a) == 0 {
		t.Fatalf("%d and %d losses", len(a), len(b))
	}
	worst := 0.0
	for i := range a {
		worst = max(worst, math.Abs(a[i]-b[i])/math.Abs(b[i]))
	}
	return worst
}

// 200 steps on 2 ranks, the second hundred after a stop: on 2 ranks again, on 4 and on 1.
func TestResumedRunHasTheCurveOfAnUnbrokenOne(t *testing.T) {
	ck := t.TempDir()
	how := []string{"optim.name=adamw", "optim.weight_decay=0.01", "optim.clip_norm=1", "optim.schedule.name=cosine", "optim.schedule.total_steps=200"}
	unbroken := run(t, program, append(how, ranks(2), steps(200))...).summary(t)
	run(t, program, append(how, ranks(2), steps(100), "checkpoint.dir="+ck, "checkpoint.every=30")...).summary(t)
	for _, n := range []int{2, 4, 1} {
		r := run(t, program, append(how, ranks(n), steps(200), "run.resume="+ck)...)
		s := r.summary(t)
		if n == 2 {
			sameBits(t, "on 2 ranks again", s, unbroken)
		}
		if d := apart(t, s.Losses, unbroken.Losses); d > 1e-4 {
			t.Errorf("on %d ranks: losses differ by %.1e", n, d)
		}
		if s.ResumedStep != 100 || s.ResumedFrom != filepath.Join(ck, "step-00000100") || s.Steps != 200 || s.Epochs != unbroken.Epochs {
			t.Errorf("on %d ranks: from %s, step %d of %d, %v epochs", n, s.ResumedFrom, s.ResumedStep, s.Steps, s.Epochs)
		}
		for _, want := range []string{
			"resumed    " + s.ResumedFrom + ": 100 steps made by 2 ranks, shard.stage 0\n",
			"changed    run.max_steps: 100 before, 200 now\n", "trained    100 steps",
		} {
			if !strings.Contains(r.out, want) {
				t.Errorf("on %d ranks: %q is missing in\n%s", n, want, r.out)
			}
		}
	}
}

// recorder is a problem that knows which samples it was asked for.
type recorder struct {
	*patterns
	mu   *sync.Mutex
	seen map[int]int // by sample
}

func (r recorder) Fill(m *Model, indices []int) error {
	r.mu.Lock()
	for _, i := range indices {
		r.seen[i]++
	}
	r.mu.Unlock()
	return r.patterns.Fill(m, indices)
}

// Three epochs of 230 samples in batches of 24, with stops in the middle of each and other numbers
// of ranks: each sample comes three times, and in each epoch once.
func TestNoSampleIsSeenTwiceOrMissed(t *testing.T) {
	seen := map[int]int{}
	p := program
	p.Open = func(c *config.Config) (Problem, error) {
		own, err := openPatterns(c)
		return recorder{own.(*patterns), &sync.Mutex{}, seen}, err
	}
	ck := "checkpoint.dir=" + t.TempDir()
	last := 0
	for _, part := range []struct{ ranks, steps, accum int }{{2, 4, 1}, {3, 13, 2}, {4, 20, 1}, {1, 27, 1}, {2, 30, 3}} {
		s := run(t, p, ck, ranks(part.ranks), steps(part.steps), fmt.Sprint("data.accum_steps=", part.accum)).summary(t)
		if s.ResumedStep != last || len(s.Losses) != part.steps {
			t.Fatalf("the run to step %d goes on from %d with %d losses, want from %d", part.steps, s.ResumedStep, len(s.Losses), last)
		}
		last = part.steps
		most, least := 0, 3
		for i := range trainSamples {
			most, least = max(most, seen[i]), min(least, seen[i])
		}
		epoch := (last + 9) / 10 // of 10 steps each
		if most > epoch || least < epoch-1 || last%10 == 0 && least != epoch {
			t.Errorf("after step %d samples have been seen %d to %d times, in epoch %d", last, least, most, epoch)
		}
	}
}

// The sharded tensors may change at each resumption.
func TestStageChangesOnResume(t *testing.T) {
	for _, how := range [][]string{
		{"optim.name=adamw", "optim.weight_decay=0.01", "optim.no_decay=vectors", "optim.clip_norm=1", "optim.ema_decay=0.9"},
		{"optim.name=lamb", "optim.weight_decay=0.01", "checkpoint.sharded=false", "checkpoint.async=false"},
	} {
		ck := "checkpoint.dir=" + t.TempDir()
		without := slices.DeleteFunc(slices.Clone(how), func(s string) bool { return strings.HasPrefix(s, "checkpoint.") })
		unbroken := run(t, program, append(without, ranks(3), steps(20))...).summary(t)
		var s Summary
		for i, stage := range []int{0, 1, 2, 3, 0} {
			s = run(t, program, append(how, ck, ranks(3), steps(4*i+4), fmt.Sprint("shard.stage=", stage))...).summary(t)
		}
		sameBits(t, how[0], s, unbroken)
		if s.TestCorrect != unbroken.TestCorrect {
			t.Errorf("%s: %d right, want %d", how[0], s.TestCorrect, unbroken.TestCorrect)
		}
	}
}

// Sharded or not, by either machine, ranks compute the same bits.
func TestStagesComputeTheSameBits(t *testing.T) {
	for _, machine := range []string{"run.machine=compiled", "run.machine=tape"} {
		for _, n := range []int{2, 3} {
			how := []string{machine, ranks(n), steps(8), "optim.clip_norm=0.5", "ddp.bucket_mb=0.002", "--verify"}
			want := run(t, program, append(how, "shard.stage=0")...).summary(t)
			for stage := 1; stage <= 3; stage++ {
				r := run(t, program, append(how, fmt.Sprint("shard.stage=", stage))...)
				s := r.summary(t)
				sameBits(t, fmt.Sprint(how[:2], " stage ", stage), s, want)
				if s.VerifyMaxRelDiff == nil || s.TestCorrect != want.TestCorrect || !strings.Contains(r.out, "sharding   the state of") && stage == 1 {
					t.Errorf("%v stage %d: verified %v, %d right, want %d", how, stage, s.VerifyMaxRelDiff, s.TestCorrect, want.TestCorrect)
				}
			}
		}
	}
}

// Whatever is kept from step to step is in a checkpoint: a run on as many ranks goes on with the
// same bits.
func TestEverythingThatIsKeptIsRestored(t *testing.T) {
	for _, how := range [][]string{
		{"comm.wire_dtype=bf16", "comm.error_feedback=true"},
		{"comm.wire_dtype=bf16", "comm.error_feedback=true", "shard.stage=1", "checkpoint.sharded=false"},
		{"comm.wire_dtype=f16", "optim.loss_scale=1024", "shard.stage=2"},
		{"optim.loss_scale=dynamic", "optim.name=momentum", "optim.lr=0.01"},
		{"ddp.hook=powersgd", "ddp.powersgd_rank=2"},
		{"ddp.local_steps=4", "checkpoint.sharded=false", "checkpoint.every=6"},
		{"ddp.virtual_ranks=6", "optim.name=lion", "optim.beta2=0.99"},
		{"ddp.average=predivide", "optim.name=nesterov", "optim.ema_decay=0.9"},
		{"ddp.average=sum", "optim.name=sgd", "optim.lr=0.001", "run.machine=tape"},
		{"model.name=cnn", "model.channels=3,4", "optim.schedule.name=step", "optim.schedule.step_size=5"},
	} {
		how = append([]string{ranks(3)}, how...)
		without := slices.DeleteFunc(slices.Clone(how), func(s string) bool { return strings.HasPrefix(s, "checkpoint.") })
		dir, whole := t.TempDir(), without
		if how[1] == "ddp.local_steps=4" { // a checkpoint is a moment at which weights are averaged
			whole = append(slices.Clone(how), "checkpoint.dir="+t.TempDir())
		}
		unbroken := run(t, program, append(whole, steps(18))...).summary(t)
		run(t, program, append([]string{"checkpoint.every=0"}, append(how, steps(12), "checkpoint.dir="+dir)...)...).summary(t)
		for _, n := range []int{3, 2} { // other numbers of ranks resume as well; the state of all ranks is combined
			s := run(t, program, append(without, steps(18), ranks(n), "run.resume="+dir)...).summary(t)
			if n == 3 {
				sameBits(t, fmt.Sprint(how), s, unbroken)
			}
			if d := apart(t, s.Losses, unbroken.Losses); s.ResumedStep != 12 || d > 0.1 {
				t.Errorf("%v on %d ranks: from step %d; losses differ by %.1e", how, n, s.ResumedStep, d)
			}
		}
	}
}

// With as many virtual ranks, any number of real ones computes the same bits, with and without a
// stop in between. Reported losses are summed by rank, so their last digits may differ.
func TestVirtualRanksComputeTheSameBits(t *testing.T) {
	how := []string{"ddp.virtual_ranks=4", "optim.clip_norm=1", "data.global_batch=22", steps(12)}
	want := run(t, program, append(how, ranks(1))...).summary(t)
	ck := "checkpoint.dir=" + t.TempDir()
	run(t, program, append(how, ck, ranks(4), steps(5))...).summary(t)
	for _, more := range [][]string{{ranks(2), "--verify"}, {ranks(4), "--verify"}, {ranks(2), ck}} {
		s := run(t, program, append(how, more...)...).summary(t)
		if d := apart(t, s.Losses, want.Losses); s.ParamsSHA256 != want.ParamsSHA256 || d > 1e-12 {
			t.Errorf("%v: parameters %.8s, want %.8s; losses differ by %.1e", more, s.ParamsSHA256, want.ParamsSHA256, d)
		}
	}
}

func TestFinishedRunIsNotMadeAgain(t *testing.T) {
	ck := "checkpoint.dir=" + t.TempDir()
	first := run(t, program, ck, ranks(2)).summary(t)
	again := run(t, program, ck, ranks(2), "--below=100").summary(t)
	sameBits(t, "again", again, first)
	if again.ResumedStep != 5 || len(again.Checkpoints) != 0 || len(first.Checkpoints) != 1 || again.TestCorrect != first.TestCorrect {
		t.Errorf("from step %d, checkpoints %v and %v, %d right, want %d", again.ResumedStep, first.Checkpoints, again.Checkpoints, again.TestCorrect, first.TestCorrect)
	}
}

// Losses that a run before did not keep are not made up.
func TestLossesBeginWhereTheyAreKnown(t *testing.T) {
	ck := "checkpoint.dir=" + t.TempDir()
	run(t, program, ck, "log.losses=false").summary(t)
	s := run(t, program, ck, steps(9)).summary(t)
	if whole := run(t, program, steps(9)).summary(t); s.LossesFrom != 4 || !slices.Equal(s.Losses, whole.Losses[4:]) {
		t.Errorf("%v from step %d, want %v", s.Losses, s.LossesFrom, whole.Losses[4:])
	}
}

// Steps that were left out before a run was stopped are left out still when it has gone on.
func TestSkippedStepsAreCountedOnResume(t *testing.T) {
	how := []string{"checkpoint.dir=" + t.TempDir(), "ddp.average=sum", "optim.loss_scale=3e38", "optim.skip_nonfinite=true", ranks(2)}
	for _, n := range []int{5, 8, 8} {
		if s := run(t, program, append(how, steps(n))...).summary(t); s.SkippedSteps != n {
			t.Errorf("%d steps left out after %d", s.SkippedSteps, n)
		}
	}
}

// Residuals of gradients are in units of the scaled loss: with another scale, a power of two, the
// bits are equal.
func TestResidualsFollowTheScaleOfTheLossOnResume(t *testing.T) {
	for _, hook := range [][]string{{"comm.wire_dtype=bf16", "comm.error_feedback=true"}, {"ddp.hook=powersgd", "ddp.powersgd_rank=1"}} {
		how := append([]string{ranks(2)}, hook...)
		unbroken := run(t, program, append(how, "optim.loss_scale=1024", steps(12))...).summary(t)
		ck := t.TempDir()
		run(t, program, append(how, "optim.loss_scale=1024", steps(6), "checkpoint.dir="+ck)...).summary(t)
		for _, scale := range []string{"1024", "0", "4096", "dynamic"} {
			s := run(t, program, append(how, "optim.loss_scale="+scale, steps(12), "run.resume="+ck)...).summary(t)
			sameBits(t, fmt.Sprint(hook, " scale ", scale), s, unbroken)
		}
	}
}

// Ranks that step by themselves leave out steps by themselves, too, and go on from their own.
func TestRanksGoOnFromTheirOwnSteps(t *testing.T) {
	apart := 0
	for _, lr := range []string{"0.8", "1.1", "1.2", "1.5", "1.7"} { // so large that some gradients are, with the loss times 3e38, infinite
		how := []string{ranks(2), "ddp.local_steps=3", "optim.lr=" + lr, "optim.skip_nonfinite=true", "optim.loss_scale=3e38"}
		ck := t.TempDir()
		unbroken := run(t, program, append(how, steps(12), "checkpoint.every=6", "checkpoint.dir="+t.TempDir())...).summary(t)
		run(t, program, append(how, steps(6), "checkpoint.dir="+ck)...).summary(t)
		sameBits(t, "lr "+lr, run(t, program, append(how, steps(12), "run.resume="+ck)...).summary(t), unbroken)
		c, err := checkpoint.Open(ck)
		if err != nil {
			t.Fatal(err)
		}
		var m save.Memory
		if err := json.Unmarshal(c.Manifest().Extra[save.MemoryKey], &m); err != nil || c.Close() != nil || len(m.Own) != 2 {
			t.Fatalf("%v, %+v", err, m.Own)
		}
		if m.Own[0].Steps != m.Own[1].Steps {
			apart++
		}
	}
	if apart == 0 {
		t.Error("the ranks have made as many steps each time, which tests nothing")
	}
}

// The divisor of predivide depends on the number of ranks. With 4 and with 2 it is a power of two,
// so the bits are those of a plain mean, with and without a resumption between.
func TestResidualsFollowTheDivisorOnResume(t *testing.T) {
	how := []string{"comm.wire_dtype=bf16", "comm.error_feedback=true"}
	for _, part := range []struct{ first, last string }{{"predivide", "predivide"}, {"mean", "predivide"}, {"predivide", "mean"}} {
		for _, n := range []int{4, 2} {
			var got [2]Summary
			for i, average := range [][2]string{{"mean", "mean"}, {part.first, part.last}} {
				ck := t.TempDir()
				run(t, program, append(how, ranks(4), steps(6), "ddp.average="+average[0], "checkpoint.dir="+ck)...).summary(t)
				got[i] = run(t, program, append(how, ranks(n), steps(12), "ddp.average="+average[1], "run.resume="+ck)...).summary(t)
			}
			sameBits(t, fmt.Sprintf("%v on %d ranks", part, n), got[1], got[0])
		}
	}
}

// A hook may have another rank: its matrices start anew, and residuals of gradients are still sent.
func TestRankOfPowerSGDChangesOnResume(t *testing.T) {
	how := []string{"ddp.hook=powersgd", ranks(2)}
	for _, powers := range [][2]int{{1, 2}, {2, 1}} {
		ck := t.TempDir()
		run(t, program, append(how, fmt.Sprint("ddp.powersgd_rank=", powers[0]), steps(4), "checkpoint.dir="+ck)...).summary(t)
		again := append(how, fmt.Sprint("ddp.powersgd_rank=", powers[1]), steps(4), "run.resume="+ck)
		err := built(t, 2, func(tr *trainer, err error) error {
			if err != nil {
				return err
			}
			c, err := checkpoint.Open(ck)
			if err != nil {
				return err
			}
			for _, h := range tr.d.HookState() {
				if !h.Sum {
					continue
				}
				want := tensor.Of(make([]float32, h.Data.Len()))
				if err := c.Read(fmt.Sprintf("%s-%d/%s", h.Slot, tr.w.Rank(), h.Param), 0, want); err != nil {
					return err
				}
				if !bytes.Equal(h.Data.Raw(), want.Raw()) {
					t.Errorf("rank %d: %s of %s is not what it was", tr.w.Rank(), h.Slot, h.Param)
				}
			}
			return c.Close()
		}, again...)
		if err != nil {
			t.Errorf("from rank %d to %d: %v", powers[0], powers[1], err)
		}
		if s := run(t, program, append(again, steps(8))...).summary(t); s.ResumedStep != 4 || len(s.Losses) != 8 {
			t.Errorf("from rank %d to %d: from step %d, %d losses", powers[0], powers[1], s.ResumedStep, len(s.Losses))
		}
	}
}
