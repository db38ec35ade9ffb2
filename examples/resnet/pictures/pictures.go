// Package pictures opens the images of examples/resnet, by the settings of a run: CIFAR-10,
// CIFAR-100, or a folder of images.
package pictures

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/symgrad/symgrad/config"
	"github.com/symgrad/symgrad/data"
	"github.com/symgrad/symgrad/train"
)

// Set is the training and test images of data.path.
type Set struct {
	Train, Test data.Dataset // fields image and label; Train changes images at random with data.augment
	Classes     int
	Side        int          // rows and columns of a sample
	Small       bool         // of CIFAR: the network has a small first convolution
	Digest      string       // of the training images
	About       string       // in a few words
	Close       func() error // unmaps the files
}

// The sides of samples.
const (
	cifarSide  = 32
	folderSide = 224
	cropRatio  = 256. / 224 // the shorter side of a test image before its crop (He et al., section 3.4)
)

// Means and deviations of the channels of the training images, for bytes/255. For folders they are
// those of ImageNet, as in torchvision's presets.
var (
	meanCIFAR, stdCIFAR       = []float32{0.4914, 0.4822, 0.4465}, []float32{0.2470, 0.2435, 0.2616}
	meanImageNet, stdImageNet = []float32{0.485, 0.456, 0.406}, []float32{0.229, 0.224, 0.225}
)

// isFolder reports whether data.path is a folder of images.
func isFolder(path string) bool {
	info, err := os.Stat(filepath.Join(path, "train"))
	return err == nil && info.IsDir()
}

// Open opens the images of data.path.
//
// Owns: the caller closes the set. Errors: os.ErrNotExist for missing files, with what to set;
// train.ErrUsage for settings that do not fit; those of data.OpenCIFAR and data.OpenImageFolder.
func Open(c *config.Config) (p *Set, err error) {
	switch _, missing := os.Stat(c.Data.Path); {
	case missing != nil:
		err = missing
	case isFolder(c.Data.Path):
		p, err = openFolder(c)
	default:
		p, err = openCIFAR(c)
	}
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%w; set data.path to a folder with the binary files of CIFAR-10 or CIFAR-100, or with train/CLASS/IMAGE.jpg and val/CLASS/IMAGE.jpg", err)
	}
	return p, err
}

func openCIFAR(c *config.Config) (*Set, error) {
	if s := c.Data.ImageSize; s != 0 && s != cifarSide {
		return nil, train.Usage("data.image_size=%d: images of CIFAR have %d rows and columns; set 0", s, cifarSide)
	}
	plain := data.Transform{Mean: meanCIFAR, Std: stdCIFAR, Seed: c.Run.Seed}
	random := plain
	if c.Data.Augment {
		random.Crop, random.Padding, random.Flip = data.CropRandom, 4, true
	}
	learned, err := data.OpenCIFAR(data.CIFARConfig{Dir: c.Data.Path, Transform: random})
	if err != nil {
		return nil, err
	}
	tests, err := data.OpenCIFAR(data.CIFARConfig{Dir: c.Data.Path, Test: true, Transform: plain})
	if err != nil {
		return nil, errors.Join(err, learned.Close())
	}
	p := &Set{Train: learned, Test: tests, Classes: len(learned.Classes()), Side: cifarSide, Small: true}
	p.Close = func() error { return errors.Join(learned.Close(), tests.Close()) }
	if p.Digest, err = learned.Digest(); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	p.About = fmt.Sprintf("%s: CIFAR-%d", c.Data.Path, p.Classes)
	return p, nil
}

func openFolder(c *config.Config) (*Set, error) {
	side := c.Data.ImageSize
	if side == 0 {
		side = folderSide
	}
	plain := data.Transform{
		Height: side, Width: side, Crop: data.CropCenter, Resize: int(float64(side)*cropRatio + 0.5),
		Mean: meanImageNet, Std: stdImageNet, Seed: c.Run.Seed,
	}
	random := plain
	if c.Data.Augment {
		random.Crop, random.Resize, random.Flip = data.CropRandomResized, 0, true
	}
	learned, err := data.OpenImageFolder(data.FolderConfig{Dir: filepath.Join(c.Data.Path, "train"), Transform: random})
	if err != nil {
		return nil, err
	}
	tests, err := data.OpenImageFolder(data.FolderConfig{Dir: filepath.Join(c.Data.Path, "val"), Classes: learned.Classes(), Transform: plain})
	if err != nil {
		return nil, err
	}
	return &Set{
		Train: learned, Test: tests, Classes: len(learned.Classes()), Side: side, Digest: learned.Digest(),
		Close: func() error { return nil }, // each file is closed when it is read
		About: fmt.Sprintf("%s: images of %d classes, as %dx%d", c.Data.Path, len(learned.Classes()), side, side),
	}, nil
}
