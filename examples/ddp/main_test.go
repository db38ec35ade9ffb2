package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/symgrad/symgrad/config"
	"github.com/symgrad/symgrad/internal/gpu/cuda/cudatest"
	"github.com/symgrad/symgrad/train"
)

// programVar makes the test binary the program: ranks are processes that run it again.
const programVar = "SYMGRAD_TEST_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(programVar) == "1" {
		stdout, err := newKiller(os.Stdout)
		if err != nil {
			panic(err)
		}
		os.Exit(execute(os.Args[1:], stdout, os.Stderr))
	}
	cudatest.Hide()
	goleak.VerifyTestMain(m)
}

// The made-up data: ten classes, each a pattern of its own.
const (
	side         = 8
	trainSamples = 230
	testSamples  = 130
)

// madeUp is a folder with a little made-up data.
func madeUp(t testing.TB) string {
	t.Helper()
	return madeUpImages(t, plain, side, trainSamples, testSamples)
}

// manner is how made-up image i is drawn with the patterns of the classes.
type manner func(patterns [][]byte, i int, noise *rand.Rand) (label int, image []byte)

// plain is a pattern with noise, which is learned in a few steps, to losses of next to nothing.
func plain(patterns [][]byte, i int, noise *rand.Rand) (label int, image []byte) {
	label = i * 7 % 10
	for _, p := range patterns[label] {
		image = append(image, p+byte(noise.IntN(56)))
	}
	return label, image
}

// mixed is three parts of one pattern and one part of another, with noise. Three of four images
// have the label of the first pattern, the fourth has that of the second, at random. So the best
// loss is ln 4 - 3/4 ln 3 = 0.56. Lower losses, of images learned by heart, take some hundred
// steps.
func mixed(patterns [][]byte, i int, noise *rand.Rand) (label int, image []byte) {
	most := i * 7 % 10
	least := (most + 1 + noise.IntN(9)) % 10
	for k, p := range patterns[most] {
		image = append(image, byte((3*int(p)+int(patterns[least][k]))/4+noise.IntN(56)))
	}
	if noise.IntN(4) == 0 {
		return least, image
	}
	return most, image
}

// madeUpImages is a folder with so many made-up images.
func madeUpImages(t testing.TB, draw manner, side, trainSamples, testSamples int) string {
	t.Helper()
	dir := t.TempDir()
	rng := rand.New(rand.NewPCG(1, 2))
	patterns := make([][]byte, 10)
	for c := range patterns {
		patterns[c] = make([]byte, side*side)
		for i := range patterns[c] {
			patterns[c][i] = byte(rng.IntN(200))
		}
	}
	for prefix, n := range map[string]int{"train": trainSamples, "t10k": testSamples} {
		images, labels := []byte{0, 0, 8, 3}, binary.BigEndian.AppendUint32([]byte{0, 0, 8, 1}, uint32(n))
		for _, v := range []int{n, side, side} {
			images = binary.BigEndian.AppendUint32(images, uint32(v))
		}
		noise := rand.New(rand.NewPCG(3, uint64(n)))
		for i := range n {
			label, image := draw(patterns, i, noise)
			labels, images = append(labels, byte(label)), append(images, image...)
		}
		for name, data := range map[string][]byte{"-images-idx3-ubyte": images, "-labels-idx1-ubyte": labels} {
			if err := os.WriteFile(filepath.Join(dir, prefix+name), data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	return dir
}

// outcome is the result of a run of the program.
type outcome struct {
	code           int
	stdout, stderr string
	dir            string // run.output_dir
}

// summary is the run's summary.json.
func (o outcome) summary(t testing.TB) train.Summary {
	t.Helper()
	if o.code != 0 {
		t.Fatalf("exit code %d:\n%s", o.code, o.stderr)
	}
	text, err := os.ReadFile(filepath.Join(o.dir, config.SummaryName))
	if err != nil {
		t.Fatal(err)
	}
	var s train.Summary
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		t.Fatal(err)
	}
	return s
}

// settings are those of a small run, on the host wherever the tests run, and without a library of
// the machine's. Its ranks have the time that they need to end by themselves.
func settings(dir, data string, more ...string) []string {
	args := []string{"--set", "run.output_dir=" + dir, "--set", "data.path=" + data}
	for _, s := range append([]string{
		"run.epochs=0", "run.max_steps=5", "data.global_batch=24", "model.hidden=16,12", "optim.lr=0.003",
		"cpu.blas=gonum", "log.losses=true", "comm.timeout_step=60s", "launch.grace=60s", "run.device=cpu",
	}, more...) {
		if strings.HasPrefix(s, "--") {
			args = append(args, s)
		} else {
			args = append(args, "--set", s)
		}
	}
	return args
}

// simulated runs the program with its ranks as goroutines of this process.
func simulated(t testing.TB, data string, more ...string) outcome {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "run")
	var stdout, stderr bytes.Buffer
	code := execute(settings(dir, data, append([]string{"comm.backend=sim"}, more...)...), &stdout, &stderr)
	return outcome{code, stdout.String(), stderr.String(), dir}
}

// process is the program as a process of its own.
type process struct {
	*exec.Cmd
	stdout, stderr bytes.Buffer
	dir            string
}

// prepared is a process that has not been started. A hang ends it, and the test with it.
func prepared(t testing.TB, args ...string) *process {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{Cmd: exec.CommandContext(t.Context(), program, args...)}
	p.Env = append(os.Environ(), programVar+"=1")
	p.Stdout, p.Stderr = &p.stdout, &p.stderr
	p.WaitDelay = 10 * time.Second
	return p
}

// outcome waits for the end.
func (p *process) outcome(t testing.TB) outcome {
	t.Helper()
	err := p.Wait()
	if exit := (&exec.ExitError{}); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return outcome{p.ProcessState.ExitCode(), p.stdout.String(), p.stderr.String(), p.dir}
}

// processes runs the program with its ranks as processes.
func processes(t testing.TB, data string, more ...string) outcome {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "run")
	p := prepared(t, settings(dir, data, more...)...)
	p.dir = dir
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	return p.outcome(t)
}

// ranks is the setting for so many.
func ranks(n int) string { return "launch.nproc_per_node=" + string(rune('0'+n)) }

// apart is the largest relative difference between two curves.
func apart(t testing.TB, a, b []float64) float64 {
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
