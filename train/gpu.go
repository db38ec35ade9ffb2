package train

import (
	"bytes"
	"cmp"
	"fmt"
	"os"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/launch"
	"github.com/symgrad/symgrad/internal/cublas"
	"github.com/symgrad/symgrad/internal/cuda"
	"github.com/symgrad/symgrad/internal/cudnn"
	"github.com/symgrad/symgrad/internal/dl"
	"github.com/symgrad/symgrad/internal/nccl"
	"github.com/symgrad/symgrad/internal/settings"
)

// gpuOf returns the GPU of the world's buffers; nil for the host.
func gpuOf(w *dist.World) *cuda.Device {
	s, ok := w.Stream().(interface{ CUDA() *cuda.Stream })
	if !ok {
		return nil
	}
	return s.CUDA().Device()
}

// computesOn returns the device of a rank: "cpu", or the GPU's name.
func (t *trainer) computesOn() string {
	if v := gpuOf(t.w); v != nil {
		return v.Name()
	}
	return "cpu"
}

// machineLine returns the machine, its device and the reason for that device.
func (t *trainer) machineLine() string {
	j := t.job
	if v := gpuOf(t.w); v != nil {
		return fmt.Sprintf("%s, on %s: %s", j.cfg.Run.Machine, v.Name(), j.site.Why)
	}
	return fmt.Sprintf("%s, on the host: %s", j.cfg.Run.Machine, j.site.Why)
}

// products returns the provider of matrix products.
func (j *job) products() string {
	switch {
	case j.site.GPU:
		return "cuBLAS and cuDNN if found, else own kernels; in " + j.cfg.Run.Precision
	case j.cfg.Run.Machine != settings.Tape && j.blas.Name == "gonum":
		return "kernels of the machine: no BLAS library found or wanted (cpu.blas=" + j.cfg.CPU.BLAS + ")"
	}
	return j.blas.String()
}

// libraries adds to v the versions that a GPU's times depend on: driver and libraries. The world
// and the machine have opened them already.
func (t *trainer) libraries(v map[string]string) {
	d := gpuOf(t.w)
	if d == nil {
		return
	}
	v["driver"] = d.Driver().String()
	if text, err := os.ReadFile("/sys/module/nvidia/version"); err == nil {
		v["nvidia"] = string(bytes.TrimSpace(text))
	}
	root, environ, api := os.DirFS("/"), launch.Environ(), d.Driver().Version()
	dirs := dl.Places(root, environ)
	if t.w.Size() > 1 {
		if lib, err := nccl.Open(nccl.Config{Path: cmp.Or(t.job.cfg.GPU.NCCL, dl.NCCL.AtHome(root, environ)), Dirs: dirs}); err == nil {
			v["nccl"] = lib.Version().String()
		}
	}
	if lib, err := cublas.Open(cublas.Config{Dirs: dirs, CUDA: api}); err == nil {
		v["cublas"] = lib.Version().String()
	}
	if lib, err := cudnn.Open(cudnn.Config{Dirs: dirs, CUDA: api}); err == nil {
		v["cudnn"] = lib.Version().String()
	}
}
