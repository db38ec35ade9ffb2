package train

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/symgrad/symgrad/config"
	"github.com/symgrad/symgrad/dist/launch"
)

// summarized runs the program and reads its summary.
func summarized(t *testing.T, more ...string) Summary {
	t.Helper()
	dir := t.TempDir()
	var out, errs bytes.Buffer
	if code := program.Execute(smallRun(dir, more...), &out, &errs); code != 0 {
		t.Fatalf("%v: code %d: %s", more, code, errs.String())
	}
	text, err := os.ReadFile(filepath.Join(dir, SummaryName))
	if err != nil {
		t.Fatal(err)
	}
	var s Summary
	if err := json.Unmarshal(text, &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// Both machines learn the same, with one rank and several, with and without parts of batches, and
// give equal answers at the end.
func TestMachinesLearnTheSame(t *testing.T) {
	for _, how := range [][]string{
		{"model.name=mlp", "launch.nproc_per_node=1"},
		{"model.name=mlp", "launch.nproc_per_node=2", "optim.clip_norm=1"},
		{"model.name=mlp", "launch.nproc_per_node=2", "data.accum_steps=3", "data.global_batch=25"},
		{"model.name=mlp", "launch.nproc_per_node=2", "ddp.overlap=false", "ddp.bucket_mb=0.001"},
		{"model.name=cnn", "launch.nproc_per_node=1", "model.channels=3,4"},
		{"model.name=cnn", "launch.nproc_per_node=2", "model.channels=3,4"},
	} {
		how = append(how, "run.max_steps=20", "--verify")
		c, w := summarized(t, append(how, "run.machine=compiled")...), summarized(t, append(how, "run.machine=tape")...)
		if c.Machine != "compiled" || w.Machine != "tape" || c.Device != "cpu" || c.ConfigHash == w.ConfigHash {
			t.Errorf("%v: machines %s and %s on %s", how, c.Machine, w.Machine, c.Device)
		}
		if len(c.Losses) != 20 || len(w.Losses) != 20 {
			t.Fatalf("%v: %d and %d losses", how, len(c.Losses), len(w.Losses))
		}
		for i := range w.Losses {
			if d := math.Abs(c.Losses[i]-w.Losses[i]) / w.Losses[i]; !(d < 1e-5) {
				t.Errorf("%v: the loss of step %d is %v, by the tape machine %v", how, i, c.Losses[i], w.Losses[i])
				break
			}
		}
		if d := c.TestCorrect - w.TestCorrect; d < -1 || d > 1 || c.TestSamples != testSamples {
			t.Errorf("%v: %d of %d right, by the tape machine %d", how, c.TestCorrect, c.TestSamples, w.TestCorrect)
		}
	}
}

// The run of verify changes no state.
func TestVerifyChangesNothing(t *testing.T) {
	for _, how := range [][]string{
		{"run.machine=compiled"},
		{"run.machine=tape"},
		{"comm.wire_dtype=bf16", "comm.error_feedback=true"}, // which keeps something of every gradient
		{"comm.wire_dtype=bf16", "comm.error_feedback=true", "shard.stage=2"},
	} {
		how = append(how, "launch.nproc_per_node=2")
		plain, verified := summarized(t, how...), summarized(t, append(how, "--verify")...)
		if plain.ParamsSHA256 != verified.ParamsSHA256 || verified.VerifyMaxRelDiff == nil {
			t.Errorf("%v: parameters %.8s, with --verify %.8s", how, plain.ParamsSHA256, verified.ParamsSHA256)
		}
	}
}

// The device follows from the settings, and the reason is printed.
func TestRunComputesWhereItIsTold(t *testing.T) {
	t.Setenv("CUDA_VISIBLE_DEVICES", "-1")
	for _, test := range []struct{ settings, want string }{
		{"run.device=cpu", "set by run.device"},
		{"run.device=auto", "no GPU "},
		{"run.machine=tape", "run.machine=tape runs on the host"},
		{"comm.backend=shm", "comm.backend=shm is between ranks of the host"},
		{"data.accum_steps=2", "no GPU "},
		{"shard.stage=1", "no GPU "},
		{"shard.stage=3", "no GPU "},
		{"comm.wire_dtype=bf16", "no GPU "},
		{"ddp.hook=powersgd", "ddp.hook=powersgd works in"},
		{"ddp.average=sum", "ddp.average=sum works in"},
		{"ddp.virtual_ranks=2", "ddp.virtual_ranks=2 works in"},
		{"ddp.local_steps=2", "ddp.local_steps=2 works in"},
		{"run.device=cuda", "run.device=cuda: no GPU "},
		{"comm.backend=nvshmem", "comm.backend=nvshmem: no GPU "},
		{"run.precision=bf16", "run.precision=bf16: it is for GPUs"},
	} {
		cfg, _, err := config.Load(config.Source{Set: []string{test.settings}})
		if err != nil {
			t.Fatal(err)
		}
		s, err := siteOf(cfg, launch.Env{Size: 2, LocalSize: 2})
		refused := strings.HasPrefix(test.want, test.settings+": ") && !strings.HasPrefix(test.settings, "data.")
		text := s.why
		if err != nil {
			text = err.Error()
		}
		if (err != nil) != refused || s.gpu || !strings.Contains(text, test.want) {
			t.Errorf("%s: on a GPU %t, %s, want %s", test.settings, s.gpu, text, test.want)
		}
	}
}

// A setting without an effect does not keep a run off GPUs: for example error feedback in a file,
// if --set replaces its bf16 by f32.
func TestFeedbackOfNothingDoesNotKeepARunOnTheHost(t *testing.T) {
	for wire, want := range map[string]string{"f32": "", "bf16": "comm.error_feedback=true works in"} {
		cfg := config.Default()
		cfg.Comm.WireDType, cfg.Comm.ErrorFeedback = wire, true
		if got := hostOnly(&cfg); !strings.HasPrefix(got, want) || (got == "") != (want == "") {
			t.Errorf("%s: %q, want %q", wire, got, want)
		}
	}
}

// The bound on blocks reaches the backends that have such a setting.
func TestBackendIsToldHowManyBlocks(t *testing.T) {
	for _, test := range []struct {
		backend string
		gpu     bool
		want    int
	}{{"auto", true, 32}, {"cuda", true, 32}, {"nccl", true, 32}, {"nvshmem", true, 0}, {"auto", false, 0}, {"shm", false, 0}} {
		cfg := config.Default()
		cfg.Comm.Backend, cfg.Comm.MaxCTAs = test.backend, 32
		j := &job{options: options{cfg: &cfg}, site: site{gpu: test.gpu}}
		if b := j.backendConfig(); b.MaxCTAs != test.want || b.Validate() != nil {
			t.Errorf("%s, on a GPU %t: at most %d blocks, %v, want %d", test.backend, test.gpu, b.MaxCTAs, b.Validate(), test.want)
		}
	}
}

// The same holds for engine and table, except with auto, where they have no effect: config show
// says so, and the hash omits them.
func TestBackendIsToldHowToChoose(t *testing.T) {
	for name, want := range map[string][2]string{"cuda": {"nccl", "t.json"}, "nccl": {"nccl", "t.json"}, "auto": {"", ""}} {
		cfg := config.Default()
		cfg.Comm.Backend, cfg.Comm.Engine, cfg.Comm.Tune = name, "nccl", "t.json"
		j := &job{options: options{cfg: &cfg}, site: site{gpu: true}}
		if b := j.backendConfig(); b.Engine != want[0] || b.TunePath != want[1] || b.Validate() != nil {
			t.Errorf("%s: engine %q, table %q, %v, want %q", name, b.Engine, b.TunePath, b.Validate(), want)
		}
	}
}

// The settings of products reach the machine by its own names.
func TestMachineIsToldHowToMultiply(t *testing.T) {
	for set, want := range map[string][2]string{
		"cpu.blas=auto": {"", ""}, "cpu.blas=gonum": {"none", ""}, "cpu.blas=/lib/libblas.so": {"/lib/libblas.so", ""},
		"run.precision=fp32": {"", "f32"}, "run.precision=tf32": {"", "tf32"}, "run.precision=bf16": {"", "bf16"},
	} {
		cfg, _, err := config.Load(config.Source{Set: []string{set}})
		if err != nil {
			t.Fatal(err)
		}
		j := &job{options: options{cfg: cfg}, threads: 3, site: site{gpu: strings.HasPrefix(set, "run.precision")}}
		c := j.machineConfig("m")
		if c.BLAS != want[0] || c.Compute != want[1] || c.Threads != 3 || c.Validate() != nil {
			t.Errorf("%s: %+v", set, c)
		}
	}
}
