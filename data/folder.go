package data

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"image"
	"image/jpeg"
	"image/png"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/foreign"
)

// FolderConfig names a folder of images.
type FolderConfig struct {
	Dir     string   // has one folder for each class
	Classes []string // names of the classes, in the order of the labels; nil means the folders, sorted by name
	Transform
}

// ImageFolder is a Dataset of JPEG and PNG files, in one folder for each class. Its fields are
// "image", float32 of 3 x height x width, and "label", one int. Grey images get three equal
// channels, and transparent pixels are drawn over black. The orientation in EXIF is not used, as in
// torchvision.
//
// Concurrency: any number of goroutines.
type ImageFolder struct {
	*sampling
	dir     string
	classes []string
	files   []string // below dir, sorted by class and path
	labels  []int
}

// maxImageBytes bounds the size of a file.
const maxImageBytes = 1 << 30

// OpenImageFolder lists the images of a folder. Files are read with their samples.
//
// Folders in a class belong to it. Names that begin with a dot are skipped. Errors: dist.ErrInvalid
// for a folder without classes, a class without images or outside Classes, a file whose name does
// not end in .jpg, .jpeg or .png, and a transform that does not fit; those of the file system.
func OpenImageFolder(c FolderConfig) (*ImageFolder, error) {
	f := &ImageFolder{dir: c.Dir, classes: slices.Clone(c.Classes)}
	var err error
	if f.sampling, err = newSampling(c.Transform, 3, 0, 0); err != nil {
		return nil, fmt.Errorf("image folder: %w", err)
	}
	if err := f.list(); err != nil {
		return nil, fmt.Errorf("image folder: %w", err)
	}
	return f, nil
}

// list fills files and labels.
func (f *ImageFolder) list() error {
	entries, err := os.ReadDir(f.dir) // sorted
	if err != nil {
		return err
	}
	given := f.classes != nil
	for _, e := range entries {
		path := filepath.Join(f.dir, e.Name())
		isDir, err := isFolder(path, e)
		switch {
		case err != nil:
			return err
		case strings.HasPrefix(e.Name(), "."):
			continue
		case !isDir && isImage(e.Name()):
			return fmt.Errorf("%w: %s is in no folder of a class: move it into one", dist.ErrInvalid, path)
		case !isDir:
			continue // a text about the data
		}
		label := slices.Index(f.classes, e.Name())
		if !given {
			label = len(f.classes)
			f.classes = append(f.classes, e.Name())
		}
		if label < 0 {
			return fmt.Errorf("%w: folder %s is not one of the %d classes: remove it, or add its name", dist.ErrInvalid, path, len(f.classes))
		}
		before := len(f.files)
		if err := f.walk(e.Name(), label, 0); err != nil {
			return err
		}
		if len(f.files) == before {
			return fmt.Errorf("%w: folder %s has no .jpg, .jpeg or .png: remove it, or add images of the class", dist.ErrInvalid, path)
		}
	}
	if len(f.files) == 0 {
		return fmt.Errorf("%w: %s has no folder for a class: want %s", dist.ErrInvalid, f.dir, filepath.Join(f.dir, "CLASS", "IMAGE.jpg"))
	}
	return nil
}

// maxDepth bounds the depth of folders in a class, which links may make endless.
const maxDepth = 16

// walk appends the images of a folder below dir.
func (f *ImageFolder) walk(folder string, label, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("%w: %s: folders are more than %d deep: is a link to a folder above it there?", dist.ErrInvalid, filepath.Join(f.dir, folder), maxDepth)
	}
	entries, err := os.ReadDir(filepath.Join(f.dir, folder))
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := filepath.Join(folder, e.Name())
		isDir, err := isFolder(filepath.Join(f.dir, name), e)
		switch {
		case err != nil:
			return err
		case strings.HasPrefix(e.Name(), "."):
		case isDir:
			if err := f.walk(name, label, depth+1); err != nil {
				return err
			}
		case !isImage(e.Name()):
			return fmt.Errorf("%w: %s does not end in .jpg, .jpeg or .png: remove or convert it", dist.ErrInvalid, filepath.Join(f.dir, name))
		default:
			f.files, f.labels = append(f.files, name), append(f.labels, label)
		}
	}
	return nil
}

// isFolder reports whether an entry is a folder, or a link to one.
func isFolder(path string, e fs.DirEntry) (bool, error) {
	if e.Type()&fs.ModeSymlink == 0 {
		return e.IsDir(), nil
	}
	info, err := os.Stat(path)
	if err != nil {
		return false, err
	}
	return info.IsDir(), nil
}

// isImage reports whether a file is an image by its name.
func isImage(name string) bool {
	switch strings.ToLower(filepath.Ext(name)) {
	case ".jpg", ".jpeg", ".png":
		return true
	}
	return false
}

// Len returns the number of images.
func (f *ImageFolder) Len() int { return len(f.files) }

// Classes returns the names of the classes, in the order of the labels.
func (f *ImageFolder) Classes() []string { return slices.Clone(f.classes) }

// Path returns the file of image i.
func (f *ImageFolder) Path(i int) string { return filepath.Join(f.dir, f.files[i]) }

// Label returns the label of image i.
func (f *ImageFolder) Label(i int) int { return f.labels[i] }

// Digest identifies the files by the SHA-256 of their names and labels. It does not read them.
func (f *ImageFolder) Digest() string {
	h := sha256.New() // writing to a hash cannot fail
	for i, name := range f.files {
		fmt.Fprintf(h, "%q %d\n", filepath.ToSlash(name), f.labels[i])
	}
	return fmt.Sprintf("SHA-256 of the names of %d images: %x", f.Len(), h.Sum(nil))
}

// Read decodes image i, as Dataset says.
//
// Errors: those of the file system; dist.ErrInvalid for a file that is damaged, cut or in another
// format, naming it and about the byte, and for an image that is too small for the transform.
func (f *ImageFolder) Read(i, epoch int, row []Values) error {
	if i < 0 || i >= f.Len() {
		return fmt.Errorf("image folder: %w: image %d of %d", dist.ErrInvalid, i, f.Len())
	}
	k := f.borrow()
	defer f.give(k)
	if err := f.read(i, epoch, row, k); err != nil {
		return fmt.Errorf("image folder: %s: %w", f.Path(i), err)
	}
	return nil
}

func (f *ImageFolder) read(i, epoch int, row []Values, k *scratch) error {
	if err := k.readFile(f.Path(i)); err != nil {
		return err
	}
	src, err := decode(k.file)
	if err != nil {
		return err
	}
	b := src.Bounds()
	n, err := f.window(&k.random, i, epoch, b.Dy(), b.Dx())
	if err != nil {
		return err
	}
	row[1].Int[0] = f.labels[i]
	f.fromImage(row[0].Float32, src, n, k)
	return nil
}

// readFile reads a file into k.file.
func (k *scratch) readFile(path string) (err error) {
	in, err := foreign.Open(path)
	if err == nil {
		defer func() { err = errors.Join(err, in.Close()) }()
		var info fs.FileInfo
		if info, err = in.Stat(); err == nil && info.Size() > maxImageBytes {
			err = fmt.Errorf("%w: %d bytes are more than the %d that an image may have", dist.ErrInvalid, info.Size(), maxImageBytes)
		}
		if err == nil {
			k.file = slices.Grow(k.file[:0], int(info.Size()))[:info.Size()]
			_, err = io.ReadFull(in, k.file)
		}
	}
	var of *fs.PathError
	if errors.As(err, &of) {
		err = of.Err // the caller names the file
	}
	return err
}

// decode decodes a JPEG or PNG, which its first bytes tell apart.
func decode(file []byte) (image.Image, error) {
	in := bytes.NewReader(file)
	format, config, full := "JPEG", jpeg.DecodeConfig, jpeg.Decode
	switch {
	case bytes.HasPrefix(file, []byte("\x89PNG\r\n\x1a\n")):
		format, config, full = "PNG", png.DecodeConfig, png.Decode
	case !bytes.HasPrefix(file, []byte("\xff\xd8")):
		return nil, fmt.Errorf("%w: its first bytes are of no JPEG or PNG%s: remove or replace it", dist.ErrInvalid, kindOf(file))
	}
	damaged := func(err error) error {
		return fmt.Errorf("%w: damaged %s at about byte %d of %d: %w: remove or replace it", dist.ErrInvalid, format, int64(len(file))-int64(in.Len()), len(file), err)
	}
	c, err := config(in)
	if err != nil {
		return nil, damaged(err)
	}
	if c.Width < 1 || c.Height < 1 || c.Width > maxPixels/c.Height {
		return nil, damaged(fmt.Errorf("%dx%d pixels, want 1 to %d", c.Height, c.Width, maxPixels))
	}
	in.Reset(file)
	src, err := full(in)
	if err != nil {
		return nil, damaged(noEOF(err))
	}
	return src, nil
}
