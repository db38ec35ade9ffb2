package metrics

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/symgrad/symgrad/dist"
)

// killed is the variable that makes this program write records to a folder until it kills itself.
const killed = "METRICS_TEST_KILLED"

func TestMain(m *testing.M) {
	if dir := os.Getenv(killed); dir != "" {
		writeUntilKilled(dir)
	}
	os.Exit(m.Run())
}

func writeUntilKilled(dir string) {
	w, err := Open(dir, Config{Every: 5, CSV: true, TensorBoard: true})
	for step := 1; err == nil; step++ {
		if err = w.Write(step, Values{Loss: 1 / float64(step)}); step == 23 {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// open opens a writer that the test closes.
func open(t testing.TB, dir string, c Config) *Writer {
	t.Helper()
	w, err := Open(dir, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

func write(t testing.TB, w *Writer, step int, v Values) {
	t.Helper()
	if err := w.Write(step, v); err != nil {
		t.Fatal(err)
	}
}

func history(t testing.TB, dir string) *History {
	t.Helper()
	h, err := Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestRecordsAreReadAsTheyWereWritten(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "run")
	w := open(t, dir, Config{})
	v := Values{Loss: 0.30000000000000004, "own/name": -3e-300, Samples: 64}
	write(t, w, 1, v)
	v[Loss], v[Samples] = math.NaN(), 128 // the writer keeps no reference
	delete(v, "own/name")
	write(t, w, 2, v)
	write(t, w, 2, Values{ValLoss: math.Inf(1)})
	h := history(t, dir)
	if want := []int{1, 2, 2}; !slices.Equal(h.Steps, want) || !slices.IsSorted(h.Seconds) {
		t.Errorf("steps %v, want %v, at %v", h.Steps, want, h.Seconds)
	}
	if got, want := h.Names(), []string{Loss, "own/name", Samples, SamplesPerSecond, ValLoss}; !slices.Equal(got, want) {
		t.Errorf("names %v, want %v", got, want)
	}
	for name, want := range map[string]string{
		Loss: "[1 2] [0.30000000000000004 NaN]", "own/name": "[1] [-3e-300]", Samples: "[1 2] [64 128]", ValLoss: "[2] [NaN]",
	} {
		if x, y, err := h.Points(name, Step); fmt.Sprint(x, " ", y) != want || err != nil {
			t.Errorf("%s: %v %v, %v, want %s", name, x, y, err, want)
		}
	}
	if x, _, err := h.Points(ValLoss, Samples); !slices.Equal(x, []float64{128}) || err != nil {
		t.Errorf("an evaluation after %v samples, %v, want those of the record before it", x, err)
	}
	if y, ok := h.Value(Samples, 2); y != 128 || !ok {
		t.Errorf("samples of step 2: %v, %v", y, ok)
	}
	if _, ok := h.Value("own/name", 2); ok {
		t.Error("step 2 has a metric of step 1")
	}
}

// A process that kills itself leaves all flushed lines, and no part of others.
func TestKilledProcessLeavesWholeLines(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), killed+"="+dir)
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Fatalf("%v: %s", err, out)
	}
	if h := history(t, dir); len(h.Steps) != 20 || h.Steps[19] != 20 {
		t.Errorf("steps %v, want 1 to 20: records are flushed in fives", h.Steps)
	}
	if text := file(t, dir, CSVName); strings.Count(text, "\n") != 21 || !strings.HasSuffix(text, "\n") {
		t.Errorf("csv: %s", text)
	}
	if got := scalars(t, filepath.Join(dir, EventsFolder)); len(got) != 20 {
		t.Errorf("%d events, want 20", len(got))
	}
}

func file(t testing.TB, dir, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// A run that resumes after step 2 drops later records, also a last line without end, and counts
// seconds and samples on.
func TestResumedRunContinuesTheFile(t *testing.T) {
	dir := t.TempDir()
	w := open(t, dir, Config{})
	for step := 1; step <= 4; step++ {
		write(t, w, step, Values{Loss: float64(step), Samples: float64(10 * step), Seconds: float64(100 * step)})
	}
	if err := errors.Join(w.Close(), w.Close()); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, FileName)
	whole := file(t, dir, FileName)
	for _, tail := range []string{"", `{"step":5,"ti`, "{\"step\":3,\"seconds\":1}\nnothing that counts\n"} {
		if tail != "" && !strings.HasPrefix(tail, `{"step":5`) { // broken lines after the last one that stays
			whole = strings.Join(strings.SplitAfter(whole, "\n")[:2], "")
		}
		if err := os.WriteFile(path, []byte(whole+tail), 0o600); err != nil {
			t.Fatal(err)
		}
		w := open(t, dir, Config{Resumed: 2})
		write(t, w, 3, Values{Loss: 30, Samples: 30})
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		h := history(t, dir)
		if _, y, err := h.Points(Loss, Step); !slices.Equal(y, []float64{1, 2, 30}) || err != nil {
			t.Errorf("losses %v, %v", y, err)
		}
		if s := h.Seconds[2]; s < 200 || s > 260 {
			t.Errorf("the run continues after 200 s at %v s", s)
		}
		if _, y, _ := h.Points(SamplesPerSecond, Step); len(y) != 3 {
			t.Errorf("rates %v", y)
		}
	}
	if err := open(t, dir, Config{}).Close(); err != nil || file(t, dir, FileName) != "" {
		t.Errorf("a new run leaves the records of the old one: %v", err)
	}
	if h, err := Read(dir); err != nil || len(h.Steps) != 0 {
		t.Errorf("%v, %v", h, err)
	}
	none := t.TempDir()
	write(t, open(t, none, Config{Resumed: 100}), 101, Values{Loss: 1, Samples: 10})
	if h := history(t, none); len(h.Steps) != 1 || h.Has(SamplesPerSecond) {
		t.Errorf("after unknown samples: steps %v, metrics %v", h.Steps, h.Names())
	}
}

func TestRatesFollowFromSamples(t *testing.T) {
	dir := t.TempDir()
	w := open(t, dir, Config{TokensPerSample: 8, FLOPPerSample: 2e9, PeakFLOPS: 1e12})
	write(t, w, 10, Values{Samples: 100, Seconds: 2})
	write(t, w, 15, Values{Loss: 1, Seconds: 3})
	write(t, w, 20, Values{Samples: 400, Seconds: 5})
	write(t, w, 30, Values{Samples: 500, Seconds: 6, SamplesPerSecond: 25, TokensPerSecond: 1})
	write(t, w, 30, Values{Samples: 500, Seconds: 6})
	h := history(t, dir)
	for name, want := range map[string][]float64{
		SamplesPerSecond: {50, 100, 25}, TokensPerSecond: {400, 800, 1}, MFUPercent: {10, 20, 5},
	} {
		if x, y, err := h.Points(name, Step); !slices.Equal(y, want) || !slices.Equal(x, []float64{10, 20, 30}) || err != nil {
			t.Errorf("%s: %v at %v, %v, want %v", name, y, x, err, want)
		}
	}
}

func TestRatesMayBeTheProgramsOwn(t *testing.T) {
	dir := t.TempDir()
	w := open(t, dir, Config{TokensPerSample: 8, NoRates: true})
	write(t, w, 1, Values{Samples: 100, Seconds: 2})
	write(t, w, 2, Values{Samples: 200, Seconds: 3, SamplesPerSecond: 5})
	h := history(t, dir)
	for name, want := range map[string]float64{SamplesPerSecond: 5, TokensPerSecond: 40} {
		if _, y, err := h.Points(name, Step); !slices.Equal(y, []float64{want}) || err != nil {
			t.Errorf("%s: %v, %v", name, y, err)
		}
	}
}

func TestTableGetsAColumnForEachMetric(t *testing.T) {
	dir := t.TempDir()
	w := open(t, dir, Config{CSV: true, Every: 2})
	write(t, w, 1, Values{Loss: 1, Seconds: 1})
	write(t, w, 2, Values{Loss: math.NaN(), Seconds: 2, LearningRate: 0.5})
	write(t, w, 3, Values{LearningRate: 0.25, Seconds: 3})
	write(t, w, 3, Values{Loss: 3, Seconds: 3.5})
	times := make([]any, 0, 4)
	for _, at := range history(t, dir).times {
		times = append(times, fmt.Sprintf("%.3f", at))
	}
	want := fmt.Sprintf("step,time,seconds,loss,learning_rate\n1,%s,1,1,\n2,%s,2,NaN,0.5\n3,%s,3,,0.25\n3,%s,3.5,3,\n", times...)
	if got := file(t, dir, CSVName); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	write(t, open(t, dir, Config{CSV: true, Resumed: 2}), 3, Values{Loss: 2, Seconds: 4})
	text := file(t, dir, CSVName)
	lines := strings.Split(strings.TrimSpace(text), "\n")
	if len(lines) != 4 || !strings.HasPrefix(want, strings.Join(lines[:3], "\n")) || !strings.HasSuffix(lines[3], ",6,2,") {
		t.Errorf("after resuming\n%s", text)
	}
}

func TestMistakesOfAWriterAreNamed(t *testing.T) {
	for want, c := range map[string]Config{
		"Resumed": {Resumed: -1}, "Every": {Every: -1}, "TokensPerSample": {TokensPerSample: -1},
		"FLOPPerSample": {FLOPPerSample: math.NaN()}, "PeakFLOPS": {PeakFLOPS: math.Inf(1)},
	} {
		if _, err := Open(t.TempDir(), c); !errors.Is(err, dist.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	w := open(t, t.TempDir(), Config{})
	write(t, w, 5, Values{Loss: 1})
	for want, err := range map[string]error{
		"step 4 after step 5": w.Write(4, Values{Loss: 1}),
		`"step" is a field`:   w.Write(6, Values{Step: 1}),
		`"time" is a field`:   w.Write(6, Values{clock: 1}),
		`name "a b"`:          w.Write(6, Values{"a b": 1}),
		"a name of 0 bytes":   w.Write(6, Values{"": 1}),
		`name "ünder"`:        w.Write(6, Values{"ünder": 1}),
	} {
		if !errors.Is(err, dist.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	if err := errors.Join(w.Write(6, nil)); !errors.Is(err, dist.ErrClosed) {
		t.Error(err)
	}
	if err := w.Flush(); !errors.Is(err, dist.ErrClosed) {
		t.Error(err)
	}
	under := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(under, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(filepath.Join(under, "run"), Config{}); !errors.Is(err, syscall.ENOTDIR) {
		t.Error(err)
	}
}

func TestNilWriterDoesNothing(t *testing.T) {
	var w *Writer
	if err := errors.Join(w.Write(-1, Values{"": 1}), w.Flush(), w.Close()); err != nil {
		t.Error(err)
	}
}

func TestBrokenLinesAreNamed(t *testing.T) {
	const good = `{"step":1,"time":5,"seconds":0.5,"loss":1}` + "\n"
	for _, c := range []struct {
		line int
		text string
		want string
	}{
		{1, "not json\n", "no JSON object of numbers"},
		{2, good + `{"step":2,"seconds":1,"loss":"low"}` + "\n", "no JSON object of numbers"},
		{2, good + `{"loss":1}` + "\n", `"step" or "seconds" is missing`},
		{2, good + `{"step":null,"seconds":1}` + "\n", `"step" or "seconds" is missing`},
		{2, good + `{"step":1.5,"seconds":1}` + "\n", "step 1.5 is no number of steps"},
		{2, good + `{"step":-1,"seconds":1}` + "\n", "step -1 is no number of steps"},
		{3, good + good + `{"step":0,"seconds":1}` + "\n", "step 0 after step 1"},
		{2, good + "\n", "no JSON object of numbers"},
		{2, good + `{"step":1,"seconds":1,"a b":1}` + "\n", `name "a b"`},
		{1, `{"step":1` + strings.Repeat(" ", mostLineBytes) + "}\n", "longer than 1048576 bytes"},
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, FileName)
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Read(dir)
		_, resumed := Open(dir, Config{Resumed: 9})
		for _, err := range []error{err, resumed} {
			var at *LineError
			if !errors.As(err, &at) || at.Line != c.line || at.Path != path || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%.60q: %v, want line %d: %s", c.text, err, c.line, c.want)
			}
		}
		if !strings.HasPrefix(c.text, file(t, dir, FileName)) || len(file(t, dir, FileName)) != len(c.text) {
			t.Errorf("%.60q: the file has changed", c.text)
		}
	}
	if _, err := Read(t.TempDir()); !errors.Is(err, ErrNoMetrics) || !strings.Contains(err.Error(), "output folder of a run") {
		t.Errorf("an empty folder: %v", err)
	}
	if _, err := Read(filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no folder: %v", err)
	}
}

func TestPointsNamesUnknownMetricsAndAxes(t *testing.T) {
	dir := t.TempDir()
	w := open(t, dir, Config{})
	write(t, w, 1, Values{ValLoss: 2})
	write(t, w, 2, Values{Loss: 1})
	h := history(t, dir)
	for want, of := range map[string][2]string{
		`no metric "lost": it has val_loss, loss`: {"lost", Step},
		"the axis samples of loss is unknown":     {Loss, Samples},
		`unknown axis "epoch": use one of step`:   {Loss, Epoch},
	} {
		if _, _, err := h.Points(of[0], of[1]); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %s", of, err, want)
		}
	}
}

func TestPeakIsKnownByTheNameOfADevice(t *testing.T) {
	for device, want := range map[string]float64{
		"NVIDIA H100 80GB HBM3": 989e12, "NVIDIA H100 PCIe": 756e12, "NVIDIA H200": 989e12, "NVIDIA A100-SXM4-80GB": 312e12,
		"NVIDIA GH200 480GB": 0, "NVIDIA L4": 121e12, "NVIDIA L40": 0, "NVIDIA H100 80GB HBM3 MIG 1g.10gb": 0, "cpu": 0,
	} {
		if got := PeakFLOPS(device, "bf16"); got != want {
			t.Errorf("%s: %v, want %v", device, got, want)
		}
	}
	if got := [...]float64{PeakFLOPS("H100", "tf32"), PeakFLOPS("H100", "fp32"), PeakFLOPS("H100", "fp8")}; got != [...]float64{494.5e12, 67e12, 0} {
		t.Error(got)
	}
}

func FuzzLine(f *testing.F) {
	f.Add([]byte(`{"step":3,"time":1,"seconds":2,"loss":1e-300,"x":null}`))
	f.Add([]byte(`{"step":1e3,"seconds":-0,"a":1}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		h := &History{series: map[string]*series{}}
		step, err := h.add(line, math.MaxInt)
		if err != nil {
			return
		}
		var pairs []pair
		for _, name := range h.names {
			pairs = append(pairs, pair{name, h.series[name].y[0]})
		}
		again := appendLine(nil, step, h.times[0], h.Seconds[0], pairs)
		second := &History{series: map[string]*series{}}
		if n, err := second.add(again, math.MaxInt); n != step || err != nil || !bytes.Equal(appendLine(nil, n, h.times[0], second.Seconds[0], pairs), again) {
			t.Errorf("%q becomes %q: %v", line, again, err)
		}
	})
}

// The values of a step are recorded without an allocation.
func TestRecordsTakeNoAllocation(t *testing.T) {
	for _, c := range []Config{{}, {Every: 10, CSV: true, TensorBoard: true}} {
		w := open(t, t.TempDir(), c)
		v := Values{Loss: 1, LearningRate: 0.5, Samples: 0}
		step := 0
		record := func() {
			step++
			v[Samples] += 64
			write(t, w, step, v)
		}
		for range 40 {
			record()
		}
		if n := testing.AllocsPerRun(100, record); n > 0 {
			t.Errorf("%+v: %v allocations per record", c, n)
		}
	}
}

func BenchmarkWrite(b *testing.B) {
	w := open(b, b.TempDir(), Config{Every: 50})
	v := Values{Loss: 0.34012, LearningRate: 1e-3, Samples: 0, GradNorm: 0.7}
	b.ReportAllocs()
	for step := range b.N {
		v[Samples] = float64(step)
		if err := w.Write(step, v); err != nil {
			b.Fatal(err)
		}
	}
}

func TestSecondsAreNumbers(t *testing.T) {
	w, err := Open(t.TempDir(), Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := w.Write(4, Values{Seconds: math.NaN()}); !errors.Is(err, dist.ErrInvalid) {
		t.Errorf("error %v, want dist.ErrInvalid", err)
	}
}

// After a write that failed, no line follows the part of a line that may be in the file.
func TestAFullDiskEndsTheFile(t *testing.T) {
	dir := t.TempDir()
	w, err := Open(dir, Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Write(1, Values{Loss: 1}); err != nil {
		t.Fatal(err)
	}
	file := w.file
	defer file.Close()
	if w.file, err = os.OpenFile("/dev/full", os.O_WRONLY, 0); err != nil {
		t.Skip(err)
	}
	first := errors.Join(w.Write(2, Values{Loss: 2}), w.Flush())
	if !errors.Is(first, syscall.ENOSPC) {
		t.Fatalf("error %v, want no space", first)
	}
	if err := w.file.Close(); err != nil {
		t.Fatal(err)
	}
	w.file = file
	if err := w.Write(3, Values{Loss: 3}); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("a later record: %v, want the first error", err)
	}
	h, err := Read(dir)
	if err != nil || len(h.Steps) != 1 || h.Steps[0] != 1 {
		t.Errorf("steps %v, error %v; want the first record", h, err)
	}
}
