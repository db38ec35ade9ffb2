package config

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestValuesAtOddsWithEachOther(t *testing.T) {
	for _, tt := range []struct {
		name string
		set  []string
		want string // "" means that nothing is wrong
	}{
		{"name is a path", []string{"run.name=a/b"}, `--set: run.name: "a/b" cannot be the name of a folder`},
		{"name leads up", []string{"run.name=.."}, `--set: run.name: ".." cannot be the name of a folder`},
		{"no name", []string{"run.name="}, `--set: run.name: "" cannot be the name of a folder`},
		{"endless", []string{"run.epochs=0"}, "--set: run.epochs: the run would never end: set run.epochs or run.max_steps"},
		{"steps end it", []string{"run.epochs=0", "run.max_steps=1"}, ""},
		{"master without port", []string{"launch.master=host"}, `--set: launch.master: "host" is not host:port: write one such as 127.0.0.1:29500`},
		{"master without host", []string{"launch.master=:1"}, `--set: launch.master: ":1" is not host:port: write one such as 127.0.0.1:29500`},
		{"master with port 0", []string{"launch.master=h:0"}, `--set: launch.master: "h:0" is not host:port: write one such as 127.0.0.1:29500`},
		{"master with a large port", []string{"launch.master=h:65536"}, `--set: launch.master: "h:65536" is not host:port: write one such as 127.0.0.1:29500`},
		{"master", []string{"launch.master=[::1]:29500"}, ""},
		{"cnn without channels", []string{"model.name=cnn", "model.channels="}, "--set: model.channels: a cnn needs at least one convolution"},
		{"cnn with an even kernel", []string{"model.name=cnn", "model.kernel=4"}, "--set: model.kernel: 4 is even, which changes the size of images: use an odd number"},
		{"transformer whose heads do not fit", []string{"model.name=gpt2", "model.heads=3"}, "--set: model.heads: 3 heads do not divide the width, 64"},
		{"grouped queries that do not fit", []string{"model.name=llama", "model.kv_heads=3"}, "--set: model.kv_heads: 3 heads of keys and values do not divide the 4 heads"},
		{"transformer", []string{"model.name=llama", "model.kv_heads=2"}, ""},
		{"mlp without hidden layers", []string{"model.hidden=[]"}, ""},
		{"no data", []string{"data.path="}, "--set: data.path: is empty: set the folder with the data"},
		{
			"parts of nothing",
			[]string{"data.global_batch=4", "data.accum_steps=5"},
			"--set: data.accum_steps: 5 parts of a batch of 4 samples: use at most as many parts as samples",
		},
		{
			"no whole batch",
			[]string{"data.limit=100", "data.drop_last=true"},
			"--set: data.limit: 100 samples are less than a batch of 128, which data.drop_last skips: no step remains",
		},
		{"one batch", []string{"data.limit=128", "data.drop_last=true"}, ""},
		{"bucket smaller than the first", []string{"ddp.bucket_mb=0.0009765625"}, ""},
		{
			"bucket below 1 KiB",
			[]string{"ddp.bucket_mb=0.0009"},
			"--set: ddp.bucket_mb: 0.0009 is out of range: at least 0.0009765625 and at most 4096",
		},
		{"first bucket below 1 KiB", []string{"ddp.first_bucket_mb=0.0009"}, "--set: ddp.first_bucket_mb: 0.0009 is out of range: at least 0.0009765625 and at most 4096"},
		{"adamw with the default decay", []string{"optim.name=adamw", "optim.no_decay=vectors"}, ""},
		{"adamw without decay", []string{"optim.name=adamw", "optim.weight_decay=0", "optim.no_decay=vectors"}, ""},
		{
			"no decay where nothing decays",
			[]string{"optim.no_decay=vectors"},
			"--set: optim.no_decay: has no effect, because optim.weight_decay is 0: remove it, or set optim.weight_decay",
		},
		{
			"rate rises",
			[]string{"optim.schedule.name=cosine", "optim.schedule.min_lr=0.1"},
			"--set: optim.schedule.min_lr: 0.1 is above the learning rate, 0.001",
		},
		{
			"all warm-up",
			[]string{"optim.schedule.name=cosine", "optim.schedule.warmup_steps=10", "optim.schedule.total_steps=10"},
			"--set: optim.schedule.warmup_steps: 10 steps of warm-up leave no step of 10 for the cosine (optim.schedule.total_steps)",
		},
		{"a run cut short in its warm-up", []string{"optim.schedule.name=cosine", "optim.schedule.warmup_steps=10", "run.max_steps=5"}, ""},
		{
			"unknown blas",
			[]string{"cpu.blas=openblas"},
			`--set: cpu.blas: unknown library "openblas": use auto, gonum, a soname such as libopenblas.so.0, or a path`,
		},
		{"blas by soname", []string{"cpu.blas=libopenblas.so.0"}, ""},
		{"blas by path", []string{"cpu.blas=/opt/blas"}, ""},
		{
			"host backend for GPUs",
			[]string{"comm.backend=shm", "run.device=cuda"},
			"--set: comm.backend: shm is between ranks of the host, and run.device is cuda: use cuda, nccl, nvshmem or auto",
		},
		{
			"GPU backend for the host",
			[]string{"comm.backend=nvshmem", "run.device=cpu"},
			"--set: comm.backend: nvshmem is between GPUs, and run.device is cpu: use shm, sim or auto",
		},
		{"GPUs", []string{"comm.backend=cuda", "run.device=cuda", "comm.engine=nccl", "comm.tune=t.json"}, ""},
		{"few blocks", []string{"comm.max_ctas=32"}, ""},
		{"few blocks of NCCL", []string{"comm.max_ctas=128", "comm.backend=nccl"}, ""},
		{"few blocks for no GPU", []string{"comm.max_ctas=32", "run.device=cpu"}, ""},
		{"too many blocks", []string{"comm.max_ctas=129"}, "--set: comm.max_ctas: 129 is out of range: at least 0 and at most 128"},
		{"less than no blocks", []string{"comm.max_ctas=-1"}, "--set: comm.max_ctas: -1 is out of range: at least 0 and at most 128"},
		{
			"few blocks of NVSHMEM",
			[]string{"comm.max_ctas=8", "comm.backend=nvshmem"},
			"--set: comm.max_ctas: has no effect, because comm.backend is nvshmem: remove it (it is used when comm.backend is auto or cuda or nccl)",
		},
		{
			"a machine of the host on a GPU",
			[]string{"run.machine=tape", "run.device=cuda"},
			"--set: run.machine: tape runs on the host, and run.device is cuda: use compiled",
		},
		{"a machine of the host", []string{"run.machine=tape"}, ""},
		{"any backend for GPUs", []string{"run.device=cuda"}, ""},
		{
			"engine without a backend",
			[]string{"comm.engine=nccl"},
			"--set: comm.engine: has no effect, because comm.backend is auto: remove it (it is used when comm.backend is cuda or nccl or nvshmem)",
		},
		{"no library", []string{"gpu.nccl=nccl"}, `--set: gpu.nccl: invalid library "nccl": use a soname such as libnccl.so.2, or a path`},
		{"library by soname", []string{"gpu.nvshmem=libnvshmem_host.so.3", "gpu.driver=/opt/cuda"}, ""},
		{"no place to resume from", []string{"run.resume="}, "--set: run.resume: is empty: use auto, none or the path of a checkpoint"},
		{"checkpoints nowhere", []string{"checkpoint.every=5"}, "--set: checkpoint.every: has no effect, because checkpoint.dir is empty: remove it (it is used when checkpoint.dir is set)"},
		{"checkpoints", []string{"checkpoint.every=5", "checkpoint.dir=ck", "run.resume=ck/7"}, ""},
		{"a scale of the loss below 0", []string{"optim.loss_scale=-1"}, `--set: optim.loss_scale: invalid factor "-1": use dynamic, 0 for none, or a positive number`},
		{"a scale of the loss in words", []string{"optim.loss_scale=auto"}, `--set: optim.loss_scale: invalid factor "auto": use dynamic, 0 for none, or a positive number`},
		{"a scale that no loss has", []string{"optim.loss_scale=1e60"}, `--set: optim.loss_scale: "1e60" is out of the range of float32, the dtype of losses: use a factor such as 1024`},
		{"a scale that leaves no loss", []string{"optim.loss_scale=1e-60"}, `--set: optim.loss_scale: "1e-60" is out of the range of float32, the dtype of losses: use a factor such as 1024`},
		{"a bound that cuts off everything", []string{"optim.clip_value=1e-60"}, "--set: optim.clip_value: 1e-60 is out of the range of float32, the dtype of gradients: use a bound such as 1, or 0 for none"},
		{"a bound that no gradient has", []string{"optim.clip_value=1e60"}, "--set: optim.clip_value: 1e+60 is out of the range of float32, the dtype of gradients: use a bound such as 1, or 0 for none"},
		{"the smallest bound", []string{"optim.clip_value=1e-45"}, ""},
		{"an eps that is 0", []string{"optim.eps=1e-60"}, "--set: optim.eps: 1e-60 is out of the range of float32, the dtype of gradients: use for example 1e-08"},
		{"an eps that leaves no update", []string{"optim.eps=1e60"}, "--set: optim.eps: 1e+60 is out of the range of float32, the dtype of gradients: use for example 1e-08"},
		{"an eps below 0", []string{"optim.eps=-1e60"}, "--set: optim.eps: -1e+60 is out of range: more than 0"},
		{"a dynamic scale of the loss", []string{"optim.loss_scale=dynamic"}, ""},
		{"no decay of no name", []string{"optim.no_decay=a,,b", "optim.weight_decay=0.1"}, `--set: optim.no_decay: invalid pattern "": use for example *.bias`},
		{"no decay of half a name", []string{"optim.no_decay=*.bias, [a", "optim.weight_decay=0.1"}, `--set: optim.no_decay: invalid pattern "[a": use for example *.bias`},
		{"no decay", []string{"optim.no_decay=*.bias, vectors", "optim.weight_decay=0.1"}, ""},
		{"error feedback of nothing", []string{"comm.error_feedback=true"}, "--set: comm.error_feedback: has no effect, because comm.wire_dtype is f32: remove it (it is used when comm.wire_dtype is bf16 or f16)"},
		{"trace is the folder", []string{"log.trace=."}, `--set: log.trace: "." is the output folder itself: use a file name`},
		{"trace over the summary", []string{"log.trace=summary.json"}, `--set: log.trace: "summary.json" is a file that the run writes itself: use another name`},
		{"trace over the settings", []string{"log.trace=./config.yaml"}, `--set: log.trace: "config.yaml" is a file that the run writes itself: use another name`},
		{"trace below the summary", []string{"log.trace=summary.json/t"}, `--set: log.trace: "summary.json" is a file that the run writes itself: use another name`},
		{
			"trace over the logs",
			[]string{"log.trace=logs", "launch.nproc_per_node=2"},
			`--set: log.trace: "logs" is a folder of the run (launch.log_dir): use a file name`,
		},
		{"trace where no logs are", []string{"log.trace=logs"}, ""},
		{
			"trace over a folder above the checkpoints",
			[]string{"log.trace=b", "run.output_dir=a", "checkpoint.dir=a/b/c"},
			`--set: log.trace: "b" is a folder of the run (checkpoint.dir): use a file name`,
		},
		{"trace among the logs", []string{"log.trace=logs/t.json", "launch.nproc_per_node=2", "checkpoint.dir=/ck"}, ""},
		{"trace elsewhere", []string{"log.trace=../t.json"}, `--set: log.trace: "../t.json" is outside the output folder: use a file name`},
		{
			"trace of three steps",
			[]string{"log.trace=t.json", "log.trace_steps=1,2,3"},
			"--set: log.trace_steps: [1, 2, 3] is not a first and a last step: write them as [10, 19]",
		},
		{
			"trace backwards",
			[]string{"log.trace=t.json", "log.trace_steps=2,1"},
			"--set: log.trace_steps: [2, 1] is not a first and a last step: write them as [10, 19]",
		},
		{
			"trace after the end",
			[]string{"log.trace=t.json", "run.max_steps=10"},
			"--set: log.trace_steps: the timeline starts at step 10, but the run ends after 10 (run.max_steps)",
		},
		{"trace cut short", []string{"log.trace=t.json", "run.max_steps=11"}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, _, err := Load(Source{Set: tt.set})
			if got := strings.Join(texts(t, err, ""), "\n"); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

// A rule about two settings must not report a value that was not set.
func TestOneMistakeIsOneProblem(t *testing.T) {
	for _, set := range [][]string{
		{"run.max_steps=x", "run.epochs=0"},
		{"data.global_batch=x", "data.accum_steps=1000"},
		{"data.global_batch=0", "data.accum_steps=1000"},
		{"optim.name=momentun", "optim.momentum=0.5"},
		{"optim.name=adamw", "optim.weight_decay=-1"},
		{"log.trace=t.json", "log.trace_steps=a,b"},
		{"optim.schedule.name=", "optim.schedule.gamma=0.5"},
	} {
		_, _, err := Load(Source{Set: set})
		if got := texts(t, err, ""); len(got) != 1 {
			t.Errorf("%v: %d problems: %q", set, len(got), got)
		}
	}
}

func TestSettingsWithoutEffectAreReportedToWhoCouldSee(t *testing.T) {
	sgd, momentum := [2]string{"optim.name", "sgd"}, [2]string{"optim.momentum", "0.5"}
	for _, tt := range []struct {
		name string
		src  Source
		want string
	}{
		{
			"both in the file",
			Source{File: inFile(t, sgd, momentum)},
			"FILE:3:13: optim.momentum: has no effect, because optim.name is sgd: remove it (it is used when optim.name is momentum or nesterov)",
		},
		{"file, then flag", Source{File: inFile(t, [2]string{"optim.name", "momentum"}, momentum), Set: []string{"optim.name=sgd"}}, ""},
		{"file, then environment", Source{File: inFile(t, [2]string{"optim.name", "momentum"}, momentum), Env: []string{"SYMGRAD_OPTIM_NAME=sgd"}}, ""},
		{
			"environment over file",
			Source{File: inFile(t, sgd), Env: []string{"SYMGRAD_OPTIM_MOMENTUM=0.5"}},
			"$SYMGRAD_OPTIM_MOMENTUM: optim.momentum: has no effect, because optim.name is sgd: remove it (it is used when optim.name is momentum or nesterov)",
		},
		{
			"flag over the default",
			Source{Set: []string{"model.channels=3"}},
			"--set: model.channels: has no effect, because model.name is mlp: remove it (it is used when model.name is cnn)",
		},
		{
			"flag beside an empty one",
			Source{Set: []string{"log.trace_steps=1,2"}},
			"--set: log.trace_steps: has no effect, because log.trace is empty: remove it (it is used when log.trace is set)",
		},
		{"flag with an effect", Source{Set: []string{"log.trace_steps=1,2", "log.trace=t.json"}}, ""},
		{
			"a wrong value without effect is still without effect",
			Source{File: inFile(t, sgd, [2]string{"optim.momentum", "7"})},
			"FILE:3:13: optim.momentum: has no effect, because optim.name is sgd: remove it (it is used when optim.name is momentum or nesterov)",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, _, err := Load(tt.src)
			got := strings.Join(texts(t, err, tt.src.File), "\n")
			if got != strings.TrimPrefix(tt.want, "FILE") {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

func TestConflictIsBlamedOnWhoSetSomething(t *testing.T) {
	// data.accum_steps has its default 1; the batch does not.
	_, _, err := Load(Source{Env: []string{"SYMGRAD_DATA_ACCUM_STEPS=200"}, Set: []string{"data.global_batch=100"}})
	if got := strings.Join(texts(t, err, ""), "\n"); !strings.HasPrefix(got, "$SYMGRAD_DATA_ACCUM_STEPS: data.accum_steps:") {
		t.Errorf("got %s, want the blame on the variable", got)
	}
	_, _, err = Load(Source{File: inFile(t, [2]string{"optim.name", "adam"}, [2]string{"optim.eps", "1e-60"})})
	if got := strings.Join(texts(t, err, ""), "\n"); !strings.Contains(got, "c.yaml:3:8: optim.eps: 1e-60 is out of the range of float32") {
		t.Errorf("got %s, want the blame on the file's optim.eps", got)
	}
}

func TestUnsetWeightDecayIsThatOfTheRule(t *testing.T) {
	for _, c := range []struct {
		set  []string
		want float64
	}{
		{nil, 0},
		{[]string{"optim.name=adamw"}, 0.01},
		{[]string{"optim.name=adamw", "optim.weight_decay=0"}, 0},
		{[]string{"optim.name=adamw", "optim.weight_decay=0.3"}, 0.3},
		{[]string{"optim.name=lamb"}, 0},
		{[]string{"optim.name=sgd"}, 0},
	} {
		cfg, origins := mustLoadWithOrigins(t, Source{Set: c.set})
		if got := cfg.Optim.WeightDecay; got != c.want {
			t.Errorf("%v: weight decay %v, want %v", c.set, got, c.want)
		}
		if level := origins.Origin("optim.weight_decay").Level; (level == LevelDefault) != (len(c.set) < 2) {
			t.Errorf("%v: the weight decay comes from level %v", c.set, level)
		}
		again, err := loadBack(t, cfg)
		if err != nil || again.Hash() != cfg.Hash() {
			t.Errorf("%v: the saved settings have another hash, or the error %v", c.set, err)
		}
	}
}

func mustLoadWithOrigins(t *testing.T, s Source) (*Config, *Origins) {
	t.Helper()
	cfg, origins, err := Load(s)
	if err != nil {
		t.Fatal(err)
	}
	return cfg, origins
}

// loadBack returns the settings of the file that c is printed as.
func loadBack(t *testing.T, c *Config) (*Config, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "again.yaml")
	if err := os.WriteFile(file, c.YAML(nil), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, _, err := Load(Source{File: file})
	return cfg, err
}

func TestValidateChecksConfigsMadeByPrograms(t *testing.T) {
	c := Default()
	c.Optim.LR = math.NaN()
	c.Run.Name = "\xff"
	c.Comm.Backend = "tcp"
	c.Optim.Momentum = -1 // without effect
	c.Data.AccumSteps = 1000
	err := c.Validate()
	var e *Error
	if !errors.As(err, &e) {
		t.Fatalf("%v is a %T, want *Error", err, err)
	}
	var keys []string
	for _, p := range e.Problems {
		keys = append(keys, p.Key)
		if p.Origin != (Origin{}) {
			t.Errorf("%v: Validate knows no origins", p)
		}
	}
	if want := []string{"run.name", "comm.backend", "optim.lr", "data.accum_steps"}; !slices.Equal(keys, want) {
		t.Errorf("problems with %v, want %v:\n%v", keys, want, err)
	}
	if new(Config).Validate() == nil {
		t.Error("the zero config is valid")
	}
}

func TestOriginText(t *testing.T) {
	for want, o := range map[string]Origin{
		"default":  {},
		"a.yaml":   {Level: LevelFile, File: "a.yaml"},
		"a.yaml:3": {Level: LevelFile, File: "a.yaml", Line: 3}, "a.yaml:3:4": {Level: LevelFile, File: "a.yaml", Line: 3, Col: 4},
		"$SYMGRAD_X": {Level: LevelEnv, Var: "SYMGRAD_X"},
		"--set":      {Level: LevelFlag},
	} {
		if got := o.String(); got != want {
			t.Errorf("%+v: %s, want %s", o, got, want)
		}
	}
	var none *Origins
	if none.Origin("run.seed") != (Origin{}) {
		t.Error("no origins know of defaults only")
	}
}

// A setting without effect may have any value.
func TestEpsWithoutEffectIsNotLookedAt(t *testing.T) {
	c := Default()
	c.Optim.Name, c.Optim.Eps = "sgd", 1e-60
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
}
