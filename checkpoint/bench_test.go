package checkpoint

import (
	"crypto/sha256"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/symgrad/symgrad/tensor"
)

// benchBytes is the size of the one tensor of the benchmarks.
const benchBytes = 128 << 20

func benchTensor() (Tensor, tensor.Buffer) {
	data := make([]float32, benchBytes/4)
	for i := range data {
		data[i] = float32(i)
	}
	return Tensor{Name: "w", Role: Param, DType: tensor.F32, Shape: []int{len(data)}}, tensor.Of(data)
}

// BenchmarkWrite is a save with its flush, compared with a flushed copy of a file of the same size.
func BenchmarkWrite(b *testing.B) {
	w, data := benchTensor()
	for _, async := range []bool{false, true} {
		name := map[bool]string{false: "save", true: "save-async"}[async]
		b.Run(name, func(b *testing.B) {
			s, err := New(Options{Dir: b.TempDir(), Keep: 1, Async: async})
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(benchBytes)
			step := 0
			for b.Loop() {
				step++
				if err := s.Save(Meta{Step: step}, []Run{{Tensor: w, Len: data.Len(), Data: data}}); err != nil {
					b.Fatal(err)
				}
				if err := s.Wait(); err != nil {
					b.Fatal(err)
				}
			}
			closed(b, s)
		})
	}
	b.Run("copy", func(b *testing.B) {
		dir := b.TempDir()
		from := filepath.Join(dir, "from")
		if err := os.WriteFile(from, data.Raw(), 0o666); err != nil {
			b.Fatal(err)
		}
		b.SetBytes(benchBytes)
		for b.Loop() {
			if err := copyFile(from, filepath.Join(dir, "to")); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// copyFile writes bytes from memory, as a program would, and flushes.
func copyFile(from, to string) error {
	r, err := os.Open(from)
	if err != nil {
		return err
	}
	defer r.Close()
	if err := os.Remove(to); err != nil && !os.IsNotExist(err) {
		return err
	}
	w, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{r}, make([]byte, chunk)) // hides the call that copies in the kernel
	if err == nil {
		err = w.Sync()
	}
	if closing := w.Close(); err == nil {
		err = closing
	}
	return err
}

// BenchmarkStall is the delay of training: the copy that Save makes for a save in the background.
func BenchmarkStall(b *testing.B) {
	w, data := benchTensor()
	s, err := New(Options{Dir: b.TempDir(), Keep: 1, Async: true})
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(benchBytes)
	step := 0
	for b.Loop() {
		step++
		if err := s.Save(Meta{Step: step}, []Run{{Tensor: w, Len: data.Len(), Data: data}}); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if err := s.Wait(); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
	closed(b, s)
}

// BenchmarkRead opens with all checks, reads all elements, and reads the same file without checks.
func BenchmarkRead(b *testing.B) {
	w, data := benchTensor()
	dir := b.TempDir()
	s, err := New(Options{Dir: dir})
	if err == nil {
		err = s.Save(Meta{Step: 1}, []Run{{Tensor: w, Len: data.Len(), Data: data}})
	}
	if err != nil {
		b.Fatal(err)
	}
	path := filepath.Join(dir, stepName(1))
	b.Run("open-and-verify", func(b *testing.B) {
		b.SetBytes(benchBytes)
		for b.Loop() {
			c, err := OpenAt(path, VerifyAll)
			if err != nil {
				b.Fatal(err)
			}
			closed(b, c)
		}
	})
	b.Run("read", func(b *testing.B) {
		c, err := OpenAt(path, VerifySizes)
		if err != nil {
			b.Fatal(err)
		}
		b.SetBytes(benchBytes)
		for b.Loop() {
			if err := c.Read("w", 0, data); err != nil {
				b.Fatal(err)
			}
		}
		closed(b, c)
	})
	b.Run("plain", func(b *testing.B) {
		f, err := os.Open(filepath.Join(path, "model.safetensors"))
		if err != nil {
			b.Fatal(err)
		}
		b.SetBytes(benchBytes)
		for b.Loop() {
			if _, err := f.ReadAt(data.Raw(), 0); err != nil {
				b.Fatal(err)
			}
		}
		closed(b, f)
	})
}

// BenchmarkChecksum compares CRC-32C, which is used, with SHA-256.
func BenchmarkChecksum(b *testing.B) {
	_, data := benchTensor()
	var sum uint32
	b.Run("crc32c", func(b *testing.B) {
		b.SetBytes(benchBytes)
		for b.Loop() {
			sum = crc32.Update(sum, castagnoli, data.Raw())
		}
	})
	b.Run("sha256", func(b *testing.B) {
		b.SetBytes(benchBytes)
		for b.Loop() {
			_ = sha256.Sum256(data.Raw())
		}
	})
	if sum == 0 {
		b.Log("a sum of zero")
	}
}
