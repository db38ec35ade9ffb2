package settings

import (
	"strings"
	"testing"

	"github.com/symgrad/symgrad/config"
	"github.com/symgrad/symgrad/dist/launch"
	"github.com/symgrad/symgrad/machine"
)

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
		{"ddp.hook=powersgd", "no GPU "},
		{"ddp.average=sum", "no GPU "},
		{"ddp.virtual_ranks=2", "no GPU "},
		{"ddp.local_steps=2", "no GPU "},
		{"run.device=cuda", "run.device=cuda: no GPU "},
		{"comm.backend=nvshmem", "comm.backend=nvshmem: no GPU "},
		{"run.precision=bf16", "run.precision=bf16: it is for GPUs"},
	} {
		cfg, _, err := config.Load(config.Source{Set: []string{test.settings}})
		if err != nil {
			t.Fatal(err)
		}
		s, err := SiteOf(cfg, launch.Env{Size: 2, LocalSize: 2})
		refused := strings.HasPrefix(test.want, test.settings+": ") && !strings.HasPrefix(test.settings, "data.")
		text := s.Why
		if err != nil {
			text = err.Error()
		}
		if (err != nil) != refused || s.GPU || !strings.Contains(text, test.want) {
			t.Errorf("%s: on a GPU %t, %s, want %s", test.settings, s.GPU, text, test.want)
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
		if b := Backend(&cfg, test.gpu); b.MaxCTAs != test.want || b.Validate() != nil {
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
		if b := Backend(&cfg, true); b.Engine != want[0] || b.TunePath != want[1] || b.Validate() != nil {
			t.Errorf("%s: engine %q, table %q, %v, want %q", name, b.Engine, b.TunePath, b.Validate(), want)
		}
	}
}

// The settings of products reach the machine by its own names.
func TestMachineIsToldHowToMultiply(t *testing.T) {
	for set, want := range map[string][2]string{
		"cpu.blas=auto": {"", ""}, "cpu.blas=gonum": {"none", ""}, "cpu.blas=/lib/libblas.so": {"/lib/libblas.so", ""},
		"run.precision=fp32": {"", "f32"}, "run.precision=tf32": {"", "tf32"}, "run.precision=bf16": {"", "bf16"}, "run.precision=f16": {"", "f16"},
	} {
		cfg, _, err := config.Load(config.Source{Set: []string{set}})
		if err != nil {
			t.Fatal(err)
		}
		c := Machine(cfg, strings.HasPrefix(set, "run.precision"), "m", 3)
		if c.BLAS != want[0] || c.Compute != want[1] || c.Threads != 3 || c.Validate() != nil {
			t.Errorf("%s: %+v", set, c)
		}
	}
}

// TestMachineIsToldWhatToComputeAgain: the limit has no effect without auto.
func TestMachineIsToldWhatToComputeAgain(t *testing.T) {
	for mode, limit := range map[machine.Recompute]int64{machine.RecomputeNone: 0, machine.RecomputeBlocks: 0, machine.RecomputeAuto: 3 << 20} {
		cfg := config.Default()
		cfg.Run.Recompute, cfg.Run.MemoryMB = string(mode), 3
		if c := Machine(&cfg, false, "m", 1); c.Recompute != mode || c.MemoryBytes != limit || c.Validate() != nil {
			t.Errorf("%s: %q with a limit of %d B, %v", mode, c.Recompute, c.MemoryBytes, c.Validate())
		}
	}
}

func TestBLASFollowsItsSetting(t *testing.T) {
	for _, test := range []struct {
		setting, path    string
		disable, threads bool
	}{
		{"auto", "", false, true},
		{"gonum", "", true, false},
		{"libopenblas.so.0", "libopenblas.so.0", false, true},
	} {
		c := BLAS(config.CPU{BLAS: test.setting}, 3)
		if c.Path != test.path || c.Disable != test.disable || (c.Threads == 3) != test.threads || c.Validate() != nil {
			t.Errorf("%s: %+v", test.setting, c)
		}
	}
}
