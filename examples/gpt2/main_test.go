package main

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/symgrad/symgrad/checkpoint"
	"github.com/symgrad/symgrad/data"
	"github.com/symgrad/symgrad/data/bpe"
	"github.com/symgrad/symgrad/examples/internal/ranktest"
	"github.com/symgrad/symgrad/nn/transformer"
	"github.com/symgrad/symgrad/tensor"
	"github.com/symgrad/symgrad/train"
)

func TestMain(m *testing.M) { ranktest.Main(m, main) }

// vocabulary is that of the tests' tokens.
const vocabulary = 40

// tokens writes n tokens with a simple rule, and returns the folder.
func tokens(t *testing.T, n int) string {
	t.Helper()
	dir := t.TempDir()
	all := make([]int, n)
	for i := range all {
		all[i] = (i%7*5 + i/50) % vocabulary
	}
	w, err := data.NewTokenWriter(data.TokenWriterConfig{Dir: dir, Name: "t", Format: data.TokensHeaderUint16, ShardTokens: 3000})
	if err == nil {
		err = w.Write(all)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// small is the flags of a run that takes a second: the shipped settings with a smaller network.
func small(t *testing.T, dir string, more ...string) []string {
	t.Helper()
	return append([]string{
		"--config=../../configs/gpt2-demo.yaml", "--set=data.path=" + tokens(t, 7000), "--set=data.val_path=" + tokens(t, 700),
		"--set=run.output_dir=" + dir, "--set=checkpoint.dir=", fmt.Sprintf("--set=model.vocabulary=%d", vocabulary), "--set=model.width=16",
		"--set=model.heads=2", "--set=model.layers=1", "--set=model.context=12", "--set=data.global_batch=8", "--set=run.max_steps=30",
		"--set=optim.lr=0.02", "--set=optim.schedule.warmup_steps=5", "--set=log.losses=true", "--set=cpu.blas=gonum", "--set=run.device=cpu",
	}, more...)
}

// summary reads the summary of a run.
func summary(t *testing.T, dir string) train.Summary {
	t.Helper()
	return ranktest.Summary[train.Summary](t, dir)
}

// ranks is the flag for so many.
func ranks(n int) string { return ranktest.Ranks(n) }

// One and two ranks learn the same, as processes and as goroutines, and learn it: the loss begins
// at ln 40 = 3.7.
func TestRanksLearnTheSame(t *testing.T) {
	for name, model := range map[string][]string{
		"gpt2":  nil,
		"llama": {"--set=model.name=llama", "--set=model.heads=4", "--set=model.kv_heads=2", "--set=model.tied=false"},
	} {
		t.Run(name, func(t *testing.T) {
			var one train.Summary
			for _, run := range [][]string{
				{ranks(1)}, {ranks(2)}, {ranks(2), "--set=comm.backend=sim", "--set=data.accum_steps=2", "--set=shard.stage=2", "--set=data.workers=3", "--set=data.ahead=1"},
			} {
				dir := t.TempDir()
				o := ranktest.Process(t, small(t, dir, slices.Concat(model, run, []string{"--below=1.9", "--verify"})...)...)
				o.Want(t, 0, name+", layers 1, width 16", "7000 tokens in 3 files; 583 training samples of 12", "58 test samples", "verify     gradient of 8 samples")
				s := summary(t, dir)
				if one.Losses == nil {
					one = s
					if *s.TestAccuracy < 0.4 || s.TestSamples != 58*12 {
						t.Errorf("accuracy %v of %d tokens, want at least 0.4", *s.TestAccuracy, s.TestSamples)
					}
				}
				for i := range one.Losses {
					if d := math.Abs(s.Losses[i]-one.Losses[i]) / one.Losses[i]; !(d < 1e-4) {
						t.Fatalf("%v: the loss of step %d is %v, of one rank %v", run, i, s.Losses[i], one.Losses[i])
					}
				}
			}
		})
	}
}

// A run stops and goes on with other ranks: its losses are those of a run that never stopped. The
// validation loss of its checkpoints falls, and an export has that of its checkpoint.
func TestRunGoesOnAndItsValidationLossFalls(t *testing.T) {
	more := []string{"--set=optim.schedule.total_steps=30", "--set=comm.backend=sim"}
	whole, part, checkpoints := t.TempDir(), t.TempDir(), t.TempDir()
	ranktest.Execute(execute, small(t, whole, more...)...).Want(t, 0)
	more = append(more, "--set=checkpoint.dir="+checkpoints, "--set=checkpoint.every=10")
	ranktest.Execute(execute, small(t, part, append(more, ranks(1), "--set=run.max_steps=20")...)...).Want(t, 0)
	ranktest.Execute(execute, small(t, part, append(more, ranks(3))...)...).Want(t, 0)
	want, got := summary(t, whole), summary(t, part)
	if got.ResumedStep != 20 || len(got.Losses) != len(want.Losses) {
		t.Fatalf("from step %d, %d losses", got.ResumedStep, len(got.Losses))
	}
	for i := range want.Losses {
		if d := math.Abs(got.Losses[i]-want.Losses[i]) / want.Losses[i]; !(d < 1e-4) {
			t.Fatalf("the loss of step %d is %v, want %v", i, got.Losses[i], want.Losses[i])
		}
	}
	val := tokens(t, 700)
	losses := evaluated(t, "--from", checkpoints, "--data", val, "--all", "--batch", "5")
	if len(losses) != 3 || losses[0] < losses[1]+0.1 || losses[1] < losses[2] || losses[2] > 2 {
		t.Errorf("validation losses %v, want three that fall below 2", losses)
	}
	out := filepath.Join(t.TempDir(), "model")
	ranktest.Execute(execute, "export", "--from", checkpoints, "--out", out).Want(t, 0, out+": gpt2 of ")
	if again := evaluated(t, "--from", out, "--data", val); again[0] != losses[2] {
		t.Errorf("the export has loss %v, the checkpoint %v", again[0], losses[2])
	}
}

// evaluated returns the losses that eval prints.
func evaluated(t *testing.T, args ...string) (losses []float64) {
	t.Helper()
	o := ranktest.Execute(execute, append([]string{"eval"}, args...)...)
	o.Want(t, 0)
	for line := range strings.Lines(o.Stdout) {
		var loss float64
		_, text, _ := strings.Cut(line, ": loss ")
		if _, err := fmt.Sscanf(text, "%f,", &loss); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		losses = append(losses, loss)
	}
	return losses
}

// saved is a folder of Hugging Face with a small random model.
func saved(t *testing.T, vocabulary int) (dir string, w *transformer.Weights) {
	t.Helper()
	c := transformer.Config{
		Family: transformer.Llama, Vocabulary: vocabulary, Context: 12, Width: 8, Layers: 1, Heads: 2, KVHeads: 1, Inner: 12, Tied: true, AttentionDropout: 0.1,
	}
	w, err := transformer.Initial(c, 1)
	if err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	if err := w.Save(dir); err != nil {
		t.Fatal(err)
	}
	return dir, w
}

// A training starts from weights of Hugging Face, with their sizes.
func TestTrainingStartsFromPretrainedWeights(t *testing.T) {
	from, w := saved(t, vocabulary)
	checkpoints := t.TempDir()
	ranktest.Execute(execute, small(t, t.TempDir(), "--set=model.name=llama", "--set=model.pretrained="+from, "--set=checkpoint.dir="+checkpoints, "--set=run.max_steps=2",
		"--set=comm.backend=sim", "--set=optim.lr=0.000001", "--set=optim.schedule.name=constant", "--set=optim.weight_decay=0", "--set=optim.no_decay=")...).Want(t, 0, "llama, layers 1, width 8, heads 2, inner 12, context 12, vocabulary 40, heads of keys and values 1, tied")
	got, _, err := trained(checkpoints)
	if err != nil {
		t.Fatal(err)
	}
	for i, v := range w.Values {
		for j, x := range v.Float32s() {
			if y := got.Values[i].Float32s()[j]; math.Abs(float64(x-y)) > 1e-5 {
				t.Fatalf("element %d of weight %d is %v after two small steps, and was %v", j, i, y, x)
			}
		}
	}
}

func TestSamplePrintsText(t *testing.T) {
	from, _ := saved(t, 50304)
	run := func(more ...string) string {
		o := ranktest.Execute(execute, append([]string{"sample", "--from", from, "--prompt", "On Monday", "--tokens", "14"}, more...)...)
		o.Want(t, 0)
		if !strings.HasPrefix(o.Stdout, "On Monday") || len(o.Stdout) < 20 || !strings.HasSuffix(o.Stdout, "\n") {
			t.Errorf("%v: %q", more, o.Stdout)
		}
		return o.Stdout
	}
	if a, b, c := run(), run(), run("--seed", "2"); a != b || a == c {
		t.Errorf("one seed gives %q and %q, another %q", a, b, c)
	}
	if a, b := run("--temperature", "0"), run("--top-k", "1", "--seed", "3"); a != b {
		t.Errorf("the most likely tokens are %q and %q", a, b)
	}
}

func TestLogitsAreWritten(t *testing.T) {
	from, w := saved(t, vocabulary)
	dir := t.TempDir()
	in, out := filepath.Join(dir, "tokens.json"), filepath.Join(dir, "logits.safetensors")
	if err := os.WriteFile(in, []byte("[[1, 2, 3], [4, 5, 39]]"), 0o600); err != nil {
		t.Fatal(err)
	}
	ranktest.Execute(execute, "logits", "--from", from, "--tokens", in, "--out", out).Want(t, 0)
	f, err := checkpoint.OpenFile(out)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	e := f.Header().Find("logits")
	if e == nil || !slices.Equal(e.Shape, []int{2, 3, w.Config.Vocabulary}) {
		t.Fatalf("%+v", e)
	}
	values := make([]float32, e.Len())
	if err := f.Read("logits", 0, tensor.Of(values)); err != nil {
		t.Fatal(err)
	}
	if slices.Max(values) == slices.Min(values) {
		t.Error("all logits are equal")
	}
}

// A character of several tokens is printed when it is complete.
func TestPrinterKeepsCharactersWhole(t *testing.T) {
	enc, err := bpe.Open("r50k_base")
	if err != nil {
		t.Fatal(err)
	}
	const text = "naïve 🙂 東京"
	all, err := enc.Encode(text)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	p := &printer{out: &out, enc: enc}
	for _, token := range all {
		if err := p.token(token); err != nil {
			t.Fatal(err)
		}
		if !utf8.ValidString(out.String()) {
			t.Fatalf("after token %d: %q", token, out.String())
		}
	}
	if err := p.token(enc.EndOfText()); !errors.Is(err, errEnd) {
		t.Errorf("the end of a text: %v", err)
	}
	if err := p.end(); err != nil || out.String() != text+"\n" {
		t.Errorf("%q, %v, want %q", out.String(), err, text)
	}
}

func TestHelpListsTheFlags(t *testing.T) {
	ranktest.Execute(execute, "sample", "--help").Want(t, 0, "--top-k", "--temperature", "--from", "gpt2 sample --from DIR")
	ranktest.Execute(execute, "--help").Want(t, 0, "gpt2 sample|eval|export|logits --help", "configs/gpt2.yaml")
}

func TestWhatMakesNoSenseIsRefused(t *testing.T) {
	from, _ := saved(t, vocabulary)
	bad := filepath.Join(t.TempDir(), "bad.bin")
	if err := os.WriteFile(bad, slices.Repeat([]byte{200, 0}, 100), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		flags []string
		code  int
		want  string
	}{
		{[]string{"--set=data.path=none"}, 1, "data.path: stat none: no such file or directory; make tokens with symgrad data tokenize --encoding r50k_base"},
		{[]string{"--set=data.val_path=none"}, 1, "data.val_path: stat none"},
		{[]string{"--set=data.path=" + bad}, 1, "bad.bin: invalid argument: token 200 at byte "},
		{[]string{"--set=model.context=9999"}, train.ExitUsage, "has 7000 tokens: want at least 10000, for a sample of 9999 (model.context)"},
		{[]string{"--set=model.heads=3"}, train.ExitUsage, "3 heads do not divide the width, 16"},
		{[]string{"--set=model.name=mlp"}, train.ExitUsage, "model.layers"},
		{[]string{"--set=model.pretrained=" + from}, train.ExitUsage, "is a llama: set model.name=llama"},
		{[]string{"--set=model.pretrained=" + from, "--set=model.name=llama", "--set=model.context=13"}, train.ExitUsage, "takes at most 12 tokens"},
		{[]string{"--set=model.pretrained=none"}, train.ExitUsage, "model.pretrained: "},
	} {
		ranktest.Execute(execute, small(t, t.TempDir(), append(c.flags, "--set=comm.backend=sim")...)...).Want(t, c.code, c.want)
	}
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"sample"}, train.ExitUsage, "--from is missing"},
		{[]string{"sample", "--from", from}, 1, "token 50256, number 0 of the text; the vocabulary has 40"},
		{[]string{"sample", "--from", from, "--temperature", "-1"}, train.ExitUsage, "temperature -1"},
		{[]string{"sample", "--from", from, "--encoding", "x"}, train.ExitUsage, `no encoding "x"`},
		{[]string{"sample", "--from", t.TempDir()}, 1, "name a folder of checkpoints (checkpoint.dir), or of Hugging Face"},
		{[]string{"eval", "--from", from}, train.ExitUsage, "--data is missing"},
		{[]string{"eval", "--from", from, "--data", bad}, 1, "token 200 at byte 0"},
		{[]string{"eval", "--from", from, "--data", bad, "--device", "tpu"}, train.ExitUsage, `device "tpu"`},
		{[]string{"export", "--from", from}, train.ExitUsage, "--out is missing"},
		{[]string{"logits", "--from", from, "--tokens", bad, "--out", bad + "x"}, 1, "want a list of lists of tokens"},
		{[]string{"logits", "--from", from, "more"}, train.ExitUsage, `unexpected argument "more"`},
	} {
		ranktest.Execute(execute, c.args...).Want(t, c.code, c.want)
	}
}
