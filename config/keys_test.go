package config

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestSchemaIsWellFormed(t *testing.T) {
	name := regexp.MustCompile(`^[a-z][a-z0-9]*(_[a-z0-9]+)*$`) // viper folds case, so that an upper-case key would be lost
	envs := map[string]string{}
	for _, f := range schema() {
		for _, part := range strings.Split(f.key, ".") {
			if !name.MatchString(part) {
				t.Errorf("%s: %q is not snake_case", f.key, part)
			}
		}
		if f.kind == kindNone {
			t.Errorf("%s: no setting may have the type %v", f.key, f.typ)
		}
		if f.help == "" || strings.HasSuffix(f.help, ".") {
			t.Errorf("%s: help %q: want a sentence without a full stop", f.key, f.help)
		}
		if other, twice := envs[f.env()]; twice {
			t.Errorf("%s and %s have one variable, %s", f.key, other, f.env())
		}
		envs[f.env()] = f.key
		if isReserved(f.env(), nil) {
			t.Errorf("%s: its variable %s is reserved", f.key, f.env())
		}
		if f.in == "" {
			continue
		}
		_, isInterval := parseInterval(f.in)
		if wantInterval := f.kind != kindString; isInterval != wantInterval {
			t.Errorf("%s: in:%q does not suit a %v", f.key, f.in, f.kind)
		}
	}
}

func TestConditionsNameSettingsAndValues(t *testing.T) {
	conditional := 0
	for _, f := range schema() {
		if f.only.other == "" {
			continue
		}
		conditional++
		other := lookup(f.only.other)
		if other == nil || other.kind != kindString || other.only.other != "" {
			t.Errorf("%s: only:%q does not name a string setting that always has an effect", f.key, f.only.other)
			continue
		}
		for _, v := range f.only.values {
			if !slices.Contains(strings.Split(other.in, "|"), v) {
				t.Errorf("%s: %s is never %q", f.key, other.key, v)
			}
		}
	}
	if conditional == 0 {
		t.Error("no setting has a condition: the test looks at nothing")
	}
}

func TestKeysAreSortedAndComplete(t *testing.T) {
	keys := Keys()
	if len(keys) != len(schema()) {
		t.Fatalf("%d keys for %d settings", len(keys), len(schema()))
	}
	if !slices.IsSortedFunc(keys, func(a, b Key) int { return strings.Compare(a.Name, b.Name) }) {
		t.Error("keys are not sorted by name")
	}
	i := slices.IndexFunc(keys, func(k Key) bool { return k.Name == "optim.beta1" })
	want := Key{
		Name: "optim.beta1", Env: "SYMGRAD_OPTIM_BETA1", Type: "float", Default: "0.9", Allowed: "more than 0 and less than 1",
		Only: "optim.name is adam or adamw or lamb or lion", Help: "decay of the running mean of gradients", Hashed: true,
	}
	if i < 0 || keys[i] != want {
		t.Errorf("optim.beta1 is %+v, want %+v", keys[max(i, 0)], want)
	}
}

// Other programs and the documentation use these names.
func TestFixedNamesExist(t *testing.T) {
	for _, key := range []string{
		"run.name", "run.output_dir", "run.seed", "run.max_steps", "run.epochs", "run.eval", "run.device", "run.machine", "run.precision", "run.recompute", "run.memory_mb",
		"launch.nproc_per_node", "launch.master", "launch.log_dir", "launch.bind", "launch.grace",
		"comm.backend", "comm.timeout_init", "comm.timeout_step", "comm.check", "comm.heap_mb", "comm.trace_entries",
		"model.name", "model.hidden", "model.channels", "model.kernel",
		"model.layers", "model.heads", "model.width", "model.context", "model.tied", "model.sync_bn", "model.label_smoothing", "model.pretrained",
		"data.image_size", "data.augment",
		"data.path", "data.global_batch", "data.shuffle", "data.drop_last", "data.accum_steps", "data.limit",
		"data.encoding", "data.val_path", "data.val_limit",
		"ddp.bucket_mb", "ddp.first_bucket_mb", "ddp.overlap", "ddp.average", "ddp.hook", "ddp.powersgd_rank", "ddp.local_steps", "ddp.virtual_ranks",
		"run.resume", "checkpoint.dir", "checkpoint.every", "checkpoint.keep", "checkpoint.async", "checkpoint.sharded",
		"shard.stage", "comm.wire_dtype", "comm.error_feedback",
		"optim.no_decay", "optim.clip_value", "optim.skip_nonfinite", "optim.ema_decay", "optim.loss_scale",
		"optim.name", "optim.lr", "optim.momentum", "optim.nesterov", "optim.beta1", "optim.beta2", "optim.eps",
		"optim.weight_decay", "optim.clip_norm", "optim.schedule.name", "optim.schedule.warmup_steps",
		"optim.schedule.total_steps", "optim.schedule.min_lr", "optim.schedule.step_size", "optim.schedule.gamma",
		"cpu.blas", "cpu.threads",
		"log.every", "log.losses", "log.trace", "log.trace_steps", "log.progress",
	} {
		if lookup(key) == nil {
			t.Errorf("there is no %s", key)
		}
	}
}

func TestSectionsAreOnlyPrefixes(t *testing.T) {
	want := []string{"run", "launch", "comm", "model", "data", "ddp", "shard", "optim", "optim.schedule", "checkpoint", "cpu", "gpu", "log"}
	got := sections()
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("sections %v, want %v", got, want)
	}
	for _, s := range got {
		if !isSection(s) || lookup(s) != nil {
			t.Errorf("%s: isSection %t, lookup %v", s, isSection(s), lookup(s))
		}
	}
	for _, key := range []string{"", "op", "optim.lr", "optim.sched", "optim."} {
		if isSection(key) {
			t.Errorf("%q is no section", key)
		}
	}
}

func TestDirectoriesAndSizesFollowTheirSettings(t *testing.T) {
	c := Default()
	c.Run.Name = "a"
	if c.OutputDir() != "runs/a" || c.LogDir() != "runs/a/logs" {
		t.Errorf("by default: output %s, logs %s", c.OutputDir(), c.LogDir())
	}
	c.Run.OutputDir = "/out"
	if c.OutputDir() != "/out" || c.LogDir() != "/out/logs" {
		t.Errorf("with output_dir: output %s, logs %s", c.OutputDir(), c.LogDir())
	}
	c.Launch.LogDir = "/logs"
	if c.LogDir() != "/logs" {
		t.Errorf("with log_dir: logs %s", c.LogDir())
	}
	if c.DDP.BucketBytes() != 25<<20 || c.DDP.FirstBucketBytes() != 1<<20 {
		t.Errorf("buckets of %d and %d bytes", c.DDP.BucketBytes(), c.DDP.FirstBucketBytes())
	}
	c.DDP.BucketMB = 0.0009765625
	if c.DDP.BucketBytes() != 1024 || c.DDP.FirstBucketBytes() != 1024 {
		t.Errorf("1 KiB buckets are %d bytes, the first %d", c.DDP.BucketBytes(), c.DDP.FirstBucketBytes())
	}
	c.DDP.BucketMB = 1e-9
	if c.DDP.BucketBytes() != 1 {
		t.Errorf("the smallest bucket is %d bytes", c.DDP.BucketBytes())
	}
	c.Comm.HeapMB = 3
	if c.Comm.HeapBytes() != 3<<20 {
		t.Errorf("heap of %d bytes", c.Comm.HeapBytes())
	}
}

func TestCosineStepsEndWithTheRunOrBefore(t *testing.T) {
	for _, tt := range []struct{ warmup, total, run, want int }{
		{0, 0, 100, 100}, {10, 0, 100, 90}, {10, 50, 100, 40}, {100, 0, 100, 1}, {100, 0, 20, 1}, {0, 200, 100, 200},
	} {
		s := Schedule{WarmupSteps: tt.warmup, TotalSteps: tt.total}
		if got := s.CosineSteps(tt.run); got != tt.want {
			t.Errorf("warm-up %d, total %d, run %d: %d steps, want %d", tt.warmup, tt.total, tt.run, got, tt.want)
		}
	}
}
