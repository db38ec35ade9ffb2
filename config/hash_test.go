package config

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"strings"
	"testing"
)

// canonicalDefaults is the text of the default settings.
const canonicalDefaults = `symgrad config 7
run.seed: 1
run.max_steps: 0
run.epochs: 1
run.eval: true
run.eval_every: 0
run.device: auto
run.machine: compiled
run.precision: fp32
run.recompute: none
launch.nproc_per_node: 0
comm.backend: auto
comm.max_ctas: 0
comm.order: rank
comm.check: true
comm.heap_mb: 0
comm.wire_dtype: f32
model.name: mlp
model.hidden: [512, 512]
data.path: data/mnist
data.global_batch: 128
data.shuffle: true
data.drop_last: false
data.accum_steps: 1
data.limit: 0
ddp.bucket_mb: 25
ddp.first_bucket_mb: 1
ddp.overlap: true
ddp.average: mean
ddp.hook: none
ddp.local_steps: 1
ddp.virtual_ranks: 0
shard.stage: 0
shard.overlap_gather: false
optim.name: adam
optim.lr: 0.001
optim.beta1: 0.9
optim.beta2: 0.999
optim.eps: 1e-08
optim.weight_decay: 0
optim.no_decay: ""
optim.clip_norm: 0
optim.clip_value: 0
optim.skip_nonfinite: false
optim.ema_decay: 0
optim.loss_scale: "0"
optim.schedule.name: constant
optim.schedule.warmup_steps: 0
cpu.blas: auto
cpu.threads: 0
`

// Ranks agree on the canonical text. A change of it changes every hash: raise the number in its
// header.
func TestCanonicalTextOfTheDefaults(t *testing.T) {
	c := Default()
	if got := c.Canonical(); got != canonicalDefaults {
		t.Errorf("got\n%s\nwant\n%s", got, canonicalDefaults)
	}
	sum := sha256.Sum256([]byte(canonicalDefaults))
	if got := c.Hash(); got != hex.EncodeToString(sum[:]) {
		t.Errorf("hash %s is not the SHA-256 of the text", got)
	}
}

// TestHashCoversWhatRanksMustAgreeOn changes one setting after the other.
func TestHashCoversWhatRanksMustAgreeOn(t *testing.T) {
	mayDiffer := map[string]bool{
		"run.name": true, "run.output_dir": true, "run.resume": true,
		"checkpoint.dir": true, "checkpoint.every": true, "checkpoint.keep": true, "checkpoint.async": true, "checkpoint.sharded": true,
		"launch.master": true, "launch.log_dir": true, "launch.bind": true, "launch.grace": true,
		"comm.tune": true, "gpu.driver": true, "gpu.nvrtc": true, "gpu.nccl": true, "gpu.nvshmem": true,
		"comm.timeout_init": true, "comm.timeout_step": true, "comm.trace_entries": true,
		"log.every": true, "log.losses": true, "log.trace": true, "log.trace_steps": true, "log.progress": true,
		"log.csv": true, "log.tensorboard": true, "log.peak_tflops": true,
		"data.workers": true, "data.ahead": true,
	}
	for _, f := range schema() {
		// Where the setting has an effect, and its value is the default or the first sample.
		var set []string
		if f.only.other != "" {
			set = append(set, f.only.other+"="+append(f.only.values, "t.json")[0])
		}
		if f.key == "optim.no_decay" {
			set = append(set, "optim.weight_decay=0.1") // or it has no effect
		}
		before := mustLoad(t, Source{Set: set}).Hash()
		after := mustLoad(t, Source{Set: append(set, f.key+"="+unquoted(samples[f.key][0]))}).Hash()
		if mayDiffer[f.key] != (before == after) {
			t.Errorf("%s: may differ between ranks: %t, but the hash stays the same: %t", f.key, mayDiffer[f.key], before == after)
		}
		if f.hashed == mayDiffer[f.key] {
			t.Errorf("%s: may differ between ranks: %t, hashed: %t", f.key, mayDiffer[f.key], f.hashed)
		}
	}
}

func TestHashLeavesOutWhatHasNoEffect(t *testing.T) {
	a, b := Default(), Default()
	b.Optim.Momentum, b.Model.Channels, b.Optim.Schedule.Gamma = 0.5, []int{1}, 0.5
	if a.Hash() != b.Hash() {
		t.Errorf("the hash depends on settings without effect:\n%s\n%s", a.Canonical(), b.Canonical())
	}
}

func TestHashDoesNotDependOnWhereValuesCameFrom(t *testing.T) {
	file := mustLoad(t, Source{File: inFile(t, [2]string{"optim.lr", "2.5e-1"}, [2]string{"model.hidden", "[64,  32]"}, [2]string{"run.seed", "0x10"})})
	env := mustLoad(t, Source{Env: []string{"SYMGRAD_OPTIM_LR=.25", "SYMGRAD_MODEL_HIDDEN=64,32", "SYMGRAD_RUN_SEED=16"}})
	set := mustLoad(t, Source{Set: []string{"run.seed=1_6", "model.hidden=[64, 32]", "optim.lr=0.250"}})
	if file.Hash() != env.Hash() || env.Hash() != set.Hash() {
		t.Errorf("one config, three hashes:\n%s\n%s\n%s", file.Canonical(), env.Canonical(), set.Canonical())
	}
}

func mustLoad(t *testing.T, s Source) *Config {
	t.Helper()
	cfg, _, err := Load(s)
	if err != nil {
		t.Fatalf("%+v: %v", s, err)
	}
	return cfg
}

// No string can be written so that it looks like the line of another setting.
func TestCanonicalTextIsUnambiguous(t *testing.T) {
	a, b := Default(), Default()
	a.Data.Path = "x\ndata.global_batch: 1"
	b.Data.Path = "x"
	if n := strings.Count(a.Canonical(), "\n"); n != strings.Count(b.Canonical(), "\n") {
		t.Errorf("a line break in a value makes %d lines:\n%s", n, a.Canonical())
	}
	if a.Hash() == b.Hash() {
		t.Error("different paths, one hash")
	}
}

// Every file in configs/ must be right, explain each of its settings, and leave its results under
// its own name.
func TestShippedConfigs(t *testing.T) {
	const dir = "../configs/"
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, e := range entries {
		name, isYAML := strings.CutSuffix(e.Name(), ".yaml")
		if !isYAML {
			t.Errorf("%s is not a .yaml file", e.Name())
			continue
		}
		names[name] = true
		path := dir + e.Name()
		cfg := mustLoad(t, Source{File: path})
		if cfg.Run.Name != name || cfg.OutputDir() != "runs/"+name {
			t.Errorf("%s: run.name %s, output in %s: want both named after the file", path, cfg.Run.Name, cfg.OutputDir())
		}
		sameAsPlainDecoder(t, path, cfg)
		everyLineIsExplained(t, path)
	}
	for _, want := range []string{"mnist-mlp", "mnist-cnn", "mnist-zero1", "mnist-bf16", "wide-mlp", "lm", "gpt2", "gpt2-demo", "resnet18-cifar10", "resnet50-images"} {
		if !names[want] {
			t.Errorf("there is no %s.yaml", want)
		}
	}
}

// A zero with a sign is the same setting, for ranks that compare and for a run that is taken up
// again.
func TestCanonicalTextHasOneZero(t *testing.T) {
	zero := Default()
	signed, _, err := Load(Source{Set: []string{"optim.clip_norm=-0.0"}})
	if err != nil {
		t.Fatal(err)
	}
	if signed.Hash() != zero.Hash() {
		t.Errorf("the hash of -0 is that of\n%s", signed.Canonical())
	}
	if changes, err := signed.Changes(zero.Canonical()); err != nil || len(changes) > 0 {
		t.Errorf("%v, %v", changes, err)
	}
}

// A number is one setting, however a text says it.
func TestCanonicalTextHasOneScaleOfTheLoss(t *testing.T) {
	for want, texts := range map[string][]string{
		`"0"`: {"0", "0.0", "-0", "0e5"}, `"1024"`: {"1024", "1024.0", "1.024e3", "+1024"}, `"0.5"`: {"0.5", ".5"}, "dynamic": {"dynamic"},
	} {
		first := mustLoad(t, Source{Set: []string{"optim.loss_scale=" + texts[0]}})
		if !strings.Contains(first.Canonical(), "\noptim.loss_scale: "+want+"\n") {
			t.Errorf("%s is not in\n%s", want, first.Canonical())
		}
		for _, text := range texts[1:] {
			c := mustLoad(t, Source{Set: []string{"optim.loss_scale=" + text}})
			if c.Hash() != first.Hash() {
				t.Errorf("%s has another hash than %s", text, texts[0])
			}
			if changes, err := c.Changes(first.Canonical()); err != nil || len(changes) > 0 {
				t.Errorf("%s after %s: %v, %v", text, texts[0], changes, err)
			}
		}
	}
}
