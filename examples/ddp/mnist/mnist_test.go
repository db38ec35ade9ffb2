package mnist

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"pgregory.net/rapid"
)

// idx is an idx file of unsigned bytes.
func idx(data []byte, dims ...int) []byte {
	b := []byte{0, 0, 8, byte(len(dims))}
	for _, d := range dims {
		b = binary.BigEndian.AppendUint32(b, uint32(d))
	}
	return append(b, data...)
}

func gzipped(t testing.TB, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// files is a data set of 3 training and 2 test images of 2x2 pixels, by file name.
func files() map[string][]byte {
	return map[string][]byte{
		"train-images-idx3-ubyte": idx([]byte{0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 110}, 3, 2, 2),
		"train-labels-idx1-ubyte": idx([]byte{9, 0, 4}, 3),
		"t10k-images-idx3-ubyte":  idx([]byte{1, 2, 3, 4, 5, 6, 7, 8}, 2, 2, 2),
		"t10k-labels-idx1-ubyte":  idx([]byte{1, 2}, 2),
	}
}

func write(t *testing.T, files map[string][]byte) string {
	t.Helper()
	dir := t.TempDir()
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func load(t *testing.T) *Data {
	t.Helper()
	d, err := Load(write(t, files()))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestLoadReadsTheFourFiles(t *testing.T) {
	zipped := map[string][]byte{}
	for name, data := range files() {
		zipped[name+".gz"] = gzipped(t, data)
	}
	for name, set := range map[string]map[string][]byte{"plain": files(), "gzip": zipped} {
		dir := write(t, set)
		if err := Find(dir); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		d, err := Load(dir)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if d.Train.Len() != 3 || d.Test.Len() != 2 || d.Train.Pixels() != 4 || d.Train.Rows != 2 {
			t.Errorf("%s: %d training and %d test images of %d pixels", name, d.Train.Len(), d.Test.Len(), d.Train.Pixels())
		}
		if d.Train.Label(0) != 9 || d.Train.Label(2) != 4 || d.Test.Label(1) != 2 {
			t.Errorf("%s: wrong labels", name)
		}
	}
}

func TestLoadRefusesFilesThatDoNotFit(t *testing.T) {
	for _, test := range []struct {
		name, file string
		data       []byte // nil removes it
		want       string
		is         error
	}{
		{"missing images", "train-images-idx3-ubyte", nil, "train-images-idx3-ubyte and its .gz are missing", os.ErrNotExist},
		{"missing labels", "t10k-labels-idx1-ubyte", nil, "t10k-labels-idx1-ubyte and its .gz are missing", os.ErrNotExist},
		{"truncated", "t10k-images-idx3-ubyte", files()["t10k-images-idx3-ubyte"][:20], "damaged: data ends after 4 of 8 bytes", io.ErrUnexpectedEOF},
		{"images for labels", "train-labels-idx1-ubyte", files()["train-images-idx3-ubyte"], "want an idx file", nil},
		{"a label too few", "train-labels-idx1-ubyte", idx([]byte{1, 2}, 2), "train has 3 images but 2 labels", nil},
		{"a label out of range", "train-labels-idx1-ubyte", idx([]byte{1, 10, 2}, 3), "train label 1 is 10, not 0 to 9", nil},
		{"another size", "t10k-images-idx3-ubyte", idx(make([]byte, 12), 2, 3, 2), "training images are 2x2, test images 3x2", nil},
	} {
		set := files()
		if delete(set, test.file); test.data != nil {
			set[test.file] = test.data
		}
		dir := write(t, set)
		_, err := Load(dir)
		if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), "run `make data`") {
			t.Errorf("%s: error %v, want one with %q and what to run", test.name, err, test.want)
		}
		if test.is != nil && !errors.Is(err, test.is) {
			t.Errorf("%s: error %v is no %v", test.name, err, test.is)
		}
		if found := Find(dir); (found != nil) != errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: Find says %v, Load %v", test.name, found, err)
		}
	}
}

func TestLoadTellsWhatKeepsItFromReading(t *testing.T) {
	dir := write(t, files())
	path := filepath.Join(dir, "train-images-idx3-ubyte")
	if err := errors.Join(os.Remove(path), os.Mkdir(path, 0o700)); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(dir); err == nil || errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), path) {
		t.Errorf("a folder in place of a file: %v", err)
	}
	if err := errors.Join(os.Remove(path), syscall.Mkfifo(path, 0o600)); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(dir); err == nil || !strings.Contains(err.Error(), path+": not a regular file: it is a named pipe") {
		t.Errorf("a pipe that nothing is written to: %v", err)
	}
	const pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12\n"
	if err := errors.Join(os.Remove(path), os.WriteFile(path, []byte(pointer), 0o600)); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(dir); err == nil || !strings.Contains(err.Error(), "not an idx file: it is a Git LFS pointer") {
		t.Errorf("a pointer: %v", err)
	}
}

func TestPixelsHaveZeroMeanAndUnitVariance(t *testing.T) {
	s := load(t).Train
	x, y, w := buffers(s, s.Len())
	if err := s.Fill(x, y, w, []int{0, 1, 2}); err != nil {
		t.Fatal(err)
	}
	var sum, squares float64
	for _, v := range x {
		sum += float64(v)
		squares += float64(v) * float64(v)
	}
	n := float64(len(x))
	if math.Abs(sum/n) > 1e-6 || math.Abs(squares/n-1) > 1e-6 {
		t.Errorf("mean %v, variance %v", sum/n, squares/n)
	}
}

// A set of one colour has no scale; it must not become NaN.
func TestConstantImagesAreZero(t *testing.T) {
	set := files()
	set["train-images-idx3-ubyte"] = idx([]byte{7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7}, 3, 2, 2)
	d, err := Load(write(t, set))
	if err != nil {
		t.Fatal(err)
	}
	x, y, w := buffers(d.Train, 1)
	if err := d.Train.Fill(x, y, w, []int{1}); err != nil || slices.ContainsFunc(x, func(v float32) bool { return v != 0 }) {
		t.Errorf("pixels %v, %v", x, err)
	}
}

func TestSHA256IsOfEverythingThatTrains(t *testing.T) {
	want := load(t).SHA256()
	if load(t).SHA256() != want {
		t.Error("the same files have different sums")
	}
	for name := range files() {
		set := files()
		set[name][len(set[name])-1] ^= 1
		d, err := Load(write(t, set))
		if err != nil {
			t.Fatal(err)
		}
		if d.SHA256() == want {
			t.Errorf("another last byte of %s has the same sum", name)
		}
	}
}

func TestFirstIsAPrefixWithTheSameScale(t *testing.T) {
	s := load(t).Train
	for n, want := range map[int]int{-1: 0, 0: 0, 2: 2, 3: 3, 9: 3} {
		part := s.First(n)
		if part.Len() != want {
			t.Fatalf("First(%d) has %d samples", n, part.Len())
		}
		if want < 2 {
			continue
		}
		x, y, w := buffers(s, 1)
		px, py, pw := buffers(s, 1)
		if err := errors.Join(s.Fill(x, y, w, []int{1}), part.Fill(px, py, pw, []int{1})); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(x, px) || !slices.Equal(y, py) {
			t.Errorf("sample 1 of First(%d) is another", n)
		}
		if err := part.Fill(px, py, pw, []int{want}); err == nil {
			t.Errorf("First(%d) has a sample %d", n, want)
		}
	}
}

func buffers(s *Set, rows int) (x, y, w []float32) {
	dirty := func(n int) []float32 { return slices.Repeat([]float32{42}, n) }
	return dirty(rows * s.Pixels()), dirty(rows * Classes), dirty(rows)
}

// Fill writes the given samples in order, and sets all other rows to zero.
func TestFillWritesSamplesAndZeroesTheRest(t *testing.T) {
	s := load(t).Train
	rapid.Check(t, func(t *rapid.T) {
		indices := rapid.SliceOfN(rapid.IntRange(0, s.Len()-1), 0, 6).Draw(t, "indices")
		rows := len(indices) + rapid.IntRange(0, 3).Draw(t, "padding")
		x, y, w := buffers(s, rows)
		if err := s.Fill(x, y, w, indices); err != nil {
			t.Fatal(err)
		}
		var weights float64
		for r := range rows {
			row, hot := x[r*4:r*4+4], y[r*Classes:(r+1)*Classes]
			weights += float64(w[r])
			if r >= len(indices) {
				if slices.ContainsFunc(append(slices.Clone(row), hot...), func(v float32) bool { return v != 0 }) || w[r] != 0 {
					t.Fatalf("row %d of padding is %v %v, weight %v", r, row, hot, w[r])
				}
				continue
			}
			i := indices[r]
			for j, v := range row {
				if want := (float32(s.pixels[i*4+j]) - s.mean) * s.scale; v != want {
					t.Fatalf("pixel %d of sample %d is %v, want %v", j, i, v, want)
				}
			}
			for c, v := range hot {
				if (v == 1) != (c == s.Label(i)) || v != 0 && v != 1 {
					t.Fatalf("sample %d with label %d has %v", i, s.Label(i), hot)
				}
			}
		}
		if want := min(1, float64(len(indices))); math.Abs(weights-want) > 1e-6 {
			t.Fatalf("weights sum to %v, want %v", weights, want)
		}
	})
}

func TestFillRefusesWhatDoesNotFit(t *testing.T) {
	s := load(t).Train
	for _, test := range []struct {
		name            string
		x, y, w, sample int
		n               int
	}{
		{"more samples than rows", 4, 10, 1, 0, 2},
		{"x of another size", 5, 10, 1, 0, 1},
		{"y of another size", 4, 9, 1, 0, 1},
		{"a sample that is not there", 4, 10, 1, 3, 1},
		{"a negative sample", 4, 10, 1, -1, 1},
	} {
		err := s.Fill(make([]float32, test.x), make([]float32, test.y), make([]float32, test.w), slices.Repeat([]int{test.sample}, test.n))
		if err == nil || !strings.HasPrefix(err.Error(), "mnist: ") {
			t.Errorf("%s: %v", test.name, err)
		}
	}
}

// The real files, where they are.
func TestLoadReadsMNIST(t *testing.T) {
	const dir = "../../../data/mnist"
	if err := Find(dir); err != nil {
		if os.Getenv("SYMGRAD_REQUIRE_DATA") == "1" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	d, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	if d.Train.Len() != 60000 || d.Test.Len() != 10000 || d.Train.Rows != 28 || d.Train.Cols != 28 {
		t.Errorf("%d training and %d test images of %dx%d", d.Train.Len(), d.Test.Len(), d.Train.Rows, d.Train.Cols)
	}
	// The known mean and standard deviation of MNIST's pixels, from 0 to 1.
	if mean, std := float64(d.Train.mean)/255, 1/float64(d.Train.scale)/255; math.Abs(mean-0.1307) > 1e-4 || math.Abs(std-0.3081) > 1e-4 {
		t.Errorf("mean %v, standard deviation %v", mean, std)
	}
	if d.Train.Label(0) != 5 || d.Test.Label(0) != 7 {
		t.Errorf("first labels %d and %d, want 5 and 7", d.Train.Label(0), d.Test.Label(0))
	}
}
