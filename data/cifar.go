package data

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/foreign"
)

// CIFARConfig names a set of CIFAR images.
type CIFARConfig struct {
	Dir    string // folder with the files of the binary version
	Test   bool   // the test images instead of those for training
	Coarse bool   // of CIFAR-100: labels are the 20 superclasses instead of the 100 classes
	Transform
}

// The format: a record is one label byte (CIFAR-100: two, the superclass and the class), and 3072
// bytes of the image, 3 planes of 32x32.
//
// Source: Krizhevsky, cs.toronto.edu/~kriz/cifar.html ("Binary version").
const (
	cifarSide  = 32
	cifarImage = 3 * cifarSide * cifarSide
)

// cifar is one of the two data sets.
type cifar struct {
	name    string
	classes int
	labels  int    // label bytes of a record
	label   int    // the one that is used
	names   string // file with the names of the classes, which may be missing
}

// OpenCIFAR maps the binary files of CIFAR-10 (data_batch_1.bin, data_batch_2.bin, ... and
// test_batch.bin) or of CIFAR-100 (train.bin and test.bin). The files in the folder tell which one
// it is. Classes have the names of batches.meta.txt or fine_label_names.txt, or numbers.
//
// Owns: the caller closes the images. Errors: os.ErrNotExist for missing files; dist.ErrInvalid for
// a file that does not end with a record or has a label outside the classes, naming file and byte,
// and for a transform that does not fit.
func OpenCIFAR(c CIFARConfig) (m *Images, err error) {
	set, files, err := findCIFAR(c)
	if err != nil {
		return nil, fmt.Errorf("cifar: %w", err)
	}
	m = &Images{height: cifarSide, width: cifarSide, starts: []int{0}}
	if m.sampling, err = newSampling(c.Transform, 3, cifarSide, cifarSide); err != nil {
		return nil, fmt.Errorf("cifar: %w", err)
	}
	if m.classes, err = set.classNames(c.Dir); err != nil {
		return nil, fmt.Errorf("cifar: %w", err)
	}
	for _, path := range files {
		if err := m.addCIFAR(set, path); err != nil {
			return nil, errors.Join(fmt.Errorf("cifar: %w", err), m.Close())
		}
	}
	return m, nil
}

// findCIFAR returns the data set in a folder and the files to read.
func findCIFAR(c CIFARConfig) (set cifar, files []string, err error) {
	exists := func(name string) bool {
		_, err := os.Stat(filepath.Join(c.Dir, name))
		return err == nil
	}
	hundred := exists("train.bin") || exists("test.bin")
	ten := exists("data_batch_1.bin") || exists("test_batch.bin")
	switch {
	case hundred && ten:
		return set, nil, fmt.Errorf("%w: %s has files of CIFAR-10 and of CIFAR-100: give each a folder of its own", dist.ErrInvalid, c.Dir)
	case hundred:
		set = cifar{"CIFAR-100", 100, 2, 1, "fine_label_names.txt"}
		if c.Coarse {
			set = cifar{"CIFAR-100", 20, 2, 0, "coarse_label_names.txt"}
		}
		files = []string{"train.bin"}
		if c.Test {
			files[0] = "test.bin"
		}
	case c.Coarse:
		return set, nil, fmt.Errorf("%w: %s has no files of CIFAR-100, and only that has superclasses", dist.ErrInvalid, c.Dir)
	default:
		set = cifar{"CIFAR-10", 10, 1, 0, "batches.meta.txt"}
		if files = []string{"test_batch.bin"}; !c.Test {
			if files, err = cifarBatches(c.Dir); err != nil {
				return set, nil, err
			}
		}
	}
	for i, name := range files {
		files[i] = filepath.Join(c.Dir, name)
	}
	return set, files, nil
}

// cifarBatches returns the training files of CIFAR-10.
//
// Errors: os.ErrNotExist for a gap in their numbers.
func cifarBatches(dir string) ([]string, error) {
	const pattern = "data_batch_%d.bin"
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	last, have := 1, map[int]bool{}
	for _, e := range entries {
		var k int
		if _, err := fmt.Sscanf(e.Name(), pattern, &k); err == nil && e.Name() == fmt.Sprintf(pattern, k) {
			last, have[k] = max(last, k), true
		}
	}
	var files []string
	for k := 1; k <= last; k++ {
		name := fmt.Sprintf(pattern, k)
		if !have[k] {
			return nil, fmt.Errorf("%s: %w: want the binary version of CIFAR-10 (data_batch_1.bin to data_batch_5.bin) or of CIFAR-100 (train.bin)",
				filepath.Join(dir, name), os.ErrNotExist)
		}
		files = append(files, name)
	}
	return files, nil
}

// classNames returns the names of the classes: those of a file in dir, or numbers.
func (set cifar) classNames(dir string) ([]string, error) {
	path := filepath.Join(dir, set.names)
	text, err := foreign.ReadFile(path, 1<<20)
	if errors.Is(err, os.ErrNotExist) {
		names := make([]string, set.classes)
		for i := range names {
			names[i] = fmt.Sprint(i)
		}
		return names, nil
	}
	if err != nil {
		return nil, err
	}
	var names []string
	for line := range bytes.Lines(text) {
		if name := strings.TrimSpace(string(line)); name != "" {
			names = append(names, name)
		}
	}
	if len(names) != set.classes {
		return nil, fmt.Errorf("%w: %s has %d names of classes, want %d for %s", dist.ErrInvalid, path, len(names), set.classes, set.name)
	}
	return names, nil
}

// addCIFAR maps a file and checks its labels.
func (m *Images) addCIFAR(set cifar, path string) error {
	f, err := openMapped(path)
	if err != nil {
		return err
	}
	record := set.labels + cifarImage
	p := records{
		file: f, images: f.bytes[min(set.labels, len(f.bytes)):], labels: f.bytes[min(set.label, len(f.bytes)):],
		apart: record, labelsApart: record, n: len(f.bytes) / record,
	}
	if rest := len(f.bytes) % record; rest != 0 {
		err = fmt.Errorf("%w: %s: the file ends after %d of %d bytes of image %d, at byte %d%s: it is incomplete, or not of %s",
			dist.ErrInvalid, path, rest, record, p.n, len(f.bytes), kindOf(f.bytes), set.name)
	} else {
		err = m.checkLabels(path, &p, set.label)
	}
	if err != nil {
		return errors.Join(err, f.unmap())
	}
	m.add(p)
	return nil
}
