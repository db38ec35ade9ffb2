package main

import (
	"bytes"
	"errors"
	"fmt"
	"image"
	"image/png"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/symgrad/symgrad/checkpoint"
	"github.com/symgrad/symgrad/config"
	"github.com/symgrad/symgrad/examples/internal/ranktest"
	"github.com/symgrad/symgrad/internal/gpu/cuda/cudatest"
	"github.com/symgrad/symgrad/train"
)

func TestMain(m *testing.M) { ranktest.Main(m, main) }

// cifar writes made-up files of CIFAR-10 and returns their folder: each class is a pattern, with
// noise.
func cifar(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for file, n := range map[string]int{"data_batch_1.bin": 64, "data_batch_2.bin": 32, "test_batch.bin": 50} {
		var all []byte
		for i := range n {
			class := i % 10
			pattern, noise := rand.New(rand.NewPCG(1, uint64(class))), rand.New(rand.NewPCG(uint64(n), uint64(i)))
			all = append(all, byte(class))
			for range 3 * 8 * 8 {
				mean := 60 + 130*pattern.Float64()
				for range 16 {
					all = append(all, byte(mean+40*noise.Float64()))
				}
			}
		}
		if err := os.WriteFile(filepath.Join(dir, file), all, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// small is the flags of a run that takes seconds: the shipped settings with a narrow network.
func small(dir, images string, more ...string) []string {
	return append([]string{
		"--config=../../configs/resnet18-cifar10.yaml", "--set=data.path=" + images, "--set=run.output_dir=" + dir, "--set=checkpoint.dir=",
		"--set=model.width=2", "--set=data.global_batch=16", "--set=run.epochs=0", "--set=run.max_steps=24", "--set=optim.lr=0.05",
		"--set=optim.schedule.warmup_steps=4", "--set=log.losses=true", "--set=cpu.blas=gonum", "--set=cpu.threads=1", "--set=run.device=cpu", "--set=comm.backend=sim", "--set=run.eval_every=1000",
	}, more...)
}

// summary reads the summary of a run.
func summary(t *testing.T, dir string) train.Summary {
	t.Helper()
	return ranktest.Summary[train.Summary](t, dir)
}

// ranks is the flag for so many.
func ranks(n int) string { return ranktest.Ranks(n) }

// learned is the summary of a run in a new folder.
func learned(t *testing.T, images string, more ...string) train.Summary {
	t.Helper()
	dir := t.TempDir()
	ranktest.Process(t, small(dir, images, more...)...).Want(t, 0)
	return summary(t, dir)
}

// The loss falls, and the test set is answered with the running statistics, also if it was
// evaluated before.
func TestLossFalls(t *testing.T) {
	s := learned(t, cifar(t), "--set=data.augment=false", "--set=run.max_steps=36", "--set=model.width=4", "--set=run.eval_every=15", "--set=data.val_limit=45")
	first, last := s.Losses[0], s.Losses[len(s.Losses)-1]
	if !(first > 2 && last < 1) || *s.TestAccuracy < 0.7 || *s.TestTop5Accuracy < *s.TestAccuracy || *s.TestLoss > 1.5 || s.TestSamples != 45 {
		t.Errorf("losses %v, accuracy %v, top 5 %v of %d", s.Losses, *s.TestAccuracy, *s.TestTop5Accuracy, s.TestSamples)
	}
}

// Ranks that normalize together learn what one rank learns, also with batches that ranks share
// unequally, and with batches in parts. The bound is on roundings, which grow at rectifiers.
func TestRanksAgree(t *testing.T) {
	images := cifar(t)
	how := []string{
		"--set=model.sync_bn=true", "--set=run.max_steps=6", "--set=data.drop_last=false", "--set=data.global_batch=20", "--set=optim.lr=0.01",
		"--set=optim.schedule.warmup_steps=0", "--set=run.eval=false",
	}
	one := learned(t, images, how...)
	if len(one.Losses) != 6 {
		t.Fatalf("%d losses", len(one.Losses))
	}
	three := learned(t, images, append(how, ranks(3))...)
	for i, want := range one.Losses {
		if d := math.Abs(three.Losses[i] - want); !(d < 1e-3*want) {
			t.Errorf("step %d: loss %v of three ranks, of one %v", i, three.Losses[i], want)
		}
	}
}

// A run that stops and resumes has the bits of one that did not, with crops and flips.
func TestResumedRunsHaveTheSameBits(t *testing.T) {
	images := cifar(t)
	want := learned(t, images, ranks(2), "--set=run.max_steps=8")
	saved := "--set=checkpoint.dir=" + t.TempDir()
	learned(t, images, ranks(2), saved, "--set=run.max_steps=3", "--set=optim.schedule.total_steps=8")
	got := learned(t, images, ranks(2), saved, "--set=run.max_steps=8", "--set=optim.schedule.total_steps=8")
	if got.ResumedStep != 3 || got.ParamsSHA256 != want.ParamsSHA256 || *got.TestAccuracy != *want.TestAccuracy {
		t.Errorf("from step %d: losses %v, want %v", got.ResumedStep, got.Losses, want.Losses)
	}
}

// The merged checkpoint of a run is where another run starts, with its accuracy.
func TestWeightsAreExchanged(t *testing.T) {
	images, dir := cifar(t), t.TempDir()
	from := learned(t, images, "--set=checkpoint.dir="+dir, "--set=run.max_steps=10")
	c, err := checkpoint.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "resnet.safetensors")
	n, _, err := c.Merge(file)
	if err != nil || n != 62+2*20 {
		t.Fatalf("%d tensors, %v", n, err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	still := []string{"--set=model.pretrained=" + file, "--set=run.max_steps=1", "--set=optim.lr=1e-30"}
	to := learned(t, images, still...)
	if to.ParamsSHA256 != from.ParamsSHA256 {
		t.Error("the weights differ")
	}
	for want, more := range map[string]string{
		"tensor conv1.weight has shape [2 3 3 3], in the model (8, 3, 3, 3)": "--set=model.width=8",
		"has no tensor layer1.2.conv1.weight: it is of another network":      "--set=model.name=resnet34",
	} {
		ranktest.Execute(execute, small(t.TempDir(), images, append(still, more)...)...).Want(t, 1, "model.pretrained: "+file, want)
	}
	w, err := readWeights(file)
	if err != nil {
		t.Fatal(err)
	}
	cfg := config.Default()
	cfg.Model.Name, cfg.Model.Width, cfg.Data.Path, cfg.Data.DropLast = "resnet18", 2, images, true
	cfg.Data.GlobalBatch = 8
	p, err := newProblem(&cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer p.pictures.Close()
	w.values["layer5.weight"], p.start = nil, w
	if _, err := p.New(8, nil); err == nil || !strings.Contains(err.Error(), "has a tensor layer5.weight that the model lacks") {
		t.Errorf("a further tensor: %v", err)
	}
}

// GPUs learn what one rank on the host learns, and test with the same running statistics. The first
// steps are compared, before rectifiers enlarge roundings.
func TestGPUsLearnWhatTheHostDoes(t *testing.T) {
	for _, n := range []int{1, 2} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			cudatest.Devices(t, n)
			images := cifar(t)
			how := []string{"--set=model.sync_bn=" + fmt.Sprint(n > 1), "--set=run.max_steps=5", "--set=optim.lr=0.01", "--set=optim.schedule.warmup_steps=0"}
			host := learned(t, images, how...)
			device := []string{ranks(n), "--set=run.device=cuda", "--set=comm.backend=auto"}
			gpu := learned(t, images, append(how, device...)...)
			for i, want := range host.Losses {
				if d := math.Abs(gpu.Losses[i] - want); !(d < 1e-2*want) {
					t.Errorf("the loss of step %d is %v, on the host %v", i, gpu.Losses[i], want)
				}
			}
			long := []string{"--set=model.sync_bn=" + fmt.Sprint(n > 1), "--set=run.max_steps=36", "--set=data.augment=false", "--set=model.width=4"}
			saved := "--set=checkpoint.dir=" + t.TempDir()
			whole := learned(t, images, slices.Concat(long, device)...)
			learned(t, images, slices.Concat(long, device, []string{saved, "--set=run.max_steps=20", "--set=optim.schedule.total_steps=36"})...)
			parts := learned(t, images, slices.Concat(long, device, []string{saved, "--set=optim.schedule.total_steps=36"})...)
			if *whole.TestAccuracy < 0.7 || parts.ResumedStep != 20 || math.Abs(*parts.TestAccuracy-*whole.TestAccuracy) > 0.1 {
				t.Errorf("accuracy %v, resumed from step %d %v", *whole.TestAccuracy, parts.ResumedStep, *parts.TestAccuracy)
			}
		})
	}
}

// pictureFolder writes made-up images in folders of classes.
func pictureFolder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for part, n := range map[string]int{"train": 8, "val": 3} {
		for class, tone := range map[string]uint8{"dark": 40, "light": 200} {
			if err := os.MkdirAll(filepath.Join(dir, part, class), 0o700); err != nil {
				t.Fatal(err)
			}
			for i := range n {
				m := image.NewGray(image.Rect(0, 0, 40+i, 36))
				noise := rand.New(rand.NewPCG(uint64(n), uint64(i)))
				for k := range m.Pix {
					m.Pix[k] = tone + uint8(noise.IntN(50))
				}
				var b bytes.Buffer
				if err := errors.Join(png.Encode(&b, m), os.WriteFile(filepath.Join(dir, part, class, fmt.Sprintf("%d.png", i)), b.Bytes(), 0o600)); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	return dir
}

// A ResNet-50 with a large stem learns a folder of images.
func TestFolderOfImages(t *testing.T) {
	s := learned(t, pictureFolder(t), "--set=model.name=resnet50", "--set=data.image_size=32", "--set=data.global_batch=8", "--set=model.width=2",
		"--set=run.max_steps=16", "--set=model.label_smoothing=0.1", "--set=optim.schedule.warmup_steps=0")
	if *s.TestAccuracy < 0.8 || *s.TestTop5Accuracy != 1 || s.TestSamples != 6 {
		t.Errorf("losses %v, accuracy %v of %d", s.Losses, *s.TestAccuracy, s.TestSamples)
	}
}

func TestBadSettingsAreNamed(t *testing.T) {
	images := cifar(t)
	for _, c := range []struct {
		more []string
		code int
		want string
	}{
		{[]string{"--set=data.drop_last=false"}, 0, ""}, // 96 images are 6 batches
		{[]string{"--set=data.drop_last=false", "--set=data.global_batch=20"}, 2, "data.drop_last=false: the last batch of an epoch has 16 of 20 images"},
		{[]string{"--set=data.global_batch=97"}, 2, "data.global_batch=97: there are only 96 training images"},
		{[]string{ranks(3)}, 1, "a rank has 5 images for a batch of 6, and normalizes over whole batches only"},
		{[]string{"--set=data.image_size=64"}, 2, "data.image_size=64: images of CIFAR have 32"},
		{[]string{"--set=run.machine=tape"}, 2, "run.machine=tape: a batch normalization"},
		{[]string{"--set=model.name=cnn"}, 2, "model.name"},
		{[]string{"--set=model.label_smoothing=1"}, 2, "model.label_smoothing: 1 is out of range"},
		{[]string{"--set=data.path=/none"}, 1, "set data.path to a folder with the binary files of CIFAR-10 or CIFAR-100, or with train/CLASS"},
		{[]string{"--set=data.path=/none", "--set=data.image_size=224"}, 1, "set data.path to a folder with the binary files of CIFAR-10"},
		{[]string{"--set=model.pretrained=/none"}, 1, "model.pretrained: "},
	} {
		o := ranktest.Execute(execute, small(t.TempDir(), images, append([]string{"--set=run.max_steps=1", "--set=run.eval=false", "--set=optim.schedule.warmup_steps=0"}, c.more...)...)...)
		o.Want(t, c.code, c.want)
	}
}

func TestPlaceCountsLikelierClasses(t *testing.T) {
	nan := float32(math.NaN())
	for _, c := range []struct {
		scores []float32
		class  int
		want   int
	}{{[]float32{1, 3, 2}, 1, 0}, {[]float32{1, 3, 2}, 0, 2}, {[]float32{2, 2, 2}, 1, 1}, {[]float32{2, nan, 1}, 0, 3}} {
		if got := place(c.scores, c.class); got != c.want {
			t.Errorf("class %d of %v is at %d, want %d", c.class, c.scores, got, c.want)
		}
	}
}
