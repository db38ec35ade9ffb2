package data

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"image"
	"runtime/debug"
	"slices"
	"sync"

	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
)

// sampling makes samples of decoded images.
type sampling struct {
	Transform
	channels, h, w int
	tables         [][256]float32

	mu   sync.Mutex
	free []*scratch // not in use; there are as many as readers at once
}

// scratch is the memory of one goroutine.
type scratch struct {
	random  randomness
	file    []byte
	decoded *image.RGBA // an image in memory that is to be scaled
	painted *image.RGBA // the pixels of a sample
}

// newSampling returns a sampling; height and width are the size of the images, 0 if they differ.
//
// Errors: dist.ErrInvalid for settings that do not fit.
func newSampling(t Transform, channels, height, width int) (*sampling, error) {
	if err := t.Validate(channels); err != nil {
		return nil, err
	}
	s := &sampling{Transform: t, channels: channels, tables: t.tables(channels)}
	s.Mean, s.Std = slices.Clone(t.Mean), slices.Clone(t.Std)
	if s.h, s.w = t.size(height, width); s.h == 0 {
		return nil, fmt.Errorf("transform: %w: Height and Width are 0, and images of a folder may differ: set them", dist.ErrInvalid)
	}
	s.Height, s.Width = s.h, s.w
	return s, nil
}

// borrow returns memory for one sample, until give.
func (s *sampling) borrow() *scratch {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.free); n > 0 {
		k := s.free[n-1]
		s.free = s.free[:n-1]
		return k
	}
	return &scratch{painted: image.NewRGBA(image.Rect(0, 0, s.w, s.h))}
}

func (s *sampling) give(k *scratch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free = append(s.free, k)
}

// Fields returns "image", float32 of channels x height x width, and "label", one int.
func (s *sampling) Fields() []Field {
	return []Field{{"image", gtensor.Float32, []int{s.channels, s.h, s.w}}, {"label", gtensor.Int, nil}}
}

// window returns the place of sample i in an image.
func (s *sampling) window(r *randomness, i, epoch int, height, width int) (n window, err error) {
	r.seed(s.Seed, epoch, i)
	n = window{h: s.h, w: s.w}
	n.place, err = s.choose(r, height, width)
	n.mirror = s.Flip && r.below(2) == 1
	return n, err
}

// fromRaster writes the sample of an image in memory.
func (s *sampling) fromRaster(into []float32, src raster, i, epoch int) error {
	k := s.borrow()
	defer s.give(k)
	n, err := s.window(&k.random, i, epoch, src.height, src.width)
	if err != nil {
		return err
	}
	if !n.scaled() {
		n.write(into, src, s.tables)
		return nil
	}
	if k.decoded == nil {
		k.decoded = image.NewRGBA(image.Rect(0, 0, src.width, src.height))
	}
	src.copyTo(k.decoded)
	s.fromImage(into, k.decoded, n, k)
	return nil
}

// fromImage writes the sample of any image.
func (s *sampling) fromImage(into []float32, src image.Image, n window, k *scratch) {
	n.paint(k.painted, src)
	all := image.Rect(0, 0, s.w, s.h)
	n.place = place{all, all}
	n.write(into, raster{k.painted.Pix, s.h, s.w, 1, k.painted.Stride, 4}, s.tables)
}

// copyTo copies the image into one of the same size. With one channel it is grey.
func (r raster) copyTo(into *image.RGBA) {
	for y := range r.height {
		row := into.Pix[y*into.Stride:]
		for x := range r.width {
			at := y*r.line + x*r.pixel
			red, green, blue := r.bytes[at], r.bytes[at], r.bytes[at]
			if r.plane > 0 {
				green, blue = r.bytes[at+r.plane], r.bytes[at+2*r.plane]
			}
			row[4*x], row[4*x+1], row[4*x+2], row[4*x+3] = red, green, blue, 255
		}
	}
}

// records is a file, or a pair of files, of images of one size and their labels.
type records struct {
	file        mapped // unmap is nil for memory of the process
	images      []byte // from the first image on
	labels      []byte // from the first label on
	apart       int    // bytes from one image to the next
	labelsApart int
	n           int
}

// Images is a Dataset of images of one size, of bytes, with their labels. Its fields are "image",
// float32 of channels x height x width, and "label", one int.
//
// Concurrency: any number of goroutines, except Close.
type Images struct {
	*sampling
	height, width int // of an image
	classes       []string
	parts         []records
	starts        []int // number of the first image of each part, and of the end
}

// Len returns the number of images.
func (m *Images) Len() int { return m.starts[len(m.starts)-1] }

// Size returns the channels, rows and columns of an image in the file.
func (m *Images) Size() (channels, height, width int) { return m.channels, m.height, m.width }

// Classes returns the names of the labels. For idx files they are numbers.
func (m *Images) Classes() []string { return slices.Clone(m.classes) }

// at returns the part that has image i, and its number there.
func (m *Images) at(i int) (*records, int) {
	p, found := slices.BinarySearch(m.starts, i)
	if !found {
		p--
	}
	return &m.parts[p], i - m.starts[p]
}

// Label returns the label of image i.
//
// Errors: dist.ErrInvalid for an image outside the set; a file that was cut, naming it.
func (m *Images) Label(i int) (label int, err error) {
	if i < 0 || i >= m.Len() {
		return 0, fmt.Errorf("images: %w: image %d of %d", dist.ErrInvalid, i, m.Len())
	}
	p, k := m.at(i)
	if label, err = p.label(k); err != nil {
		return 0, fmt.Errorf("images: %s: %w", p.file.path, err)
	}
	return label, nil
}

func (p *records) label(k int) (label int, err error) {
	defer catch(&err)
	defer debug.SetPanicOnFault(onFault())
	return int(p.labels[k*p.labelsApart]), nil
}

// Read reads image i, as Dataset says.
//
// Errors: dist.ErrInvalid for an image outside the set, or too small for the transform; a file that
// was cut, naming it.
func (m *Images) Read(i, epoch int, row []Values) (err error) {
	if i < 0 || i >= m.Len() {
		return fmt.Errorf("images: %w: image %d of %d", dist.ErrInvalid, i, m.Len())
	}
	p, k := m.at(i)
	if err := m.read(p, k, i, epoch, row); err != nil {
		return fmt.Errorf("images: %s: image %d of the file: %w", p.file.path, k, err)
	}
	return nil
}

func (m *Images) read(p *records, k, i, epoch int, row []Values) (err error) {
	defer catch(&err)
	defer debug.SetPanicOnFault(onFault())
	row[1].Int[0] = int(p.labels[k*p.labelsApart])
	plane := 0
	if m.channels > 1 {
		plane = m.height * m.width
	}
	return m.fromRaster(row[0].Float32, raster{p.images[k*p.apart:], m.height, m.width, plane, m.width, 1}, i, epoch)
}

// checkLabels compares all labels with the classes. begin is the byte of the first label.
//
// Errors: dist.ErrInvalid naming file and byte.
func (m *Images) checkLabels(path string, p *records, begin int) (err error) {
	defer catch(&err)
	defer debug.SetPanicOnFault(onFault())
	for k := range p.n {
		if l := int(p.labels[k*p.labelsApart]); l >= len(m.classes) {
			return fmt.Errorf("%w: %s: label %d of image %d, at byte %d; there are %d classes, from 0 on: the file is damaged, or of another data set",
				dist.ErrInvalid, path, l, k, begin+k*p.labelsApart, len(m.classes))
		}
	}
	return nil
}

// add appends a part.
func (m *Images) add(p records) {
	m.parts, m.starts = append(m.parts, p), append(m.starts, m.Len()+p.n)
}

// Digest identifies the images and labels: the SHA-256 of all files, in order. It reads them.
//
// Errors: a file that was cut.
func (m *Images) Digest() (sum string, err error) {
	defer catch(&err)
	defer debug.SetPanicOnFault(onFault())
	h := sha256.New() // writing to a hash cannot fail
	for i := range m.parts {
		p := &m.parts[i]
		fmt.Fprintf(h, "%d %d %d %d\n", p.n, m.channels, m.height, m.width)
		h.Write(p.images)
		for k := range p.n {
			h.Write(p.labels[k*p.labelsApart:][:1])
		}
	}
	return fmt.Sprintf("SHA-256 of %d images: %x", m.Len(), h.Sum(nil)), nil
}

// Close unmaps the files. No other method may run, or be called later.
func (m *Images) Close() error {
	var errs []error
	for _, p := range m.parts {
		if p.file.unmap != nil {
			errs = append(errs, p.file.unmap())
		}
	}
	m.parts, m.starts = nil, []int{0}
	return errors.Join(errs...)
}

// IDXConfig names the two idx files of a set of images with labels.
type IDXConfig struct {
	Images  string // path of a file with 3 dimensions; if it is missing, path.gz is read
	Labels  string // the same, of a file with 1 dimension
	Classes int    // labels are 0 to Classes-1; 0 means 10
	Transform
}

// OpenIDX reads a set of images of one channel, such as MNIST, into memory.
//
// Owns: the caller closes the images. Errors: those of ReadIDX; dist.ErrInvalid for files of
// different lengths, for a label outside the classes, naming file and byte, and for a transform
// that does not fit.
func OpenIDX(c IDXConfig) (*Images, error) {
	images, err := ReadIDX(c.Images, 3)
	if err != nil {
		return nil, fmt.Errorf("idx: %w", err)
	}
	labels, err := ReadIDX(c.Labels, 1)
	if err != nil {
		return nil, fmt.Errorf("idx: %w", err)
	}
	if images.Dims[0] != labels.Dims[0] {
		return nil, fmt.Errorf("idx: %w: %s has %d images, %s %d labels: take both files of one set", dist.ErrInvalid, images.Path, images.Dims[0], labels.Path, labels.Dims[0])
	}
	m := &Images{height: images.Dims[1], width: images.Dims[2], starts: []int{0}}
	if c.Classes == 0 {
		c.Classes = 10
	}
	for i := range c.Classes {
		m.classes = append(m.classes, fmt.Sprint(i))
	}
	p := records{
		file: mapped{path: images.Path}, images: images.Data, labels: labels.Data,
		apart: m.height * m.width, labelsApart: 1, n: images.Dims[0],
	}
	if err := m.checkLabels(labels.Path, &p, 8); err != nil {
		return nil, fmt.Errorf("idx: %w", err)
	}
	if m.sampling, err = newSampling(c.Transform, 1, m.height, m.width); err != nil {
		return nil, fmt.Errorf("idx: %w", err)
	}
	m.add(p)
	return m, nil
}
