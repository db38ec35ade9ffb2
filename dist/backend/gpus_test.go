package backend

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/launch"
	"github.com/symgrad/symgrad/internal/foreign"
	"github.com/symgrad/symgrad/internal/gpu"
	"github.com/symgrad/symgrad/internal/host/shm"
)

// ranks runs f as n ranks of a job that are goroutines.
func ranks(t *testing.T, n int, f func(env launch.Env) error) {
	t.Helper()
	var all sync.WaitGroup
	for r := range n {
		all.Go(func() {
			env := launch.Env{
				Rank: r, Size: n, LocalRank: r, LocalSize: n, Launcher: launch.OpenMPI, Job: fmt.Sprintf("%s-%d", t.Name(), os.Getpid()),
			}
			if err := f(env); err != nil {
				t.Errorf("rank %d: %v", r, err)
			}
		})
	}
	all.Wait()
}

// Without a driver every rank gets the same error, with the configured path and the remedy, and
// nothing stays open.
func TestOpenWithoutADriverIsAnErrorOnAllRanks(t *testing.T) {
	for _, cfg := range []Config{{Device: CUDADevice}, {Backend: CUDA}, {Backend: NCCL}, {Backend: NVSHMEM, Engine: "nvshmem"}} {
		t.Run(cfg.Name(), func(t *testing.T) {
			ranks(t, 2, func(env launch.Env) error {
				c := cfg
				c.Env, c.CUDADriver, c.InitTimeout = &env, "/absent/libcuda.so.1", time.Minute
				w, err := Open(context.Background(), c)
				if w != nil || !errors.Is(err, dist.ErrUnsupported) {
					return fmt.Errorf("world %v, error %w", w, err)
				}
				for _, word := range []string{"backend " + cfg.Name(), fmt.Sprintf("rank %d of 2", env.Rank), "/absent/libcuda.so.1", "NVIDIA's driver"} {
					if !strings.Contains(err.Error(), word) {
						return fmt.Errorf("error %q does not say %q", err, word)
					}
				}
				return nil
			})
		})
	}
}

// One rank's missing driver is an error of all, which names it.
func TestOpenAgreesOnAMissingDriver(t *testing.T) {
	ranks(t, 3, func(env launch.Env) error {
		c := Config{Backend: CUDA, Env: &env, InitTimeout: time.Minute, CUDADriver: fmt.Sprintf("/absent/%d/libcuda.so.1", env.Rank)}
		_, err := Open(context.Background(), c)
		if !errors.Is(err, dist.ErrUnsupported) || !strings.Contains(err.Error(), c.CUDADriver) {
			return fmt.Errorf("error %w", err)
		}
		return nil
	})
}

func TestTablesAreReadBeforeRanksMeet(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	env := launch.Env{Size: 1, LocalSize: 1, Launcher: launch.None}
	for _, tt := range []struct{ path, want string }{
		{filepath.Join(dir, "none.json"), "no such file"},
		{write("empty.json", ""), "empty.json"},
		{write("old.json", `{"version": 99}`), "version 99"},
		{write("odd.json", `{"version": 1, "colour": "red"}`), "colour"},
	} {
		_, err := Open(context.Background(), Config{Backend: CUDA, Env: &env, TunePath: tt.path, CUDADriver: "/absent/libcuda.so.1"})
		if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "libcuda") {
			t.Errorf("%s: error %v, want %q", tt.path, err, tt.want)
		}
	}
	known, err := gpu.BuiltinTable("NVIDIA H200")
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(dir, "good.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(known.Write(f), f.Close()); err != nil {
		t.Fatal(err)
	}
	if got, err := ReadTable(f.Name()); err != nil || got.Hash() != known.Hash() {
		t.Errorf("read back: %v", err)
	}
	if err := os.Truncate(f.Name(), maxTable+1); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadTable(f.Name()); !errors.Is(err, foreign.ErrTooLong) {
		t.Errorf("a table without an end: %v", err)
	}
	if _, err := ReadTable("/dev/zero"); !errors.Is(err, foreign.ErrIrregular) {
		t.Errorf("a device: %v", err)
	}
}

func TestTablesOfOtherGPUsAreToldOf(t *testing.T) {
	row := gpu.Row{Kind: "allreduce", DType: "f32", Reduction: "sum", Ranks: 2, Bytes: 1024, Timings: []gpu.Timing{{Engine: "nccl", Microseconds: 10}}}
	for _, tt := range []struct {
		table *gpu.Table
		told  bool
	}{
		{nil, false}, // the program's own
		{&gpu.Table{Machine: "NVIDIA H100", Rows: []gpu.Row{row}}, true},
		{&gpu.Table{Machine: "NVIDIA H200", Rows: []gpu.Row{row}}, false},
		{&gpu.Table{Rows: []gpu.Row{row}}, false},   // of any
		{&gpu.Table{Machine: "NVIDIA H100"}, false}, // rules alone
	} {
		var log strings.Builder
		c := Config{TunePath: "t.json", Log: slog.New(slog.NewTextHandler(&log, nil))}
		c.warnAbout(tt.table, "NVIDIA H200")
		if told := log.Len() > 0; told != tt.told {
			t.Errorf("table %+v: said %q", tt.table, log.String())
		}
		for _, want := range []string{"level=WARN", "table=t.json", `"measured on"="NVIDIA H100"`, `here="NVIDIA H200"`} {
			if tt.told && !strings.Contains(log.String(), want) {
				t.Errorf("said %q, without %q", log.String(), want)
			}
		}
	}
}

func TestOpenGPUsIsNotForTheHost(t *testing.T) {
	if _, err := OpenGPUs(context.Background(), Config{}); !errors.Is(err, dist.ErrInvalid) {
		t.Errorf("error %v", err)
	}
}

func TestControlGroupWaitsForSlowLibraries(t *testing.T) {
	for _, tt := range []struct{ step, start, want time.Duration }{
		{0, 0, 100 * time.Second},
		{50 * time.Millisecond, 0, time.Minute},
		{50 * time.Millisecond, time.Second, time.Second},
		{0, time.Hour, time.Hour},
	} {
		if got := (Config{StepTimeout: tt.step, InitTimeout: tt.start}).controlTimeout(); got != tt.want {
			t.Errorf("step %v, start %v: %v, want %v", tt.step, tt.start, got, tt.want)
		}
	}
}

// refusing is an allocator that cannot, or must not, serve a group.
type refusing struct {
	name string
	err  error
	slab *gpu.Slab
}

func (r refusing) Name() string                                { return r.name }
func (r refusing) Alloc(*gpu.Member, int64) (*gpu.Slab, error) { return r.slab, r.err }

func TestAllocationsAreTheFirstThatCan(t *testing.T) {
	cannot := refusing{"nvshmem", fmt.Errorf("%w: for the world only", dist.ErrUnsupported), nil}
	noSpace := errors.New("no space left")
	full := refusing{"nccl", fmt.Errorf("%w: 3 B", noSpace), nil}
	can := refusing{"ipc", nil, &gpu.Slab{Bytes: 3}}
	if s, err := (allocators{cannot, can, full}).Alloc(nil, 3); err != nil || s != can.slab {
		t.Errorf("%v, %v", s, err)
	}
	if _, err := (allocators{cannot, full, can}).Alloc(nil, 3); !errors.Is(err, noSpace) {
		t.Errorf("memory that has run out is looked for elsewhere: %v", err)
	}
	_, err := allocators{cannot, cannot}.Alloc(nil, 3)
	if !errors.Is(err, dist.ErrUnsupported) || !strings.Contains(err.Error(), "nvshmem: not supported: for the world only") {
		t.Errorf("error %v", err)
	}
	if name := (allocators{cannot, full, can}).Name(); name != "nvshmem, nccl, ipc" {
		t.Errorf("name %q", name)
	}
}

func TestReasonsAreThoseOfDist(t *testing.T) {
	plain := errors.New("no such file")
	if err := unusable(plain); !errors.Is(err, dist.ErrUnsupported) || !errors.Is(err, plain) {
		t.Errorf("%v", err)
	}
	wrong := fmt.Errorf("%w: a path with NUL", dist.ErrInvalid)
	if err := unusable(wrong); !errors.Is(err, dist.ErrInvalid) || errors.Is(err, dist.ErrUnsupported) {
		t.Errorf("%v", err)
	}
}

// Close relies on this: aborting the control group ends no group that was split from it.
func TestAbortOfTheBaseLeavesItsPartsAlone(t *testing.T) {
	ts, err := shm.Local(2, shm.GoMemory, shm.Config{StepTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for r, tr := range ts {
		all.Go(func() {
			base, err := dist.NewGroup(tr, controlTrace)
			if err != nil {
				t.Error(err)
				return
			}
			part, err := base.Split(0, r)
			if err != nil {
				t.Error(err)
				return
			}
			if r == 0 {
				err = base.Abort(errors.New("alone"))
			}
			if done := wait(base.Barrier()); !errors.Is(done, dist.ErrAborted) {
				t.Errorf("rank %d: the base: %v", r, done)
			}
			if err := errors.Join(err, wait(part.Barrier()), part.Close(), base.Close()); err != nil {
				t.Errorf("rank %d: %v", r, err)
			}
		})
	}
	all.Wait()
}

func wait(w dist.Work, err error) error {
	if err != nil {
		return err
	}
	return w.Wait()
}

func TestMissingWaysAreListed(t *testing.T) {
	g := &GPUs{providers: []*provider{
		{name: "direct", why: errors.New("no compiler")}, {name: NCCL, about: "NCCL 2.28.3 (/lib/libnccl.so.2)"}, {name: NVSHMEM, why: errors.New("not found")},
	}}
	if text := g.missing(); text != "direct: no compiler; nvshmem: not found" {
		t.Errorf("%q", text)
	}
	all := g.Engines()
	if len(all) != 3 || all[0].Usable || !all[1].Usable || all[1].Why != "NCCL 2.28.3 (/lib/libnccl.so.2)" || all[2].Why != "not found" {
		t.Errorf("%+v", all)
	}
}

// A release that waits for a kernel that nothing ends is given up; one that returns is waited for.
func TestAReleaseThatHangsIsGivenUp(t *testing.T) {
	end := make(chan struct{})
	gone := make(chan struct{})
	err := soon(time.Millisecond, func() error {
		defer close(gone)
		<-end
		return nil
	})
	if !errors.Is(err, dist.ErrTimeout) || !strings.Contains(err.Error(), "ends with the process") {
		t.Errorf("error %v, want ErrTimeout that says when it ends", err)
	}
	close(end)
	<-gone
	want := errors.New("from release")
	if err := soon(time.Hour, func() error { return want }); err != want {
		t.Errorf("error %v, want %v", err, want)
	}
}
