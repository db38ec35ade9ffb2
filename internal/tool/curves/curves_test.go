package curves

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"image/png"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/symgrad/symgrad/internal/tool/drawing"
	"github.com/symgrad/symgrad/metrics"
)

// record writes a run of four steps into dir/name, with the values of more in the last.
func record(t *testing.T, dir, name string, more metrics.Values) string {
	t.Helper()
	dir = filepath.Join(dir, name)
	w, err := metrics.Open(dir, metrics.Config{NoRates: true})
	for step := 1; err == nil && step <= 4; step++ {
		v := metrics.Values{metrics.Loss: 1 / float64(step), metrics.Samples: float64(32 * step), metrics.Seconds: float64(step) / 4}
		if step == 2 {
			v[metrics.Loss] = math.NaN()
		}
		if step == 4 {
			for name, x := range more {
				v[name] = x
			}
		}
		err = w.Write(step, v)
	}
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return dir
}

func read(t *testing.T, paths ...string) []Run {
	t.Helper()
	runs, err := Read(paths)
	if err != nil {
		t.Fatal(err)
	}
	return runs
}

func TestRunsHaveTheNamesOfTheirFolders(t *testing.T) {
	dir := t.TempDir()
	a, b, c := record(t, dir, "x/a", nil), record(t, dir, "y/a", nil), record(t, dir, "b", nil)
	kept := filepath.Join(c, "metrics-1.jsonl")
	if err := os.Rename(filepath.Join(c, metrics.FileName), kept); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, r := range read(t, a, kept, b) {
		names = append(names, r.Name)
	}
	if want := []string{a, "metrics-1.jsonl", b}; !slices.Equal(names, want) {
		t.Errorf("%q, want %q", names, want)
	}
	if r := read(t, filepath.Join(a, metrics.FileName)); r[0].Name != "a" {
		t.Errorf("%q", r[0].Name)
	}
	if _, err := Read([]string{a, c}); !errors.Is(err, metrics.ErrNoMetrics) || !strings.Contains(err.Error(), c) {
		t.Error(err)
	}
	if err := os.WriteFile(filepath.Join(c, metrics.FileName), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Read([]string{c}); err == nil || !strings.Contains(err.Error(), "no records yet") {
		t.Error(err)
	}
}

func TestMetricsOfAnyRunAreDrawnUnlessNamed(t *testing.T) {
	dir := t.TempDir()
	runs := read(t, record(t, dir, "a", metrics.Values{"own": 1, metrics.ValLoss: 2}), record(t, dir, "b", metrics.Values{metrics.Epoch: 1}))
	for want, o := range map[string]Options{
		"loss val_loss own": {}, "samples loss": {Metrics: []string{metrics.Samples, metrics.Loss}},
	} {
		if got, err := o.Names(runs); strings.Join(got, " ") != want || err != nil {
			t.Errorf("%q, %v, want %q", got, err, want)
		}
	}
	_, err := Options{Metrics: []string{"own"}}.Names(runs)
	if err == nil || !strings.Contains(err.Error(), filepath.Join("b", metrics.FileName)+`: no metric "own": it has loss, samples, epoch`) {
		t.Error(err)
	}
	for want, o := range map[string]Options{
		`axis "epoch": use one of step, samples, seconds`: {Over: metrics.Epoch}, "smoothing 1": {Smooth: 1}, "smoothing NaN": {Smooth: math.NaN()},
	} {
		for _, err := range []error{Draw(io.Discard, drawing.SVG, runs, o), WritePage(io.Discard, runs, o)} {
			if !errors.Is(err, ErrOption) || !strings.Contains(err.Error(), want) {
				t.Errorf("%+v: %v, want %s", o, err, want)
			}
		}
	}
}

func TestRunWithoutSamplesHasNoSuchAxis(t *testing.T) {
	dir := t.TempDir()
	w, err := metrics.Open(dir, metrics.Config{})
	if err = errors.Join(err, w.Write(1, metrics.Values{metrics.Loss: 1}), w.Close()); err != nil {
		t.Fatal(err)
	}
	runs, o := read(t, dir), Options{Over: metrics.Samples}
	for _, err := range []error{Draw(io.Discard, drawing.SVG, runs, o), WritePage(io.Discard, runs, o)} {
		if err == nil || !strings.Contains(err.Error(), "the axis samples of loss is unknown") {
			t.Error(err)
		}
	}
	if err := WritePage(io.Discard, runs, Options{}); err != nil {
		t.Error(err)
	}
}

func TestSmoothIsAWeightedMean(t *testing.T) {
	nan := math.NaN()
	got := Smooth([]float64{4, nan, 1, 7}, 0.5)
	want := []float64{4, nan, (1 + 0.5*4) / 1.5, (7 + 0.5*1 + 0.25*4) / 1.75}
	for i := range want {
		if math.Float64bits(got[i]) != math.Float64bits(want[i]) && !(math.IsNaN(got[i]) && math.IsNaN(want[i])) {
			t.Errorf("%v, want %v", got, want)
		}
	}
}

func TestThinKeepsEnds(t *testing.T) {
	y := make([]float64, 100_000)
	for i := range y {
		y[i] = math.Sin(float64(i) / 9)
	}
	y[77_777], y[5000], y[31_234] = 50, -50, math.NaN()
	kept := thin(y, 1000)
	if len(kept) > 1002 || !slices.IsSorted(kept) || len(slices.Compact(slices.Clone(kept))) != len(kept) {
		t.Errorf("%d points", len(kept))
	}
	for _, i := range []int{0, 5000, 31_234, 77_777, len(y) - 1} {
		if i > 0 && !slices.Contains(kept, i) {
			t.Errorf("point %d is missing", i)
		}
	}
	if got := thin(y[:7], 1000); len(got) != 7 {
		t.Errorf("%d of 7 points", len(got))
	}
	gaps := slices.Repeat([]float64{math.NaN()}, 100)
	if got := thin(gaps, 10); len(got) == 0 || len(got) > 11 {
		t.Errorf("%d gaps", len(got))
	}
}

// strokes returns the number of paths with a colour of a curve, and the texts of an SVG.
func strokes(t *testing.T, svg io.Reader) (n int, texts []string) {
	t.Helper()
	curve := regexp.MustCompile(`stroke:#(0072B2|D55E00)`)
	for dec := xml.NewDecoder(svg); ; {
		token, err := dec.Token()
		if errors.Is(err, io.EOF) {
			return n, texts
		}
		if err != nil {
			t.Fatal(err)
		}
		switch e := token.(type) {
		case xml.StartElement:
			for _, a := range e.Attr {
				if e.Name.Local == "path" && a.Name.Local == "style" && curve.MatchString(a.Value) {
					n++
				}
			}
		case xml.CharData:
			if s := strings.TrimSpace(string(e)); s != "" {
				texts = append(texts, s)
			}
		}
	}
}

func TestPictureHasAPanelForEachMetric(t *testing.T) {
	dir := t.TempDir()
	runs := read(t, record(t, dir, "a", metrics.Values{metrics.ValLoss: 2}), record(t, dir, "b", nil))
	for _, o := range []Options{{}, {Log: true, Over: metrics.Seconds}, {Smooth: 0.5}} {
		var out bytes.Buffer
		if err := Draw(&out, drawing.SVG, runs, o); err != nil {
			t.Fatal(err)
		}
		n, texts := strokes(t, &out)
		if n != 4 { // of each run, a line in the legend, and one from step 3 on: the others are dots
			t.Errorf("%+v: %d lines", o, n)
		}
		for _, want := range []string{"a", "b", "loss", "val_loss", map[bool]string{true: "seconds", false: "step"}[o.Log]} {
			if !slices.Contains(texts, want) {
				t.Errorf("%+v: %q is missing in %q", o, want, texts)
			}
		}
	}
	var out bytes.Buffer
	if err := Draw(&out, drawing.PNG, runs, Options{}); err != nil {
		t.Fatal(err)
	}
	img, err := png.Decode(&out)
	if err != nil || img.Bounds().Dx() < 1000 {
		t.Errorf("%v, %v", img.Bounds(), err)
	}
	nothing := read(t, record(t, dir, "c", metrics.Values{"gone": math.NaN(), "flat": 0}))
	if err := Draw(io.Discard, drawing.SVG, nothing, Options{Metrics: []string{"gone", "flat"}, Log: true, Smooth: 0.9}); err != nil {
		t.Errorf("a metric without a finite value: %v", err)
	}
}

// pageOf returns a page of two runs. The name of one would end the script.
func pageOf(t *testing.T, o Options) string {
	t.Helper()
	dir := t.TempDir()
	runs := read(t, record(t, dir, "a", metrics.Values{metrics.ValLoss: 2}), record(t, dir, "b", nil))
	runs[1].Name = `b</script><b id="x">`
	var out bytes.Buffer
	if err := WritePage(&out, runs, o); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestPageNeedsNoNetwork(t *testing.T) {
	page := pageOf(t, Options{Smooth: 0.5, Over: metrics.Samples})
	rest := strings.ReplaceAll(page, "http://www.w3.org/2000/svg", "")
	for _, not := range []string{"http:", "https:", "//cdn", "src=", "<link", "import(", "fetch(", `<b id="x">`} {
		if strings.Contains(rest, not) {
			t.Errorf("the page has %q", not)
		}
	}
	_, text, _ := strings.Cut(page, `id="data">`)
	text, _, _ = strings.Cut(text, "</script>")
	var d struct {
		Over string
		Runs []struct {
			Name   string
			Curves map[string]map[string][]*float64
		}
	}
	if err := json.Unmarshal([]byte(text), &d); err != nil {
		t.Fatal(err)
	}
	loss := d.Runs[1].Curves[metrics.Loss]
	if d.Over != metrics.Samples || d.Runs[1].Name != `b</script><b id="x">` || *loss["samples"][2] != 96 || loss["y"][1] != nil || *loss["y"][2] != 0.3333333 || *loss["seconds"][3] != 1 {
		t.Errorf("%s", text)
	}
	if len(d.Runs[0].Curves) != 2 || len(d.Runs[1].Curves) != 1 {
		t.Errorf("curves %v", d.Runs)
	}
}

// A browser shows the values under the pointer, of all runs and smoothed.
func TestBrowserShowsValuesUnderThePointer(t *testing.T) {
	var browser string
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			browser = path
		}
	}
	if browser == "" {
		t.Skip("needs chromium or google-chrome")
	}
	page := strings.Replace(pageOf(t, Options{Smooth: 0.5}), "</body>", `<script>
const svg = document.querySelector("svg"), box = svg.getBoundingClientRect();
svg.dispatchEvent(new PointerEvent("pointermove", { clientX: box.right - 12, clientY: box.top + 50 }));
</script></body>`, 1)
	dir := t.TempDir()
	file := filepath.Join(dir, "page.html")
	if err := os.WriteFile(file, []byte(page), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), browser, "--headless", "--no-sandbox", "--disable-gpu", "--user-data-dir="+dir, "--dump-dom", "file://"+file)
	dom, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	for want, n := range map[string]int{
		`<table><tbody><tr><td>step</td><td>4</td></tr>`:                     1,
		`>a</td><td>0.25 (0.38095)</td></tr>`:                                1, // (1/4 + 1/2*1/3 + 1/4*1) / (7/4)
		`>b&lt;/script&gt;&lt;b id="x"&gt;</td><td>0.25 (0.38095)</td></tr>`: 1,
		`class="curve"`:     3,
		`class="curve raw"`: 3,
		`<figcaption>`:      2,
	} {
		if got := strings.Count(string(dom), want); got != n {
			t.Errorf("%s: %d times, want %d", want, got, n)
		}
	}
	if t.Failed() {
		_, body, _ := strings.Cut(string(dom), "<main")
		body, _, _ = strings.Cut(body, "</main>")
		t.Log(body)
	}
}
