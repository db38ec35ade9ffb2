package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/gpu"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
	"github.com/symgrad/symgrad/internal/tool/perf"
	"github.com/symgrad/symgrad/internal/tool/probe"
	"github.com/symgrad/symgrad/tensor"
)

// gpuDevice gives measurements and the conformance suite access to memory and streams of GPUs.
type gpuDevice struct {
	device func(tensor.Device) (*cuda.Device, error)
}

// onlyGPU returns a gpuDevice for one GPU.
func onlyGPU(v *cuda.Device) gpuDevice {
	return gpuDevice{func(d tensor.Device) (*cuda.Device, error) {
		if d != v.Tensor() {
			return nil, fmt.Errorf("bench: memory on %v, the group is on %v: %w", d, v.Tensor(), dist.ErrDevice)
		}
		return v, nil
	}}
}

// Alloc implements perf.Device.
func (d gpuDevice) Alloc(dev tensor.Device, bytes int64) (tensor.Buffer, error) {
	v, err := d.device(dev)
	if err != nil {
		return tensor.Buffer{}, err
	}
	return v.AllocBuffer(bytes)
}

// Free implements perf.Device.
func (d gpuDevice) Free(b tensor.Buffer) error {
	v, err := d.device(b.Device())
	if err != nil {
		return err
	}
	return v.FreeBuffer(b)
}

// Write implements perf.Device.
func (d gpuDevice) Write(b tensor.Buffer, src []byte) error {
	v, err := d.device(b.Device())
	if err != nil {
		return err
	}
	return v.WriteBuffer(b, src)
}

// Read implements perf.Device.
func (d gpuDevice) Read(dst []byte, b tensor.Buffer) error {
	v, err := d.device(b.Device())
	if err != nil {
		return err
	}
	return v.ReadBuffer(dst, b)
}

// Name implements perf.Device.
func (d gpuDevice) Name(dev tensor.Device) (string, error) {
	v, err := d.device(dev)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s [%s]", v.Name(), v.PCI()), nil
}

// gpuTimer measures the time between two events on a stream.
type gpuTimer struct {
	s           *cuda.Stream
	begin, stop *cuda.Event
}

// streamOf returns the CUDA stream of s.
func streamOf(s dist.Stream) (*gpu.Stream, error) {
	gs, ok := s.(*gpu.Stream)
	if !ok {
		return nil, fmt.Errorf("bench: %w: a stream of %v, not of a GPU", dist.ErrDevice, s.Device())
	}
	return gs, nil
}

// LaunchTime takes the median of launchTurns averages over launchEach launches, which fit into a
// stream's queue.
const (
	launchTurns = 9
	launchEach  = 50
)

// LaunchTime implements perf.Device, with an empty kernel that is launched like small operations.
// It returns 0 if NVRTC cannot compile for the device.
func (d gpuDevice) LaunchTime(s dist.Stream) (_ time.Duration, err error) {
	gs, err := streamOf(s)
	if err != nil {
		return 0, err
	}
	stream := gs.CUDA()
	v := stream.Device()
	c, err := v.Driver().Compiler()
	if err != nil {
		return 0, nil
	}
	image, err := c.Compile(v, cuda.Source{Name: "nothing.cu", Text: "extern \"C\" __global__ void nothing() {}\n"})
	if err != nil {
		return 0, nil
	}
	m, err := v.Load(image)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	f, err := m.Function("nothing")
	if err != nil {
		return 0, err
	}
	kept, err := f.Keep(cuda.Launch{}, nil)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, kept.Close()) }()
	turns := make([]time.Duration, launchTurns)
	for i := range turns {
		began := time.Now()
		for range launchEach {
			if err := kept.Launch(stream); err != nil {
				return 0, err
			}
		}
		turns[i] = time.Since(began) / launchEach
		if err := stream.Synchronize(); err != nil {
			return 0, err
		}
	}
	slices.Sort(turns)
	return turns[len(turns)/2], nil
}

// NewTimer implements perf.Device.
func (d gpuDevice) NewTimer(s dist.Stream) (perf.Timer, error) {
	gs, err := streamOf(s)
	if err != nil {
		return nil, err
	}
	t := &gpuTimer{s: gs.CUDA()}
	v := t.s.Device()
	if t.begin, err = v.NewTimer(); err != nil {
		return nil, err
	}
	if t.stop, err = v.NewTimer(); err != nil {
		return nil, errors.Join(err, t.begin.Close())
	}
	return t, nil
}

// Start implements perf.Timer.
func (t *gpuTimer) Start() error { return t.record(t.begin) }

// Stop implements perf.Timer.
func (t *gpuTimer) Stop() error { return t.record(t.stop) }

func (t *gpuTimer) record(e *cuda.Event) error {
	v := t.s.Device()
	if err := v.Enter(); err != nil {
		return err
	}
	defer v.Leave()
	return t.s.Record(e)
}

// Elapsed implements perf.Timer.
func (t *gpuTimer) Elapsed() (time.Duration, error) { return t.stop.Since(t.begin) }

// Close implements perf.Timer.
func (t *gpuTimer) Close() error { return errors.Join(t.begin.Close(), t.stop.Close()) }

// gpuGraph is a captured graph and the stream that it runs on.
type gpuGraph struct {
	s     *cuda.Stream
	graph *cuda.Graph
	exec  *cuda.GraphExec
}

// Capture implements perf.Device.
func (d gpuDevice) Capture(s dist.Stream, issue func() error) (perf.Graph, error) {
	gs, err := streamOf(s)
	if err != nil {
		return nil, err
	}
	graph, err := gs.Capture(issue)
	if err != nil {
		return nil, err
	}
	exec, err := graph.Instantiate()
	if err != nil {
		return nil, errors.Join(err, graph.Close())
	}
	return &gpuGraph{gs.CUDA(), graph, exec}, nil
}

// Launch implements perf.Graph.
func (g *gpuGraph) Launch() error {
	v := g.s.Device()
	if err := v.Enter(); err != nil {
		return err
	}
	defer v.Leave()
	return g.exec.Launch(g.s)
}

// Close implements perf.Graph.
func (g *gpuGraph) Close() error { return errors.Join(g.exec.Close(), g.graph.Close()) }

// knownLibraries are the libraries whose versions belong to a result: prefix of the file name, and
// product.
var knownLibraries = [][2]string{
	{"libnccl.so", "nccl"}, {"libnvshmem_host.so", "nvshmem"}, {"libnvrtc.so", "nvrtc"},
}

// libraries returns the versions of the measured software, by name. maps lists the files that the
// process has loaded, and ask returns the version of one.
func libraries(maps io.Reader, ask func(product, file string) probe.Answer) map[string]string {
	versions := map[string]string{"symgrad": version(), "go": runtime.Version()}
	for lines := bufio.NewScanner(maps); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) < 6 {
			continue
		}
		for _, known := range knownLibraries {
			if file := fields[5]; strings.HasPrefix(path.Base(file), known[0]) && versions[known[1]] == "" {
				a := ask(known[1], file)
				versions[known[1]] = strings.TrimSpace(a.Version + " " + a.Problem)
			}
		}
	}
	return versions
}

// librariesHere returns libraries for this process. ask runs in separate processes, as probe.Child
// does.
func librariesHere(ctx context.Context, ask func(ctx context.Context, q probe.Question) probe.Answer) map[string]string {
	var loaded io.Reader = strings.NewReader("")
	if file, err := os.Open("/proc/self/maps"); err == nil {
		defer file.Close()
		loaded = file
	}
	return libraries(loaded, func(product, file string) probe.Answer {
		return ask(ctx, probe.Question{Product: product, File: file})
	})
}
