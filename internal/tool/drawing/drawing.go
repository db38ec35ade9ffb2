// Package drawing has the parts that plots of the tools share: file formats, colours, and the
// style of axes.
package drawing

import (
	"fmt"
	"image/color"
	"io"
	"math"
	"path/filepath"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Palette has colours that are distinct for all kinds of colour vision (Okabe and Ito, "Color
// Universal Design", 2008), without the yellow, which is too light for a line.
var Palette = []color.RGBA{
	{0x00, 0x72, 0xb2, 0xff},
	{0xd5, 0x5e, 0x00, 0xff},
	{0x00, 0x9e, 0x73, 0xff},
	{0xcc, 0x79, 0xa7, 0xff},
	{0x00, 0x00, 0x00, 0xff},
	{0x56, 0xb4, 0xe9, 0xff},
	{0xe6, 0x9f, 0x00, 0xff},
}

// Format is the file format of a drawing.
type Format string

// The formats. NewPage draws SVG and PNG.
const (
	SVG  Format = "svg"
	PNG  Format = "png"
	HTML Format = "html"
)

// DPI is the resolution of a PNG.
const DPI = 144

// FormatOf returns the format of a file name's ending, one of those that the caller knows.
//
// Errors: an unknown ending, with the known ones.
func FormatOf(name string, known ...Format) (Format, error) {
	endings := make([]string, len(known))
	ending := strings.ToLower(filepath.Ext(name))
	for i, f := range known {
		if endings[i] = "." + string(f); ending == endings[i] {
			return f, nil
		}
	}
	last := len(endings) - 1
	want := endings[last]
	if last > 0 {
		want = strings.Join(endings[:last], ", ") + " or " + want
	}
	if ending == "" {
		return "", fmt.Errorf("%s: the name has no ending: want %s", name, want)
	}
	return "", fmt.Errorf("%s: unknown ending %q: want %s", name, ending, want)
}

// Page is a canvas that can be written to a file.
type Page interface {
	vg.CanvasSizer
	io.WriterTo
}

// NewPage returns an empty page of a format, SVG or PNG.
func NewPage(f Format, width, height vg.Length) Page {
	if f == PNG {
		return vgimg.PngCanvas{Canvas: vgimg.NewWith(vgimg.UseWH(width, height), vgimg.UseDPI(DPI))}
	}
	return vgsvg.New(width, height)
}

// Sans returns the font of all texts.
func Sans(points float64) font.Font {
	return font.Font{Typeface: "Liberation", Variant: "Sans", Size: vg.Points(points)}
}

// Style sets fonts and lines of p, and adds a grid.
func Style(p *plot.Plot) {
	p.Title.TextStyle.Font, p.X.Label.TextStyle.Font = Sans(11), Sans(10)
	p.Title.Padding = vg.Points(4)
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		a.Tick.Label.Font = Sans(9)
		a.Width, a.Tick.Width = vg.Points(0.6), vg.Points(0.6)
		a.Padding = 0
	}
	grid := plotter.NewGrid()
	for _, s := range []*draw.LineStyle{&grid.Vertical, &grid.Horizontal} {
		s.Color, s.Width, s.Dashes = color.Gray{0xe4}, vg.Points(0.5), nil
	}
	p.Add(grid)
}

// DecadeTicks returns powers of ten with names, and the numbers between them without. With fewer
// than two powers of ten all have names or, if there is no room for all, those with the digits 1,
// 2, 3 and 5.
func DecadeTicks(low, high float64) []plot.Tick {
	var ticks []plot.Tick
	var digits []int
	named := 0
	for e := math.Floor(math.Log10(low)); e <= math.Ceil(math.Log10(high)); e++ {
		for digit := 1; digit < 10; digit++ {
			v := float64(digit) * math.Pow(10, e)
			if v < low*(1-1e-9) || v > high*(1+1e-9) {
				continue
			}
			t := plot.Tick{Value: v}
			if digit == 1 {
				t.Label = fmt.Sprintf("%.6g", v)
				named++
			}
			ticks, digits = append(ticks, t), append(digits, digit)
		}
	}
	if named > 1 {
		return ticks
	}
	for i := range ticks {
		if digit := digits[i]; len(ticks) <= mostNamed || digit <= 3 || digit == 5 {
			ticks[i].Label = fmt.Sprintf("%.6g", ticks[i].Value)
		}
	}
	return ticks
}

// mostNamed is the number of names for which a vertical axis has room.
const mostNamed = 6
