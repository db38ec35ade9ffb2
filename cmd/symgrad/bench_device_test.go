package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/backend"
	"github.com/symgrad/symgrad/dist/launch"
	"github.com/symgrad/symgrad/internal/conformance"
	"github.com/symgrad/symgrad/internal/gpu"
	"github.com/symgrad/symgrad/internal/gpu/cuda/cudatest"
	"github.com/symgrad/symgrad/internal/sim"
	"github.com/symgrad/symgrad/internal/tool/perf"
	"github.com/symgrad/symgrad/internal/tool/probe"
	"github.com/symgrad/symgrad/tensor"
)

var _ perf.Device = gpuDevice{}

func TestLibrariesAreThoseThatAreLoaded(t *testing.T) {
	maps := `7f00-7f01 r-xp 00000000 08:01 10 /usr/lib/libc.so.6
7f02-7f03 r-xp 00000000 08:01 11 /opt/nccl/lib/libnccl.so.2.28.3
7f03-7f04 r--p 00000000 08:01 11 /opt/nccl/lib/libnccl.so.2.28.3
7f04-7f05 rw-p 00000000 00:00 0
7f05-7f06 r-xp 00000000 08:01 12 /site/nvidia/nvshmem/lib/libnvshmem_host.so.3
7f06-7f07 r-xp 00000000 08:01 13 /site/nvidia/libnccl-net.so
`
	var asked []string
	got := libraries(strings.NewReader(maps), func(product, file string) probe.Answer {
		asked = append(asked, product+" "+file)
		if product == "nvshmem" {
			return probe.Answer{Problem: "it says nothing"}
		}
		return probe.Answer{Version: "2.28.3"}
	})
	want := []string{"nccl /opt/nccl/lib/libnccl.so.2.28.3", "nvshmem /site/nvidia/nvshmem/lib/libnvshmem_host.so.3"}
	if !slices.Equal(asked, want) {
		t.Errorf("asked %q, want %q", asked, want)
	}
	if len(got) != 4 || got["nccl"] != "2.28.3" || got["nvshmem"] != "it says nothing" || got["go"] == "" || got["symgrad"] == "" {
		t.Errorf("libraries %v", got)
	}
}

func TestTargetsAreWorldsOfTheirOwn(t *testing.T) {
	base := aloneWorld(t)
	var opened []string
	open := func(engine string) (*dist.World, error) {
		opened = append(opened, engine)
		switch engine {
		case "nvshmem":
			return nil, fmt.Errorf("no library: %w", dist.ErrInvalid)
		case "broken":
			return nil, dist.ErrAborted
		}
		return aloneWorld(t), nil
	}
	targets, err := targetsOf(base, []string{"nccl", "nvshmem", "auto"}, open)
	if err != nil || len(targets) != 3 || !slices.Equal(opened, []string{"nccl", "nvshmem"}) {
		t.Fatalf("%+v, %v, opened %v", targets, err, opened)
	}
	if targets[0].Group == nil || targets[0].Group == base.Group || targets[1].Group != nil || targets[2].Group != base.Group ||
		targets[1].Missing != "no library: invalid argument" || targets[0].Missing+targets[2].Missing != "" {
		t.Errorf("%+v", targets)
	}
	if _, err := targetsOf(base, []string{"nvshmem"}, open); !errors.Is(err, dist.ErrInvalid) {
		t.Errorf("the only engine is not there: %v", err)
	}
	if _, err := targetsOf(base, []string{"auto", "broken"}, open); !errors.Is(err, dist.ErrAborted) {
		t.Errorf("an engine that breaks: %v", err)
	}
	if _, err := streamOf(base.Stream()); !errors.Is(err, dist.ErrDevice) {
		t.Errorf("the CUDA stream of a host stream: %v", err)
	}
	if got := versionOf(12080); got != "12.8" {
		t.Errorf("version %s", got)
	}
}

// aloneWorld is a world of one rank, closed with the test.
func aloneWorld(t *testing.T) *dist.World {
	t.Helper()
	worlds, err := sim.New(1, sim.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := worlds[0].Close(); err != nil {
			t.Error(err)
		}
	})
	return worlds[0]
}

// Copies to a GPU and back, timers and graphs, on the GPU itself.
func TestDeviceOnAGPU(t *testing.T) {
	v := cudatest.Devices(t, 1)[0]
	s, err := gpu.NewStream(v)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	d := onlyGPU(v)
	b, err := d.Alloc(v.Tensor(), 1000)
	if err != nil {
		t.Fatal(err)
	}
	want := bytes.Repeat([]byte{1, 2, 3, 4, 5}, 200)
	got := make([]byte, 1000)
	if err := errors.Join(d.Write(b, want), d.Read(got, b)); err != nil || !bytes.Equal(got, want) {
		t.Errorf("copied %v..., %v", got[:10], err)
	}
	graph, err := d.Capture(s, func() error { return s.CUDA().Fill(uintptr(b.Pointer()), 7, 500) })
	if err != nil {
		t.Fatal(err)
	}
	timer, err := d.NewTimer(s)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Read(got, b); err != nil || !bytes.Equal(got, want) {
		t.Errorf("what was captured has run: %v", err)
	}
	if err := errors.Join(timer.Start(), graph.Launch(), timer.Stop(), s.Synchronize(), d.Read(got, b)); err != nil {
		t.Fatal(err)
	}
	took, err := timer.Elapsed()
	if err != nil || took <= 0 || got[499] != 7 || got[500] != want[500] {
		t.Errorf("after the graph: %d %d, %v, %v", got[499], got[500], took, err)
	}
	name, err := d.Name(v.Tensor())
	if err != nil || !strings.Contains(name, v.Name()) || !strings.Contains(name, "[") {
		t.Errorf("name %q, %v", name, err)
	}
	if _, err := d.Alloc(tensor.Host, 8); err == nil {
		t.Error("memory of the host is given as memory of a GPU")
	}
	if err := errors.Join(graph.Close(), timer.Close(), d.Free(b)); err != nil {
		t.Error(err)
	}
}

// A measurement between GPUs, as ranks do it: engines in turn, one that is not there among them,
// queued and in a graph.
func TestBenchOnGPUs(t *testing.T) {
	d := cudatest.Driver(t)
	if d.Count() < 2 {
		cudatest.Missing(t, "needs 2 GPUs, there are %d", d.Count())
	}
	for name, more := range map[string]string{"queued": "--rounds 2", "graph": "-G 3", "private": "--private", "waited for": "--style osu --iters 20"} {
		t.Run(name, func(t *testing.T) {
			open := func(ctx context.Context, opt conformance.LaunchOptions) (*dist.World, error) {
				if err := benchAsRank(ctx, filepath.Join(t.TempDir(), "r.json"), more); err != nil {
					return nil, err
				}
				return backend.Open(ctx, backend.Config{InitTimeout: time.Minute}) // the job goes on, on the host
			}
			conformance.Processes(open)(t, 2, conformance.LaunchOptions{}, func(*dist.World) error { return nil })
		})
	}
}

// benchAsRank runs symgrad bench on this rank, and checks the file that rank 0 writes.
func benchAsRank(ctx context.Context, file, more string) error {
	f := newBenchFlags()
	cmd := newBenchCommand()
	cmd.ResetFlags()
	f.addTo(cmd)
	line := "--backend cuda -n 2 --engine nccl,no-such-engine,auto --op allreduce,reducescatter,allgather,broadcast,alltoall,sendrecv " +
		"--in-place-of allreduce -d f32,bf16 -b 1K -e 4M -f 64 --json " + file + " " + more
	var out bytes.Buffer
	b := bench{flags: f, stdout: &out, stderr: &out}
	b.ask = func(_ context.Context, q probe.Question) probe.Answer {
		return probe.Answer{Version: "that of " + q.File}
	}
	err := cmd.ParseFlags(strings.Fields(line))
	if err == nil {
		b.env, err = launch.Current()
	}
	if err = errors.Join(err, b.check(true)); err == nil {
		err = b.onGPUs(ctx)
	}
	if err != nil || b.env.Rank != 0 {
		return err
	}
	res, err := readResult(file)
	if err != nil {
		return err
	}
	for _, row := range res.Rows {
		missing := row.Engine == "no-such-engine"
		if missing != (row.Skipped != "") || !missing && (row.TimeUS <= 0 || row.Wrong == nil || *row.Wrong != 0) {
			return fmt.Errorf("row %+v", row)
		}
	}
	if len(res.Rows) < 100 || res.Libraries["nccl"] == "" || res.Libraries["cuda driver"] == "" || res.Ranks[1].Device == "" {
		return fmt.Errorf("%d rows, libraries %v, ranks %+v, table\n%s", len(res.Rows), res.Libraries, res.Ranks, &out)
	}
	return nil
}
