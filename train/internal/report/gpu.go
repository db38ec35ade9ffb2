package report

import (
	"bytes"
	"cmp"
	"fmt"
	"os"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/launch"
	"github.com/symgrad/symgrad/internal/dl"
	"github.com/symgrad/symgrad/internal/gpu/cublas"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
	"github.com/symgrad/symgrad/internal/gpu/cudnn"
	"github.com/symgrad/symgrad/internal/gpu/nccl"
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

// Device returns the device of a rank: "cpu", or the GPU's name.
func (r *Run) Device() string {
	if v := gpuOf(r.World); v != nil {
		return v.Name()
	}
	return "cpu"
}

// machine returns the machine, its device and the reason for that device.
func (r *Run) machine() string {
	if v := gpuOf(r.World); v != nil {
		return fmt.Sprintf("%s, on %s: %s", r.Config.Run.Machine, v.Name(), r.Site.Why)
	}
	return fmt.Sprintf("%s, on the host: %s", r.Config.Run.Machine, r.Site.Why)
}

// products returns the provider of matrix products.
func (r *Run) products() string {
	switch {
	case r.Site.GPU:
		return "cuBLAS and cuDNN if found, else own kernels; in " + r.Config.Run.Precision
	case r.Config.Run.Machine != settings.Tape && r.BLAS.Name == "gonum":
		return "kernels of the machine: no BLAS library found or wanted (cpu.blas=" + r.Config.CPU.BLAS + ")"
	}
	return r.BLAS.String()
}

// Libraries adds to v the versions that a GPU's times depend on: driver and libraries. The world
// and the machine have opened them already.
func (r *Run) Libraries(v map[string]string) {
	d := gpuOf(r.World)
	if d == nil {
		return
	}
	v["driver"] = d.Driver().String()
	if text, err := os.ReadFile("/sys/module/nvidia/version"); err == nil {
		v["nvidia"] = string(bytes.TrimSpace(text))
	}
	root, environ, api := os.DirFS("/"), launch.Environ(), d.Driver().Version()
	dirs := dl.Places(root, environ)
	if r.World.Size() > 1 {
		if lib, err := nccl.Open(nccl.Config{Path: cmp.Or(r.Config.GPU.NCCL, dl.NCCL.AtHome(root, environ)), Dirs: dirs}); err == nil {
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
