package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/symgrad/symgrad/config"
	"github.com/symgrad/symgrad/data"
	"github.com/symgrad/symgrad/train"
)

// pictures are the training and test images of data.path.
type pictures struct {
	train, test data.Dataset
	classes     int
	side        int    // rows and columns of a sample
	small       bool   // of CIFAR
	digest      string // of the training images
	about       string
	close       func() error // unmaps the files
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

// openPictures opens the images of data.path.
//
// Owns: the files stay open until the process ends.
func openPictures(c *config.Config) (p *pictures, err error) {
	if isFolder(c.Data.Path) {
		p, err = openFolder(c)
	} else {
		p, err = openCIFAR(c)
	}
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%w; set data.path to a folder with the binary files of CIFAR-10 or CIFAR-100, or with train/CLASS/IMAGE.jpg and val/CLASS/IMAGE.jpg", err)
	}
	return p, err
}

func openCIFAR(c *config.Config) (*pictures, error) {
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
	p := &pictures{train: learned, test: tests, classes: len(learned.Classes()), side: cifarSide, small: true}
	p.close = func() error { return errors.Join(learned.Close(), tests.Close()) }
	if p.digest, err = learned.Digest(); err != nil {
		return nil, errors.Join(err, p.close())
	}
	p.about = fmt.Sprintf("%s: CIFAR-%d", c.Data.Path, p.classes)
	return p, nil
}

func openFolder(c *config.Config) (*pictures, error) {
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
	return &pictures{
		train: learned, test: tests, classes: len(learned.Classes()), side: side, digest: learned.Digest(),
		close: func() error { return nil }, // each file is closed when it is read
		about: fmt.Sprintf("%s: images of %d classes, as %dx%d", c.Data.Path, len(learned.Classes()), side, side),
	}, nil
}
