package config

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// samples has, for every setting, three values other than its default that go well with all other
// samples.
var samples = map[string][3]string{
	"run.name":                    {"a", "b", "c"},
	"run.output_dir":              {"out/a", "out/b", "out/c"},
	"run.resume":                  {"none", "runs/a", "/ck/step-7"},
	"run.seed":                    {"-2", "3", "4000000000000"},
	"run.max_steps":               {"500", "600", "700"},
	"run.epochs":                  {"2", "3", "4"},
	"run.eval":                    {"false", "true", "false"},
	"run.eval_every":              {"1", "2", "3"},
	"run.device":                  {"cpu", "cpu", "cpu"},
	"run.machine":                 {"tape", "compiled", "tape"},
	"run.precision":               {"tf32", "bf16", "tf32"},
	"run.recompute":               {"blocks", "auto", "blocks"},
	"run.memory_mb":               {"1", "2", "3"},
	"launch.nproc_per_node":       {"2", "3", "4"},
	"launch.master":               {"10.0.0.1:1", "host:29500", "'[::1]:65535'"},
	"launch.log_dir":              {"logs/a", "logs/b", "logs/c"},
	"launch.bind":                 {"core", "none", "core"},
	"launch.grace":                {"1s", "3s", "500ms"},
	"comm.backend":                {"shm", "sim", "shm"},
	"comm.engine":                 {"nccl", "twoshot", "oneshot"},
	"comm.tune":                   {"a.json", "/b.json", "t/c.json"},
	"comm.max_ctas":               {"8", "32", "128"},
	"comm.order":                  {"fast", "rank", "fast"},
	"comm.timeout_init":           {"1s", "2s", "3s"},
	"comm.timeout_step":           {"1s", "2s", "3s"},
	"comm.check":                  {"false", "true", "false"},
	"comm.heap_mb":                {"1", "2", "3"},
	"comm.wire_dtype":             {"bf16", "f16", "bf16"},
	"comm.error_feedback":         {"true", "false", "true"},
	"comm.trace_entries":          {"1", "2", "3"},
	"model.name":                  {"cnn", "cnn", "cnn"},
	"model.hidden":                {"[]", "[1]", "[2, 3]"},
	"model.channels":              {"[1]", "[2, 3]", "[4]"},
	"model.kernel":                {"3", "1", "7"},
	"model.layers":                {"1", "3", "6"},
	"model.heads":                 {"1", "2", "8"},
	"model.width":                 {"16", "32", "128"},
	"model.context":               {"2", "32", "256"},
	"model.tied":                  {"false", "true", "false"},
	"model.kv_heads":              {"1", "2", "4"},
	"model.inner":                 {"64", "65", "66"},
	"model.init_std":              {"0.1", "0.2", "0.3"},
	"model.vocabulary":            {"100", "101", "102"},
	"model.pretrained":            {"m/a", "m/b", "m/c"},
	"model.sync_bn":               {"true", "false", "true"},
	"model.label_smoothing":       {"0.1", "0.2", "0.3"},
	"data.image_size":             {"32", "64", "96"},
	"data.augment":                {"false", "true", "false"},
	"data.path":                   {"d/a", "d/b", "d/c"},
	"data.global_batch":           {"64", "65", "66"},
	"data.shuffle":                {"false", "true", "false"},
	"data.drop_last":              {"true", "false", "true"},
	"data.accum_steps":            {"2", "3", "4"},
	"data.limit":                  {"1000", "1001", "1002"},
	"data.workers":                {"1", "2", "3"},
	"data.ahead":                  {"1", "3", "4"},
	"data.encoding":               {"p50k_base", "cl100k_base", "o200k_base"},
	"data.val_path":               {"v/a", "v/b", "v/c"},
	"data.val_limit":              {"10", "11", "12"},
	"ddp.bucket_mb":               {"0.0009765625", "1", "26"},
	"ddp.first_bucket_mb":         {"0.5", "2", "3"},
	"ddp.overlap":                 {"false", "true", "false"},
	"ddp.average":                 {"sum", "predivide", "sum"},
	"ddp.hook":                    {"powersgd", "none", "powersgd"},
	"ddp.powersgd_rank":           {"2", "3", "1"},
	"ddp.local_steps":             {"2", "3", "4"},
	"ddp.virtual_ranks":           {"2", "4", "8"},
	"shard.stage":                 {"1", "2", "3"},
	"shard.overlap_gather":        {"true", "false", "true"},
	"optim.name":                  {"adamw", "adam", "adamw"},
	"optim.lr":                    {"0.1", "0.2", "0.3"},
	"optim.momentum":              {"0.1", "0.2", "0.3"},
	"optim.nesterov":              {"true", "false", "true"},
	"optim.beta1":                 {"0.1", "0.2", "0.3"},
	"optim.beta2":                 {"0.1", "0.2", "0.3"},
	"optim.eps":                   {"1e-06", "1e-05", "0.0001"},
	"optim.weight_decay":          {"0.1", "0.2", "0.3"},
	"optim.clip_norm":             {"0.1", "0.2", "0.3"},
	"optim.no_decay":              {"'*.bias'", "'*.bias, vectors'", "vectors"},
	"optim.clip_value":            {"0.1", "0.2", "0.3"},
	"optim.skip_nonfinite":        {"true", "false", "true"},
	"optim.ema_decay":             {"0.9", "0.99", "0.999"},
	"optim.loss_scale":            {"dynamic", `"1024"`, `"0.5"`},
	"checkpoint.dir":              {"ck/a", "ck/b", "/ck"},
	"checkpoint.every":            {"1", "2", "0"},
	"checkpoint.keep":             {"1", "2", "0"},
	"checkpoint.async":            {"false", "true", "false"},
	"checkpoint.sharded":          {"false", "true", "false"},
	"optim.schedule.name":         {"cosine", "constant", "cosine"},
	"optim.schedule.warmup_steps": {"1", "2", "3"},
	"optim.schedule.total_steps":  {"11", "12", "13"},
	"optim.schedule.min_lr":       {"1e-06", "1e-05", "0.0001"},
	"optim.schedule.step_size":    {"1", "2", "3"},
	"optim.schedule.gamma":        {"0.2", "0.3", "0.4"},
	"cpu.blas":                    {"gonum", "libopenblas.so.0", "/lib/libmkl.so"},
	"cpu.threads":                 {"1", "2", "3"},
	"gpu.driver":                  {"/opt/libcuda.so.1", "libcuda.so", "/a"},
	"gpu.nvrtc":                   {"/opt/libnvrtc.so.13", "libnvrtc.so.12", "/b"},
	"gpu.nccl":                    {"/opt/libnccl.so.2", "libnccl.so", "/c"},
	"gpu.nvshmem":                 {"/opt/libnvshmem_host.so.3", "libnvshmem_host.so", "/d"},
	"log.every":                   {"1", "2", "3"},
	"log.losses":                  {"true", "false", "true"},
	"log.trace":                   {"a.json", "b.json", "c.json"},
	"log.trace_steps":             {"[0, 0]", "[1, 2]", "[3, 4]"},
	"log.csv":                     {"true", "false", "true"},
	"log.tensorboard":             {"true", "false", "true"},
	"log.peak_tflops":             {"1", "0.5", "989"},
	"log.progress":                {"bar", "plain", "none"},
}

// unquoted is a sample as an environment variable or flag would have it.
func unquoted(sample string) string { return strings.Trim(sample, `"'`) }

// inFile writes settings as a YAML file. Later ones of a key count.
func inFile(t *testing.T, settings ...[2]string) string {
	t.Helper()
	var b strings.Builder
	seen := map[string]string{}
	for _, s := range settings {
		seen[s[0]] = s[1]
	}
	section := ""
	for _, f := range schema() {
		text, ok := seen[f.key]
		if !ok {
			continue
		}
		for i := range strings.Count(f.key, ".") {
			p := strings.Join(strings.Split(f.key, ".")[:i+1], ".")
			if section != p && !strings.HasPrefix(section, p+".") {
				fmt.Fprintf(&b, "%s%s:\n", strings.Repeat("  ", i), last(p))
				section = p
			}
		}
		fmt.Fprintf(&b, "%s%s: %s\n", indent(f.key), last(f.key), text)
	}
	path := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestPrecedence sets every setting in every combination of file, environment and flag.
func TestPrecedence(t *testing.T) {
	def := Default()
	for _, f := range schema() {
		values, ok := samples[f.key]
		if !ok {
			t.Errorf("%s has no samples: add them", f.key)
			continue
		}
		for combination := range 8 {
			var src Source
			want, origin := format(f.get(&def)), "default"
			base := [][2]string{}
			if f.only.other != "" { // let it have an effect
				base = append(base, [2]string{f.only.other, slices.Concat(f.only.values, []string{"x.json"})[0]})
			}
			if combination&1 != 0 {
				base = append(base, [2]string{f.key, values[0]})
			}
			if f.key == "optim.no_decay" { // or it has no effect
				base = append(base, [2]string{"optim.weight_decay", "0.1"})
			}
			src.File = inFile(t, base...)
			if combination&1 != 0 {
				want, origin = values[0], src.File
			}
			if combination&2 != 0 {
				src.Env = []string{f.env() + "=" + unquoted(values[1])}
				want, origin = values[1], "$"+f.env()
			}
			if combination&4 != 0 {
				src.Set = []string{f.key + "=" + unquoted(values[2])}
				want, origin = values[2], "--set"
			}
			cfg, origins, err := Load(src)
			if err != nil {
				t.Errorf("%s, combination %03b: %v", f.key, combination, err)
				continue
			}
			if got := format(f.get(cfg)); unquoted(got) != unquoted(want) {
				t.Errorf("%s, combination %03b: %s, want %s", f.key, combination, got, want)
			}
			if got := origins.Origin(f.key).String(); got != origin && !strings.HasPrefix(got, origin+":") {
				t.Errorf("%s, combination %03b: from %s, want %s", f.key, combination, got, origin)
			}
		}
	}
	for key := range samples {
		if lookup(key) == nil {
			t.Errorf("there are samples for %s, which is no setting", key)
		}
	}
}

func TestLevelsOverrideSettingBySetting(t *testing.T) {
	cfg, origins, err := Load(Source{
		File: inFile(t, [2]string{"model.hidden", "[1, 2, 3]"}, [2]string{"optim.lr", "0.5"}, [2]string{"run.seed", "5"}),
		Env:  []string{"SYMGRAD_MODEL_HIDDEN=7,8", "SYMGRAD_OPTIM_LR=0.25"},
		Set:  []string{"optim.lr=0.125", "optim.lr=0.0625"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(cfg.Model.Hidden, []int{7, 8}) {
		t.Errorf("hidden %v: a list is replaced as a whole", cfg.Model.Hidden)
	}
	if cfg.Optim.LR != 0.0625 {
		t.Errorf("lr %v: of two flags the last counts", cfg.Optim.LR)
	}
	if cfg.Run.Seed != 5 || cfg.Run.Epochs != Default().Run.Epochs {
		t.Errorf("seed %d, epochs %d: what nobody sets stays", cfg.Run.Seed, cfg.Run.Epochs)
	}
	for key, want := range map[string]Level{"model.hidden": LevelEnv, "optim.lr": LevelFlag, "run.seed": LevelFile, "run.epochs": LevelDefault} {
		if got := origins.Origin(key).Level; got != want {
			t.Errorf("%s is from level %d, want %d", key, got, want)
		}
	}
}

func TestNothingGivenIsTheDefault(t *testing.T) {
	got, origins, err := Load(Source{})
	if err != nil {
		t.Fatal(err)
	}
	if want := Default(); !reflect.DeepEqual(*got, want) {
		t.Errorf("got\n%v\nwant\n%v", got, &want)
	}
	if at := origins.Origin("run.seed"); at.String() != "default" {
		t.Errorf("run.seed is from %v", at)
	}
	if err := got.Validate(); err != nil {
		t.Errorf("the defaults are wrong: %v", err)
	}
}

func TestEnvironmentIsReadStrictly(t *testing.T) {
	for _, tt := range []struct {
		name     string
		env      []string
		reserved []string
		want     []string
	}{
		{"foreign variables", []string{"PATH=/bin", "RANK=1", "symgrad_run_seed=x", "SYMGRADX=1", "SYMGRAD_RUN_SEED", "", "="}, nil, nil},
		{"tests' variables", []string{"SYMGRAD_TEST_RANKS=3", "SYMGRAD_REQUIRE=cuda,cudnn", "SYMGRAD_REQUIRE_SHM=1"}, nil, nil},
		{"reserved", []string{"SYMGRAD_RANK=1"}, []string{"SYMGRAD_RANK"}, nil},
		{"not reserved", []string{"SYMGRAD_JOB=1"}, []string{"SYMGRAD_RANK"}, []string{
			"$SYMGRAD_JOB: unknown setting: symgrad config keys lists all settings; unset it otherwise",
		}},
		{"reserved is not a prefix", []string{"SYMGRAD_RANKS=1"}, []string{"SYMGRAD_RANK"}, []string{
			"$SYMGRAD_RANKS: unknown setting: did you mean SYMGRAD_RANK?",
		}},
		{"empty is unset", []string{"SYMGRAD_RUN_SEED=", "SYMGRAD_FOO="}, nil, nil},
		{"the last counts", []string{"SYMGRAD_RUN_SEED=x", "SYMGRAD_RUN_SEED=3"}, nil, nil},
		{"near misses", []string{"SYMGRAD_RUN_MAXSTEPS=3", "SYMGRAD_OPTIM_SCHEDULE_WARMUP=3", "SYMGRAD_SEED=1", "SYMGRAD_LR=1"}, nil, []string{
			"$SYMGRAD_OPTIM_SCHEDULE_WARMUP: unknown setting: did you mean SYMGRAD_OPTIM_SCHEDULE_WARMUP_STEPS?",
			"$SYMGRAD_LR: unknown setting: did you mean SYMGRAD_OPTIM_LR?",
			"$SYMGRAD_SEED: unknown setting: did you mean SYMGRAD_RUN_SEED?",
			"$SYMGRAD_RUN_MAXSTEPS: unknown setting: did you mean SYMGRAD_RUN_MAX_STEPS?",
		}},
		{"wrong values", []string{"SYMGRAD_RUN_EVAL=1", "SYMGRAD_OPTIM_LR=-1", "SYMGRAD_COMM_BACKEND=gloo"}, nil, []string{
			`$SYMGRAD_RUN_EVAL: run.eval: "1" is not true or false`,
			`$SYMGRAD_OPTIM_LR: optim.lr: -1 is out of range: more than 0`,
			`$SYMGRAD_COMM_BACKEND: comm.backend: unknown "gloo": use auto, shm, mpi, ucx, sim, cuda, nccl or nvshmem`,
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, _, err := Load(Source{Env: tt.env, Reserved: tt.reserved})
			got := texts(t, err, "")
			slices.Sort(got)
			slices.Sort(tt.want)
			if !slices.Equal(got, tt.want) {
				t.Errorf("got\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(tt.want, "\n  "))
			}
		})
	}
}

func TestSetIsReadStrictly(t *testing.T) {
	for _, tt := range []struct {
		set  string
		want string
	}{
		{"run.seed=3", ""},
		{" run.seed = 3", ""},
		{"run.name=a=b", ""},
		{"run.output_dir=", ""},
		{"model.hidden=", ""},
		{"model.hidden=[256,128]", ""},
		{"", `--set: "": want key=value`},
		{"=", `--set: unknown key "": symgrad config keys lists them all`},
		{"run.seed", `--set: "run.seed": want key=value: did you mean run.seed?`},
		{"run.seeds=3", `--set: unknown key "run.seeds": did you mean run.seed?`},
		{"Run.Seed=3", `--set: unknown key "Run.Seed": did you mean run.seed?`},
		{"run=3", `--set: "run" is a section: set one of its keys, such as run.name`},
		{"optim.schedule=cosine", `--set: "optim.schedule" is a section: set one of its keys, such as optim.schedule.name`},
		{"run.seed=", `--set: run.seed: value is missing: want an integer`},
		{"run.seed=1.5", `--set: run.seed: "1.5" is not an integer`},
		{"model.hidden=8,x", `--set: model.hidden: item 2 of the list: "x" is not an integer`},
	} {
		_, _, err := Load(Source{Set: []string{tt.set}})
		if got := strings.Join(texts(t, err, ""), "\n"); got != tt.want {
			t.Errorf("--set %q: %s, want %s", tt.set, got, tt.want)
		}
	}
}

func TestAllProblemsAtOnceInOrderOfPlace(t *testing.T) {
	file := inFile(t, [2]string{"log.every", "0"}, [2]string{"run.seed", "x"}, [2]string{"run.epochs", "-1"}, [2]string{"optim.lr", "0"})
	_, _, err := Load(Source{
		File: file,
		Env:  []string{"SYMGRAD_DDP_BUCKET_MB=big"},
		Set:  []string{"optim.beta1=1", "no.such=1", "data.path="},
	})
	want := "8 problems in the configuration:\n" +
		"  FILE:2:9: run.seed: \"x\" is not an integer\n" +
		"  FILE:3:11: run.epochs: -1 is out of range: at least 0\n" +
		"  FILE:5:7: optim.lr: 0 is out of range: more than 0\n" +
		"  FILE:7:10: log.every: 0 is out of range: at least 1\n" +
		"  $SYMGRAD_DDP_BUCKET_MB: ddp.bucket_mb: \"big\" is not a number\n" +
		"  --set: unknown key \"no.such\": symgrad config keys lists them all\n" +
		"  --set: optim.beta1: 1 is out of range: more than 0 and less than 1\n" +
		"  --set: data.path: is empty: set the folder with the data"
	if err == nil || strings.ReplaceAll(err.Error(), file, "FILE") != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}

func TestHigherLevelCorrectsLowerOne(t *testing.T) {
	file := inFile(t, [2]string{"run.epochs", "-1"})
	if cfg, _, err := Load(Source{File: file, Set: []string{"run.epochs=2"}}); err != nil || cfg.Run.Epochs != 2 {
		t.Errorf("a value out of range that nobody uses: %v, %v", cfg, err)
	}
	file = inFile(t, [2]string{"run.epochs", "two"})
	if _, _, err := Load(Source{File: file, Set: []string{"run.epochs=2"}}); err == nil {
		t.Error("a value of the wrong type is an error even where nobody uses it")
	}
}

func TestEnvironTakesOnlyOurVariables(t *testing.T) {
	t.Setenv("SYMGRAD_RUN_SEED", "9")
	t.Setenv("OTHER_RUN_SEED", "9")
	env := Environ()
	if !slices.Contains(env, "SYMGRAD_RUN_SEED=9") || slices.Contains(env, "OTHER_RUN_SEED=9") {
		t.Errorf("environment %q", env)
	}
	cfg, _, err := Load(Source{Env: []string{"SYMGRAD_RUN_SEED=8"}})
	if err != nil || cfg.Run.Seed != 8 {
		t.Errorf("seed %v, %v: Load looks into the environment of the process", cfg, err)
	}
}

func TestFlagsFillTheSource(t *testing.T) {
	var s Source
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	s.AddFlags(flags)
	if err := flags.Parse([]string{"--set", "model.hidden=1,2", "--config=c.yaml", "--set=run.seed=3", "rest"}); err != nil {
		t.Fatal(err)
	}
	if s.File != "c.yaml" || !slices.Equal(s.Set, []string{"model.hidden=1,2", "run.seed=3"}) {
		t.Errorf("source %+v", s)
	}
}
