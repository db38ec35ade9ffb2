package perf

import (
	"cmp"
	"errors"
	"fmt"
	"image/color"
	"io"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/symgrad/symgrad/internal/tool/drawing"
)

// Sizes of a drawing.
const (
	panelWidth  = 4.6 * vg.Inch
	panelHeight = 4.0 * vg.Inch
	headHeight  = 0.55 * vg.Inch
	lineHeight  = 0.2 * vg.Inch
	inPanel     = 4    // curves whose names fit into the first panel
	margin      = 0.04 // of an axis, at each end
)

// curve has rows that differ in size only.
type curve struct {
	label   string
	rows    []Row
	style   draw.LineStyle
	earlier bool
}

// Plot draws r: time and bus bandwidth over size, both axes logarithmic, with a curve for each case
// of several sizes. Curves of an earlier result, if it is not nil, are dashed.
//
// Errors: those of w; a result without any size.
func Plot(w io.Writer, f drawing.Format, r Result, earlier *Result) error {
	curves := curvesOf(r, earlier)
	if len(curves) == 0 {
		return errors.New("nothing to draw: no row has a size")
	}
	panels := []*panel{newPanel("time (µs)"), newPanel("bus bandwidth (GB/s)")}
	legend := newLegend()
	for _, c := range curves {
		mark, err := panels[0].add(c, func(r Row) float64 { return r.TimeUS })
		if err != nil {
			return err
		}
		if _, err := panels[1].add(c, func(r Row) float64 { return r.BusBW }); err != nil {
			return err
		}
		legend.Add(c.label, mark...)
	}
	width, height, beside := 2*panelWidth, panelHeight, vg.Length(0)
	if len(curves) > inPanel {
		beside = legendWidth(legend.TextStyle, curves)
		height = max(height, vg.Length(len(curves)+1)*lineHeight)
	}
	canvas := drawing.NewPage(f, width+beside, height+headHeight)
	whole := draw.New(canvas)
	whole.SetColor(color.White)
	whole.Fill(whole.Rectangle.Path())
	head(whole, r)
	body := draw.Crop(whole, 0, 0, 0, -headHeight)
	first := drawPanels(panels, draw.Crop(body, 0, -beside, 0, 0))
	if beside > 0 {
		first = draw.Crop(body, width, 0, 0, 0)
	}
	legend.Draw(first)
	_, err := canvas.WriteTo(w)
	return err
}

// drawPanels draws panels next to each other.
//
// Returns: the inside of the first.
func drawPanels(panels []*panel, c draw.Canvas) draw.Canvas {
	plots := make([]*plot.Plot, len(panels))
	for i, p := range panels {
		for _, a := range []*plot.Axis{&p.X, &p.Y} {
			if a.Min >= a.Max || a.Min <= 0 { // one point, or none: a logarithmic axis needs more
				a.Min, a.Max = cmp.Or(max(a.Max, 0), 1)/2, cmp.Or(max(a.Max, 0), 1)*2
			}
			air := math.Pow(a.Max/a.Min, margin)
			a.Min, a.Max = a.Min/air, a.Max*air
		}
		plots[i] = p.Plot
	}
	tiles := draw.Tiles{Cols: len(plots), Rows: 1, PadX: 14, PadLeft: 8, PadRight: 14, PadBottom: 8}
	places := plot.Align([][]*plot.Plot{plots}, tiles, c)[0]
	for i, p := range plots {
		p.Draw(places[i])
	}
	return plots[0].DataCanvas(places[0])
}

// legendWidth returns the width of the curves' names and marks.
func legendWidth(style text.Style, curves []curve) vg.Length {
	var widest vg.Length
	for _, c := range curves {
		widest = max(widest, style.Width(c.label))
	}
	return widest + 50
}

// curvesOf returns the curves of r, each followed by the earlier one of its name.
func curvesOf(r Result, earlier *Result) []curve {
	curves := group(r.Rows)
	var old []curve
	if earlier != nil {
		old = group(earlier.Rows)
	}
	var all []curve
	for i, c := range curves {
		c.style = draw.LineStyle{Color: drawing.Palette[i%len(drawing.Palette)], Width: vg.Points(1.6)}
		if i >= len(drawing.Palette) { // more curves than colours
			c.style.Dashes = []vg.Length{vg.Length(3 * (i / len(drawing.Palette))), 2}
		}
		all = append(all, c)
		if at := slices.IndexFunc(old, func(o curve) bool { return o.label == c.label }); at >= 0 {
			o := old[at]
			o.label, o.earlier, o.style = o.label+", before", true, c.style
			o.style.Width, o.style.Dashes = vg.Points(1), []vg.Length{6, 4}
			all = append(all, o)
		}
	}
	return all
}

// group returns the curves of rows with a bandwidth, in their order.
func group(rows []Row) []curve {
	var curves []curve
	for _, row := range rows {
		if row.AlgBW <= 0 || row.TimeUS <= 0 {
			continue
		}
		at := slices.IndexFunc(curves, func(c curve) bool { return c.label == row.label() })
		if at < 0 {
			at = len(curves)
			curves = append(curves, curve{label: row.label()})
		}
		curves[at].rows = append(curves[at].rows, row)
	}
	return curves
}

// panel is one pair of axes.
type panel struct{ *plot.Plot }

// newPanel returns axes with a title instead of a name on the vertical axis: gonum places that name
// as for a linear axis.
func newPanel(title string) *panel {
	p := plot.New()
	p.Title.Text, p.X.Label.Text = title, "size (B)"
	p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
	p.X.Tick.Marker, p.Y.Tick.Marker = plot.TickerFunc(sizeTicks), plot.TickerFunc(drawing.DecadeTicks)
	drawing.Style(p)
	return &panel{p}
}

func newLegend() plot.Legend {
	l := plot.NewLegend()
	l.Top, l.Left = true, true
	l.TextStyle.Font = drawing.Sans(9)
	l.Padding, l.ThumbnailWidth = vg.Points(3), vg.Points(22)
	l.XOffs, l.YOffs = vg.Points(8), vg.Points(-6)
	return l
}

// add draws one number of each row of c, if it is more than zero.
//
// Returns: the mark of the curve in a legend.
func (p *panel) add(c curve, of func(Row) float64) ([]plot.Thumbnailer, error) {
	var points plotter.XYs
	for _, row := range c.rows {
		if y := of(row); y > 0 {
			points = append(points, plotter.XY{X: float64(row.Bytes), Y: y})
		}
	}
	if len(points) == 0 { // one rank has no bus
		return nil, nil
	}
	slices.SortStableFunc(points, func(a, b plotter.XY) int { return cmp.Compare(a.X, b.X) })
	line, dots, err := plotter.NewLinePoints(points)
	if err != nil {
		return nil, fmt.Errorf("curve %q: %w", c.label, err)
	}
	line.LineStyle = c.style
	dots.GlyphStyle = draw.GlyphStyle{Color: c.style.Color, Radius: vg.Points(2.1), Shape: draw.CircleGlyph{}}
	p.Add(line)
	if c.earlier {
		return []plot.Thumbnailer{line}, nil
	}
	p.Add(dots)
	return []plot.Thumbnailer{line, dots}, nil
}

// head draws the line above both panels.
func head(c draw.Canvas, r Result) {
	var ops []string
	for _, row := range r.Rows {
		if !slices.Contains(ops, row.Op) {
			ops = append(ops, row.Op)
		}
	}
	what := strings.Join(ops, ", ")
	if len(ops) > 5 {
		what = fmt.Sprintf("%d operations", len(ops))
	}
	style := text.Style{Color: color.Black, Font: drawing.Sans(13), Handler: plot.DefaultTextHandler, YAlign: text.YTop}
	at := vg.Point{X: c.Min.X + 14, Y: c.Max.Y - 8}
	c.FillText(style, at, fmt.Sprintf("%s on %s, ranks: %d", what, r.Settings.Backend, r.Settings.Ranks))
	style.Font, style.Color = drawing.Sans(9), color.Gray{0x60}
	at.Y -= 17
	c.FillText(style, at, fmt.Sprintf("%s, %d cores; %s; %s", cmp.Or(r.Machine.CPU, r.Machine.Arch), r.Machine.Cores,
		where(r.Settings), how(r.Settings)))
}

// sizeTicks returns powers of two, at most nine of them with a name.
func sizeTicks(low, high float64) []plot.Tick {
	first, last := int(math.Ceil(math.Log2(low))), int(math.Floor(math.Log2(high)))
	every := max((last-first)/8+1, 1)
	var ticks []plot.Tick
	for e := max(first, 0); e <= last; e++ {
		t := plot.Tick{Value: math.Exp2(float64(e))}
		if (e-first)%every == 0 {
			t.Label = FormatSize(1 << e)
		}
		ticks = append(ticks, t)
	}
	return ticks
}
