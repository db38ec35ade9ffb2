package curves

import (
	"cmp"
	"fmt"
	"image/color"
	"io"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/symgrad/symgrad/internal/tool/drawing"
	"github.com/symgrad/symgrad/metrics"
)

// Sizes of a picture.
const (
	panelWidth  = 4.2 * vg.Inch
	panelHeight = 2.8 * vg.Inch
	legendLine  = 0.22 * vg.Inch
	legendMark  = 0.3 * vg.Inch
	edge        = 0.15 * vg.Inch
	mostColumns = 3
	mostPoints  = 1500 // of a curve: more than a panel has pixels
	margin      = 0.04 // of an axis, at each end
	leastRatio  = 3    // of the ends of a logarithmic axis: on a shorter one a line looks the same
)

// Draw draws the curves of runs, as SVG or PNG.
//
// Errors: ErrOption; a metric or an axis that a run lacks; those of w.
func Draw(w io.Writer, f drawing.Format, runs []Run, o Options) error {
	if err := o.Validate(); err != nil {
		return err
	}
	names, err := o.Names(runs)
	if err != nil {
		return err
	}
	o.Over = cmp.Or(o.Over, metrics.Step)
	columns := min(len(names), mostColumns)
	if len(names) == 4 {
		columns = 2
	}
	rows := (len(names) + columns - 1) / columns
	grid := make([][]*plot.Plot, rows)
	for i, name := range names {
		p, err := panel(name, runs, o)
		if err != nil {
			return err
		}
		grid[i/columns] = append(grid[i/columns], p)
	}
	for len(grid[rows-1]) < columns {
		grid[rows-1] = append(grid[rows-1], nil)
	}
	width := vg.Length(columns) * panelWidth
	legend := legendOf(runs, width-2*edge)
	head := vg.Length(legend.lines)*legendLine + edge
	page := drawing.NewPage(f, width, vg.Length(rows)*panelHeight+head)
	whole := draw.New(page)
	whole.SetColor(color.White)
	whole.Fill(whole.Rectangle.Path())
	legend.draw(whole)
	tiles := draw.Tiles{Rows: rows, Cols: columns, PadX: edge, PadY: edge, PadLeft: edge, PadRight: edge, PadBottom: edge}
	places := plot.Align(grid, tiles, draw.Crop(whole, 0, 0, 0, -head))
	for i := range grid {
		for k, p := range grid[i] {
			if p != nil {
				p.Draw(places[i][k])
			}
		}
	}
	_, err = page.WriteTo(w)
	return err
}

// panel returns the axes of a metric with the curves of all runs that have it.
func panel(name string, runs []Run, o Options) (*plot.Plot, error) {
	p := plot.New()
	p.Title.Text, p.X.Label.Text = name, o.Over
	drawing.Style(p)
	logarithmic := o.Log
	var all []plotter.XYs
	for _, r := range runs {
		var points plotter.XYs
		if r.Has(name) {
			x, y, err := r.Points(name, o.Over)
			if err != nil {
				return nil, err
			}
			points = make(plotter.XYs, len(x))
			for i := range x {
				points[i] = plotter.XY{X: x[i], Y: y[i]}
				logarithmic = logarithmic && !(y[i] <= 0)
			}
		}
		all = append(all, points)
	}
	for i, points := range all {
		if err := addCurve(p, points, styleOf(i), o.Smooth); err != nil {
			return nil, fmt.Errorf("%s of %s: %w", name, runs[i].Name, err)
		}
	}
	scale(p, logarithmic)
	return p, nil
}

// scale sets the ranges of both axes.
func scale(p *plot.Plot, logarithmic bool) {
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		if math.IsInf(a.Min, 0) || math.IsInf(a.Max, 0) { // no finite value
			a.Min, a.Max = 0, 1
		}
	}
	y := &p.Y
	flat := y.Max-y.Min <= 1e-9*math.Abs(y.Max) // also after rounding in averages
	switch {
	case logarithmic && y.Min > 0 && y.Max > leastRatio*y.Min:
		air := math.Pow(y.Max/y.Min, margin)
		y.Min, y.Max = y.Min/air, y.Max*air
		y.Scale, y.Tick.Marker = plot.LogScale{}, plot.TickerFunc(drawing.DecadeTicks)
	case flat:
		room := max(math.Abs(y.Min)/10, 1e-9)
		y.Min, y.Max = y.Min-room, y.Max+room
	default:
		air := (y.Max - y.Min) * margin
		y.Min, y.Max = y.Min-air, y.Max+air
	}
	if x := &p.X; x.Min == x.Max {
		x.Min, x.Max = x.Min-1, x.Max+1
	}
}

// addCurve draws a curve, and its moving average over it if smooth is above 0. A value that is NaN
// interrupts it.
func addCurve(p *plot.Plot, points plotter.XYs, style draw.LineStyle, smooth float64) error {
	y := make([]float64, len(points))
	for i := range points {
		y[i] = points[i].Y
	}
	if smooth == 0 {
		return addLine(p, points, y, style)
	}
	faint := style
	faint.Color, faint.Width = pale(style.Color), vg.Points(0.8)
	if err := addLine(p, points, y, faint); err != nil {
		return err
	}
	return addLine(p, points, Smooth(y, smooth), style)
}

// addLine draws the values y at the places of points. A single point is a dot.
func addLine(p *plot.Plot, points plotter.XYs, y []float64, style draw.LineStyle) error {
	var part plotter.XYs
	end := func() error {
		defer func() { part = nil }()
		switch len(part) {
		case 0:
			return nil
		case 1:
			dot, err := plotter.NewScatter(part)
			if err == nil {
				dot.GlyphStyle = draw.GlyphStyle{Color: style.Color, Radius: vg.Points(2), Shape: draw.CircleGlyph{}}
				p.Add(dot)
			}
			return err
		}
		line, err := plotter.NewLine(part)
		if err == nil {
			line.LineStyle = style
			p.Add(line)
		}
		return err
	}
	for _, i := range thin(y, mostPoints) {
		if !math.IsNaN(y[i]) {
			part = append(part, plotter.XY{X: points[i].X, Y: y[i]})
		} else if err := end(); err != nil {
			return err
		}
	}
	return end()
}

// styleOf returns the line of run i.
func styleOf(i int) draw.LineStyle {
	s := draw.LineStyle{Color: drawing.Palette[i%len(drawing.Palette)], Width: vg.Points(1.5)}
	if n := i / len(drawing.Palette); n > 0 { // more runs than colours
		s.Dashes = []vg.Length{vg.Length(3 * n), 2}
	}
	return s
}

// pale returns a colour mixed with white.
func pale(c color.Color) color.Color {
	r, g, b, _ := c.RGBA()
	mix := func(x uint32) uint8 { return uint8((x>>8 + 3*0xff) / 4) }
	return color.RGBA{mix(r), mix(g), mix(b), 0xff}
}

// legend has the names of the runs above the panels, in lines.
type legend struct {
	style text.Style
	runs  []Run
	at    []vg.Point // of each run: from the left, and from the top
	lines int
}

// legendOf places the names in lines of a width.
func legendOf(runs []Run, width vg.Length) *legend {
	l := &legend{runs: runs, lines: 1, style: text.Style{Color: color.Black, Font: drawing.Sans(10), Handler: plot.DefaultTextHandler, YAlign: text.YCenter}}
	x := vg.Length(0)
	for _, r := range runs {
		need := legendMark + l.style.Width(r.Name) + 2*edge
		if x > 0 && x+need > width {
			x = 0
			l.lines++
		}
		l.at = append(l.at, vg.Point{X: x, Y: (vg.Length(l.lines) - 0.5) * legendLine})
		x += need
	}
	return l
}

func (l *legend) draw(c draw.Canvas) {
	for i, r := range l.runs {
		x, y := c.Min.X+edge+l.at[i].X, c.Max.Y-edge/2-l.at[i].Y
		c.StrokeLine2(styleOf(i), x, y, x+legendMark*0.8, y)
		c.FillText(l.style, vg.Point{X: x + legendMark, Y: y}, r.Name)
	}
}
