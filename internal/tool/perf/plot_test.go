package perf

import (
	"bytes"
	"encoding/xml"
	"errors"
	"image/color"
	"image/png"
	"io"
	"math"
	"strings"
	"testing"

	"gonum.org/v1/plot"

	"github.com/symgrad/symgrad/internal/tool/drawing"
)

// parts has the contents of an SVG that a test checks.
type parts struct {
	texts  []string
	lines  int // paths with the stroke of a curve
	dashed int // of those
}

// draw plots r and reads the SVG, which must be well-formed.
func readPlot(t *testing.T, r Result, earlier *Result) parts {
	t.Helper()
	var svg bytes.Buffer
	if err := Plot(&svg, drawing.SVG, r, earlier); err != nil {
		t.Fatal(err)
	}
	var d parts
	inText := false
	for dec := xml.NewDecoder(&svg); ; {
		token, err := dec.Token()
		if errors.Is(err, io.EOF) {
			return d
		}
		if err != nil {
			t.Fatal(err)
		}
		switch e := token.(type) {
		case xml.StartElement:
			inText = e.Name.Local == "text"
			if e.Name.Local == "path" {
				d.count(e)
			}
		case xml.CharData:
			if s := strings.TrimSpace(string(e)); inText && s != "" {
				d.texts = append(d.texts, s)
			}
		}
	}
}

// count counts a path that joins more than two points with a line of one of the curves' colours.
func (d *parts) count(e xml.StartElement) {
	attr := map[string]string{}
	for _, a := range e.Attr {
		attr[a.Name.Local] = a.Value
	}
	if !strings.Contains(attr["style"], "stroke:#") || strings.Contains(attr["style"], "stroke:#E4E4E4") || strings.Count(attr["d"], "L") < 2 {
		return
	}
	d.lines++
	if strings.Contains(attr["style"], "stroke-dasharray") {
		d.dashed++
	}
}

// sweep is rows of one kind at four sizes.
func sweepRows(op Op, inPlace bool) []Row {
	var rows []Row
	for i, c := range (Config{Ops: []Op{op}, InPlace: inPlace, MaxBytes: 512}).Cases(2) {
		row := newRow(c)
		row.setTimes(times{mean: 100 * float64(1+i*i)}, 1)
		rows = append(rows, row)
	}
	return rows
}

func TestPlotDrawsEveryCurveTwice(t *testing.T) {
	r := example()
	r.Rows = append(sweepRows(AllReduce, false), sweepRows(AllReduce, true)...)
	r.Rows = append(r.Rows, Row{Op: "barrier", DType: "none", RedOp: "none", TimeUS: 1})
	d := readPlot(t, r, nil)
	if d.lines != 4 || d.dashed != 0 {
		t.Errorf("%d lines, %d of them dashed, want 2 curves in 2 panels", d.lines, d.dashed)
	}
	all := strings.Join(d.texts, "\n")
	for _, want := range []string{
		"allreduce, barrier on shm, ranks: 2", "Some CPU, 2 cores", "time (µs)", "bus bandwidth (GB/s)", "size (B)",
		"allreduce f32 sum", "allreduce f32 sum, in place", "8", "512",
	} {
		if !strings.Contains(all, want) {
			t.Errorf("no text %q in:\n%s", want, all)
		}
	}
}

func TestPlotDashesAnEarlierResult(t *testing.T) {
	r, old := example(), example()
	r.Rows, old.Rows = sweepRows(AllReduce, false), append(sweepRows(AllReduce, false), sweepRows(Reduce, false)...)
	d := readPlot(t, r, &old)
	if d.lines != 4 || d.dashed != 2 || !strings.Contains(strings.Join(d.texts, "\n"), "allreduce f32 sum, before") {
		t.Errorf("%d lines, %d dashed, texts %q", d.lines, d.dashed, d.texts)
	}
}

func TestPlotOfManyCurves(t *testing.T) {
	r := example()
	r.Rows = nil
	for _, op := range Collectives() {
		if op.Moves() {
			r.Rows = append(r.Rows, sweepRows(op, false)...)
		}
		if op.trait().inPlace {
			r.Rows = append(r.Rows, sweepRows(op, true)...)
		}
	}
	d := readPlot(t, r, nil)
	curves := len(curvesOf(r, nil))
	if d.lines != 2*curves || d.dashed != 2*(curves-len(drawing.Palette)) || !strings.HasPrefix(d.texts[0], "9 operations") {
		t.Errorf("%d lines, %d dashed, for %d curves; %q", d.lines, d.dashed, curves, d.texts[0])
	}
}

// A PNG has the size of the SVG, and more than one colour.
func TestPlotIsAPNGToo(t *testing.T) {
	var out bytes.Buffer
	if err := Plot(&out, drawing.PNG, example(), nil); err != nil {
		t.Fatal(err)
	}
	img, err := png.Decode(&out)
	if err != nil {
		t.Fatal(err)
	}
	size := img.Bounds().Size()
	if want := int((2 * panelWidth).Dots(drawing.DPI)); size.X < want || size.Y < want/3 {
		t.Errorf("it has %v pixels, want at least %d wide", size, want)
	}
	colours := map[color.Color]bool{}
	for x := range size.X {
		colours[img.At(x, size.Y/2)] = true
	}
	if len(colours) < 3 {
		t.Errorf("there are %d colours in the middle row", len(colours))
	}
}

func TestPlotOfOnePoint(t *testing.T) {
	r := example()
	r.Rows = r.Rows[:1]
	r.Rows[0].BusBW = 0 // one rank
	if d := readPlot(t, r, nil); len(d.texts) == 0 {
		t.Error("nothing is drawn")
	}
	r.Rows = example().Rows[4:]
	if err := Plot(io.Discard, drawing.SVG, r, nil); err == nil || !strings.Contains(err.Error(), "nothing to draw") {
		t.Errorf("a barrier: %v", err)
	}
}

func labels(ticks []plot.Tick) string {
	var s []string
	for _, t := range ticks {
		if t.Label != "" {
			s = append(s, t.Label)
		}
	}
	return strings.Join(s, " ")
}

func TestTicks(t *testing.T) {
	for want, ticks := range map[string][]plot.Tick{
		"8 16 32 64":                  sizeTicks(8, 64),
		"8 64 512 4K 32K 256K 2M 16M": sizeTicks(7.5, 64<<20),
		"0.01 0.1 1 10":               drawing.DecadeTicks(0.01, 35),
		"8 9 10 20 30":                drawing.DecadeTicks(8, 30),
		"0.3 0.4 0.5":                 drawing.DecadeTicks(0.3, 0.5),
		"1":                           sizeTicks(0.6, 1.9),
	} {
		if got := labels(ticks); got != want {
			t.Errorf("labels %q, want %q", got, want)
		}
	}
	for _, tick := range drawing.DecadeTicks(0.5, 2000) {
		if tick.Value < 0.4999 || tick.Value > 2001 || math.IsNaN(tick.Value) {
			t.Errorf("a tick at %v", tick.Value)
		}
	}
}
