package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/symgrad/symgrad/examples/ddp/mnist"
	"github.com/symgrad/symgrad/internal/gpu/cuda/cudatest"
	"github.com/symgrad/symgrad/internal/long"
	"github.com/symgrad/symgrad/train"
)

// images is the folder of MNIST, or of made-up images of its form where it is not.
func images(t *testing.T) string {
	t.Helper()
	const data = "../../data/mnist"
	if err := mnist.Find(data); err != nil {
		t.Logf("made-up images: %v", err)
		return madeUpImages(t, mixed, 28, 6400, 1000)
	}
	return data
}

// Losses that are compared with a relative limit must be large compared to the errors of float32: a
// logit of 10 has an error of 1e-6. Those of the generated images are. Runs on the host that add in
// other orders differ by far less than the limit of 1e-4 for runs on GPUs.
func TestCurvesOfMixedImagesStayTogether(t *testing.T) {
	if !long.Enabled() {
		t.Skip(long.Reason)
	}
	data := madeUpImages(t, mixed, 28, 6400, 1000)
	host := onGPUs("run.device=cpu", "run.max_steps=100")
	one := processes(t, data, append(host, ranks(1))...).summary(t)
	if least := slices.Min(one.Losses); least < 0.2 || len(one.Losses) != 100 {
		t.Errorf("the least of %d losses is %v, want at least 0.2 of 100", len(one.Losses), least)
	}
	for _, how := range [][]string{{ranks(2)}, {ranks(1), "run.machine=tape"}} {
		s := processes(t, data, append(host, how...)...).summary(t)
		if d := apart(t, s.Losses, one.Losses); d > 1e-5 || math.Abs(*s.TestAccuracy-*one.TestAccuracy) > 0.002 {
			t.Errorf("%v: losses differ by %.1e, want at most 1e-5; accuracy %v and %v", how, d, *s.TestAccuracy, *one.TestAccuracy)
		}
	}
}

// onGPUs is the settings of configs/mnist-mlp.yaml for a run of some hundred steps.
func onGPUs(more ...string) []string {
	return append([]string{
		"--config=../../configs/mnist-mlp.yaml", "data.global_batch=128", "model.hidden=512,512", "optim.lr=0.001", "run.max_steps=300",
		"run.device=cuda",
	}, more...)
}

// onOneAndTwo runs a test with one GPU and with two.
func onOneAndTwo(t *testing.T, test func(t *testing.T, n int, data string)) {
	for _, n := range []int{1, 2} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			cudatest.Devices(t, n)
			test(t, n, images(t))
		})
	}
}

// near is how many losses of two curves, from the first on, are within a relative difference of
// limit.
func near(a, b []float64, limit float64) int {
	for i := range min(len(a), len(b)) {
		if d := math.Abs(a[i]-b[i]) / math.Abs(b[i]); !(d <= limit) {
			return i
		}
	}
	return min(len(a), len(b))
}

// TestGPUsLearnWhatTheHostDoes compares the losses of ranks on GPUs with those of one rank on the
// host, with the same global batches. Products of fewer bits change the losses, but not the
// accuracy.
func TestGPUsLearnWhatTheHostDoes(t *testing.T) {
	cudatest.Devices(t, 1)
	data := images(t)
	host := processes(t, data, onGPUs("run.device=cpu", ranks(1))...).summary(t)
	for _, n := range []int{1, 2, 4} {
		for _, test := range []struct {
			precision string
			limit     float64
			steps     int
		}{{"fp32", 1e-4, 100}, {"tf32", 0.02, 20}, {"bf16", 0.1, 20}, {"f16", 0.02, 20}} {
			t.Run(fmt.Sprintf("%d/%s", n, test.precision), func(t *testing.T) {
				cudatest.Many(t, n, 2)
				settings := []string{ranks(n), "run.precision=" + test.precision, "--verify"}
				if test.precision == "f16" {
					settings = append(settings, "optim.loss_scale=dynamic")
				}
				o := processes(t, data, onGPUs(settings...)...)
				s := o.summary(t)
				if same := near(s.Losses, host.Losses, test.limit); same < test.steps || len(s.Losses) != 300 {
					t.Errorf("losses of %d steps are within %v of the host's, want %d:\n%v\n%v", same, test.limit, test.steps,
						s.Losses[:min(same+3, len(s.Losses))], host.Losses[:min(same+3, len(host.Losses))])
				}
				if d := math.Abs(*s.TestAccuracy - *host.TestAccuracy); !(d <= 0.01) || s.TestSamples != host.TestSamples {
					t.Errorf("accuracy %v of %d images, on the host %v", *s.TestAccuracy, s.TestSamples, *host.TestAccuracy)
				}
				if s.Device == "cpu" || s.Backend != "cuda" || s.WorldSize != n || s.Precision != test.precision || s.ExposedCommPercent != nil {
					t.Errorf("%d ranks on %s by %s in %s", s.WorldSize, s.Device, s.Backend, s.Precision)
				}
				if !strings.Contains(o.stdout, "compiled, on "+s.Device) {
					t.Errorf("the GPU is not told of:\n%s", o.stdout)
				}
			})
		}
	}
}

// Sharded optimizer state, narrow gradients and accumulated micro-batches learn on GPUs like one
// rank on the host.
func TestGPUsLearnInOtherWays(t *testing.T) {
	cudatest.Devices(t, 1)
	data := images(t)
	short := "run.max_steps=100"
	host := processes(t, data, onGPUs("run.device=cpu", ranks(1), short)...).summary(t)
	for _, n := range []int{1, 2, 4} {
		for _, test := range []struct {
			set   []string
			limit float64
		}{
			{[]string{"shard.stage=1"}, 1e-4},
			{[]string{"data.accum_steps=2"}, 1e-4},
			{[]string{"shard.stage=1", "data.accum_steps=2"}, 1e-4},
			{[]string{"comm.wire_dtype=bf16"}, 0.02},
			{[]string{"comm.wire_dtype=bf16", "shard.stage=1"}, 0.02},
		} {
			t.Run(fmt.Sprintf("%d/%v", n, test.set), func(t *testing.T) {
				cudatest.Many(t, n, 2)
				s := processes(t, data, onGPUs(append(test.set, ranks(n), short, "--verify")...)...).summary(t)
				if same := near(s.Losses, host.Losses, test.limit); same < 50 || len(s.Losses) != 100 {
					t.Errorf("losses of %d steps are within %v of the host's, want 50:\n%v\n%v", same, test.limit,
						s.Losses[:min(same+3, len(s.Losses))], host.Losses[:min(same+3, len(host.Losses))])
				}
				if d := math.Abs(*s.TestAccuracy - *host.TestAccuracy); !(d <= 0.01) {
					t.Errorf("accuracy %v, on the host %v", *s.TestAccuracy, *host.TestAccuracy)
				}
			})
		}
	}
}

// A gradient that f16 cannot hold ends the run with advice, some steps later and after the last
// step too.
func TestGPUsTellWhatToDoAboutGradientsThatAreNotFinite(t *testing.T) {
	cudatest.Many(t, 2, 2)
	for _, steps := range []int{1, 8} {
		o := processes(t, images(t), onGPUs(ranks(2), fmt.Sprintf("run.max_steps=%d", steps), "comm.wire_dtype=f16", "optim.loss_scale=1e9")...)
		for _, want := range []string{"gradient norm is not finite", "optim.loss_scale=1e9", "comm.wire_dtype to bf16"} {
			if o.code != 1 || !strings.Contains(o.stderr, want) {
				t.Errorf("%d steps: code %d, want 1 and %q in:\n%s", steps, o.code, want, o.stderr)
			}
		}
	}
}

// Losses that are read only where they are shared, and batches that are only queued, change nothing
// that is learned.
func TestGPURunsDoNotDependOnWhatIsRead(t *testing.T) {
	onOneAndTwo(t, func(t *testing.T, n int, data string) {
		short := []string{ranks(n), "run.max_steps=60"}
		all := processes(t, data, onGPUs(short...)...).summary(t)
		few := processes(t, data, onGPUs(append(short, "log.losses=false", "log.every=25", "--verify", "log.trace=t.json", "log.trace_steps=3,4")...)...).summary(t)
		if d := math.Abs(few.FinalLoss-all.FinalLoss) / all.FinalLoss; !(d < 1e-5) || few.Losses != nil {
			t.Errorf("the last loss is %v, and %v where all are read", few.FinalLoss, all.FinalLoss)
		}
		events := timeline(t, few.Trace)
		if len(events) != 2*n {
			t.Errorf("%d steps in the timeline, want 2 of each rank", len(events))
		}
		for key, step := range events {
			if find(t, step, "queue").Dur <= 0 {
				t.Errorf("rank, step %v: %v", key, step)
			}
		}
	})
}

// A convolutional network has kinks, where a last digit decides, so that its losses stay together
// for fewer steps.
func TestGPUsLearnConvolutions(t *testing.T) {
	onOneAndTwo(t, func(t *testing.T, n int, data string) {
		cnn := []string{"--config=../../configs/mnist-cnn.yaml", "model.hidden=120,84", "data.global_batch=128", "run.max_steps=40", "--verify"}
		host := processes(t, data, append(cnn, ranks(1))...).summary(t)
		s := processes(t, data, append(cnn, ranks(n), "run.device=cuda")...).summary(t)
		if same := near(s.Losses, host.Losses, 1e-3); same < 10 {
			t.Errorf("losses of %d steps are those of the host, want 10:\n%v\n%v", same, s.Losses[:12], host.Losses[:12])
		}
	})
}

// The --json file names the GPU and the versions that its times depend on.
func TestStepTimesOfGPUs(t *testing.T) {
	onOneAndTwo(t, func(t *testing.T, n int, data string) {
		for _, how := range [][]string{{"--tune"}, {"--resident"}, {"--resident", "--kept"}} {
			file := filepath.Join(t.TempDir(), "steps.json")
			flags := append(how, ranks(n), "run.max_steps=140", "log.every=140", "log.losses=false", "run.eval=false", "--warmup=20", "--json="+file)
			s := processes(t, data, onGPUs(flags...)...).summary(t)
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var got train.Timing
			if err := json.Unmarshal(text, &got); err != nil {
				t.Fatal(err)
			}
			if got.Steps != 120 || got.Ranks != n || !(got.MedianUS > 0) || !(got.P90US >= got.MedianUS) || got.ExposedCommPercent == nil {
				t.Errorf("%v: %+v", how, got)
			}
			if got.Device == "cpu" || got.Device != s.Device || got.Libraries["driver"] == "" || n > 1 && got.Libraries["nccl"] == "" {
				t.Errorf("%v: on %s with %v", how, got.Device, got.Libraries)
			}
			t.Logf("%v: %.1f us a step, %v", how, got.MedianUS, got.Libraries)
		}
	})
}

// A training that stops on GPUs goes on there, on another number of them and on the host, and the
// other way round. All that the optimizer keeps is on the device, the averages of the weights as
// well.
func TestGPURunsAreTakenUpAgain(t *testing.T) {
	onOneAndTwo(t, func(t *testing.T, n int, data string) {
		how := []string{
			ranks(n), "optim.name=adamw", "optim.weight_decay=0.01", "optim.no_decay=vectors", "optim.clip_norm=1",
			"optim.ema_decay=0.99", "optim.loss_scale=dynamic", "optim.schedule.total_steps=200",
		}
		unbroken := processes(t, data, onGPUs(append(how, "run.max_steps=200")...)...).summary(t)
		onHost, onDevice := t.TempDir(), t.TempDir()
		half := append(how, "run.max_steps=100", "run.eval=false", "checkpoint.every=40")
		processes(t, data, onGPUs(append(half, "checkpoint.dir="+onDevice)...)...).summary(t)
		processes(t, data, onGPUs(append(half, "checkpoint.dir="+onHost, "run.device=cpu")...)...).summary(t)
		for _, way := range []struct {
			from string
			more []string
		}{
			{onDevice, nil},
			{onDevice, []string{ranks(1)}},
			{onDevice, []string{ranks(2), "run.device=cpu"}},
			{onHost, nil},
		} {
			s := processes(t, data, onGPUs(append(append(how, "run.max_steps=200", "run.resume="+way.from), way.more...)...)...).summary(t)
			if same := near(s.Losses, unbroken.Losses, 1e-3); same != 200 || s.ResumedStep != 100 {
				t.Errorf("%v: losses of %d steps are those of an unbroken run, want 200; from step %d", way, same, s.ResumedStep)
			}
			if d := math.Abs(*s.TestAccuracy - *unbroken.TestAccuracy); !(d <= 0.005) {
				t.Errorf("%v: accuracy %v, want %v", way, *s.TestAccuracy, *unbroken.TestAccuracy)
			}
		}
	})
}
