package data

import (
	"encoding/binary"
	"fmt"
	"image"
	"math"
	"math/rand/v2"

	"golang.org/x/image/draw"

	"github.com/symgrad/symgrad/dist"
)

// Crop is the part of an image that becomes a sample.
type Crop int

// The crops. Those with random numbers are for training. They are the transforms of torchvision
// with the same names.
const (
	CropNone          Crop = iota // the whole image, which must have the size of the samples
	CropCenter                    // the middle, after the shorter side is scaled to Resize
	CropRandom                    // any place, after Padding black pixels are added at each side
	CropRandomResized             // any part of MinArea to 1 of the image and 3:4 to 4:3, scaled
)

// String returns "none", "center", "random" or "random resized".
func (c Crop) String() string {
	if names := [...]string{"none", "center", "random", "random resized"}; c >= 0 && int(c) < len(names) {
		return names[c]
	}
	return fmt.Sprintf("Crop(%d)", int(c))
}

// Transform turns an image into the numbers of a sample, channels x Height x Width of float32:
//
//	sample[c][y][x] = (byte/255 - Mean[c]) / Std[c]
//
// Its random numbers depend on Seed, the epoch and the number of the sample alone. So they are the
// same for any number of ranks and workers, and after resuming. Scaling is by a triangle filter
// that averages when it shrinks, as Pillow's bilinear filter does.
type Transform struct {
	Height, Width int       // of a sample; both 0 mean those of the images, which then must be equal
	Crop          Crop      // 0 means CropNone
	Resize        int       // for CropCenter: pixels of the shorter side; 0 means that it is not scaled
	Padding       int       // for CropRandom
	MinArea       float64   // for CropRandomResized; 0 means 0.08
	Flip          bool      // mirror every second sample, at random, left to right
	Mean, Std     []float32 // of the channels, for bytes/255; nil means 0 and 1
	Seed          int64     // of the random numbers
}

// maxPixels bounds the pixels of a decoded image and of a sample: larger ones are damaged headers
// or attacks on memory.
const maxPixels = 1 << 28

// Validate checks t for images with so many channels.
//
// Errors: dist.ErrInvalid naming the field.
func (t Transform) Validate(channels int) error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("transform: %w: "+format, append([]any{dist.ErrInvalid}, args...)...)
	}
	sized := t.Height > 0 && t.Width > 0
	switch {
	case !sized && (t.Height != 0 || t.Width != 0), sized && t.Height > maxPixels/t.Width:
		return bad("a sample of %dx%d pixels", t.Height, t.Width)
	case t.Crop < CropNone || t.Crop > CropRandomResized:
		return bad("unknown crop %v", t.Crop)
	case t.Resize < 0 || t.Resize > 0 && t.Crop != CropCenter:
		return bad("Resize %d with crop %v; it is for CropCenter", t.Resize, t.Crop)
	case t.Padding < 0 || t.Padding > 0 && t.Crop != CropRandom:
		return bad("Padding %d with crop %v; it is for CropRandom", t.Padding, t.Crop)
	case !(t.MinArea >= 0 && t.MinArea <= 1) || t.MinArea > 0 && t.Crop != CropRandomResized:
		return bad("MinArea %v with crop %v; it is for CropRandomResized, from 0 to 1", t.MinArea, t.Crop)
	case t.Resize > 0 && sized && t.Resize < max(t.Height, t.Width):
		return bad("Resize %d is less than the sample's %dx%d pixels", t.Resize, t.Height, t.Width)
	}
	if t.Mean != nil && len(t.Mean) != channels || t.Std != nil && len(t.Std) != channels {
		return bad("Mean has %d numbers and Std %d for %d channels", len(t.Mean), len(t.Std), channels)
	}
	for _, s := range t.Std {
		if !(s > 0) || s > math.MaxFloat32 {
			return bad("Std has %v, want finite numbers above 0", s)
		}
	}
	return nil
}

// raster is a decoded image: byte c of pixel (x, y) is at c*plane + y*line + x*pixel.
type raster struct {
	bytes              []byte
	height, width      int
	plane, line, pixel int
}

// place is a rectangle of an image, and the rectangle of the sample that it fills. It may reach out
// of the sample.
type place struct{ from, to image.Rectangle }

// scaled reports whether the sizes differ.
func (p place) scaled() bool { return p.from.Size() != p.to.Size() }

// randomness has the random numbers of a sample.
type randomness struct{ source rand.ChaCha8 }

// seed begins the numbers of a sample in an epoch. Checkpoints rely on them, so they never change:
// ChaCha8 (c2sp.org/chacha8rand) with the key "symgrad1" ++ seed ++ epoch ++ sample, the integers
// as 8 bytes, little-endian.
func (r *randomness) seed(seed int64, epoch, sample int) {
	var key [32]byte
	copy(key[:], "symgrad1")
	binary.LittleEndian.PutUint64(key[8:], uint64(seed))
	binary.LittleEndian.PutUint64(key[16:], uint64(epoch))
	binary.LittleEndian.PutUint64(key[24:], uint64(sample))
	r.source.Seed(key)
}

// below returns a number from 0 to n-1.
func (r *randomness) below(n int) int { return int(below64(&r.source, uint64(n))) }

// between returns a number from lo to hi.
func (r *randomness) between(lo, hi float64) float64 {
	return lo + (hi-lo)*float64(r.source.Uint64()>>11)/(1<<53)
}

// size returns the size of a sample from an image.
func (t *Transform) size(height, width int) (h, w int) {
	if t.Height == 0 {
		return height, width
	}
	return t.Height, t.Width
}

// choose returns the place of a sample in an image.
//
// Errors: dist.ErrInvalid for an image that is too small, or has another size with CropNone.
func (t *Transform) choose(r *randomness, height, width int) (place, error) {
	h, w := t.size(height, width)
	whole := image.Rect(0, 0, width, height)
	switch t.Crop {
	case CropCenter:
		rows, cols := height, width
		if t.Resize > 0 {
			short := min(height, width)
			rows, cols = height*t.Resize/short, width*t.Resize/short
		}
		if rows < h || cols < w {
			return place{}, tooSmall(height, width, h, w)
		}
		top, left := int(math.RoundToEven(float64(rows-h)/2)), int(math.RoundToEven(float64(cols-w)/2))
		return place{whole, image.Rect(-left, -top, cols-left, rows-top)}, nil
	case CropRandom:
		down, right := height+2*t.Padding-h, width+2*t.Padding-w
		if down < 0 || right < 0 {
			return place{}, tooSmall(height, width, h, w)
		}
		top, left := t.Padding-r.below(down+1), t.Padding-r.below(right+1)
		return place{whole, image.Rect(left, top, left+width, top+height)}, nil
	case CropRandomResized:
		return place{t.part(r, height, width), image.Rect(0, 0, w, h)}, nil
	}
	if height != h || width != w {
		return place{}, fmt.Errorf("%w: the image has %dx%d pixels, a sample %dx%d: choose a crop", dist.ErrInvalid, height, width, h, w)
	}
	return place{whole, whole}, nil
}

func tooSmall(height, width, h, w int) error {
	return fmt.Errorf("%w: the image has %dx%d pixels, less than a sample of %dx%d: scale it, or choose smaller samples", dist.ErrInvalid, height, width, h, w)
}

// part returns a random part of an image, as torchvision's RandomResizedCrop chooses it (Szegedy et
// al., Going Deeper with Convolutions, 2014, section 6).
func (t *Transform) part(r *randomness, height, width int) image.Rectangle {
	least := t.MinArea
	if least == 0 {
		least = 0.08
	}
	widest := math.Log(4. / 3)
	for range 10 {
		area := float64(height) * float64(width) * r.between(least, 1)
		ratio := math.Exp(r.between(-widest, widest))
		w, h := int(math.Round(math.Sqrt(area*ratio))), int(math.Round(math.Sqrt(area/ratio)))
		if w > 0 && w <= width && h > 0 && h <= height {
			top := r.below(height - h + 1)
			left := r.below(width - w + 1)
			return image.Rect(left, top, left+w, top+h)
		}
	}
	h, w := height, width // the middle, of a ratio within the bounds
	if 3*w > 4*h {
		w = max(h*4/3, 1)
	} else if 4*w < 3*h {
		h = max(w*4/3, 1)
	}
	top, left := (height-h)/2, (width-w)/2
	return image.Rect(left, top, left+w, top+h)
}

// tables returns the numbers of all bytes, by channel.
func (t *Transform) tables(channels int) [][256]float32 {
	all := make([][256]float32, channels)
	for c := range all {
		mean, std := float32(0), float32(1)
		if t.Mean != nil {
			mean = t.Mean[c]
		}
		if t.Std != nil {
			std = t.Std[c]
		}
		for b := range all[c] {
			all[c][b] = (float32(b)/255 - mean) / std
		}
	}
	return all
}

// window is a place in a sample of h rows and w columns, mirrored or not.
type window struct {
	place
	h, w   int
	mirror bool
}

// write writes the numbers of an image, without scaling. Pixels outside the image are black.
func (n window) write(into []float32, src raster, tables [][256]float32) {
	at := n.to.Intersect(image.Rect(0, 0, n.w, n.h))
	for c := range tables {
		table := &tables[c]
		for y := range n.h {
			row := into[(c*n.h+y)*n.w:][:n.w]
			if at.Dx() < n.w || y < at.Min.Y || y >= at.Max.Y {
				for x := range row {
					row[x] = table[0]
				}
			}
			if y < at.Min.Y || y >= at.Max.Y {
				continue
			}
			from := src.bytes[c*src.plane+(y-n.to.Min.Y+n.from.Min.Y)*src.line:]
			i := (at.Min.X - n.to.Min.X + n.from.Min.X) * src.pixel
			for x := at.Min.X; x < at.Max.X; x++ {
				row[x] = table[from[i]]
				i += src.pixel
			}
			if n.mirror {
				for lo, hi := 0, n.w-1; lo < hi; lo, hi = lo+1, hi-1 {
					row[lo], row[hi] = row[hi], row[lo]
				}
			}
		}
	}
}

// paint draws the place of src into the sample's pixels, over black, and scales it.
func (n window) paint(into *image.RGBA, src image.Image) {
	clear(into.Pix)
	from := n.from.Add(src.Bounds().Min)
	if !n.scaled() {
		draw.Draw(into, n.to, src, from.Min, draw.Src)
		return
	}
	draw.BiLinear.Scale(into, n.to, src, from, draw.Src, nil)
}
