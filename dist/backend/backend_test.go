package backend

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/launch"
	"github.com/symgrad/symgrad/tensor"
)

// TestMain runs the tests. A process that a test has started plays its role.
func TestMain(m *testing.M) {
	if role := os.Getenv(roleVar); role != "" {
		os.Exit(play(role))
	}
	goleak.VerifyTestMain(m)
}

func sumOfRanks(w *dist.World) error {
	x := []int64{int64(w.Rank() + 1)}
	work, err := w.AllReduce(tensor.Of(x), tensor.Of(x), dist.Sum)
	if err == nil {
		err = work.Wait()
	}
	if want := int64(w.Size() * (w.Size() + 1) / 2); err == nil && x[0] != want {
		err = fmt.Errorf("sum %d, want %d", x[0], want)
	}
	return err
}

func TestOpenAloneIsAWorldOfOne(t *testing.T) {
	env := launch.Env{Size: 1, LocalSize: 1, Launcher: launch.None}
	w, err := Open(context.Background(), Config{Env: &env})
	if err != nil {
		t.Fatal(err)
	}
	if w.Size() != 1 || w.Rank() != 0 || w.Backend() != SHM || w.Local().Launcher != launch.None {
		t.Errorf("rank %d of %d on %s by %s", w.Rank(), w.Size(), w.Backend(), w.Local().Launcher)
	}
	if err := errors.Join(sumOfRanks(w), w.Close(), w.Close()); err != nil {
		t.Error(err)
	}
}

func TestOpenJoinsTheRanksOfAJob(t *testing.T) {
	const n = 3
	var ranks sync.WaitGroup
	for r := range n {
		ranks.Go(func() {
			env := launch.Env{Rank: r, Size: n, LocalRank: r, LocalSize: n, Launcher: launch.OpenMPI, Job: fmt.Sprintf("backend-test-%d", os.Getpid())}
			w, err := Open(context.Background(), Config{Env: &env, InitTimeout: time.Minute})
			if err != nil {
				t.Errorf("rank %d: %v", r, err)
				return
			}
			if l := w.Local(); w.Rank() != r || l.Rank != r || l.Size != n || l.Node != 0 || l.Nodes != 1 {
				t.Errorf("rank %d is told it is %d, %+v", r, w.Rank(), l)
			}
			if err := errors.Join(sumOfRanks(w), w.Close()); err != nil {
				t.Errorf("rank %d: %v", r, err)
			}
		})
	}
	ranks.Wait()
}

func TestOpenRefuses(t *testing.T) {
	two := launch.Env{Rank: 0, Size: 2, LocalSize: 1, Launcher: launch.Slurm, Job: "j"}
	byHand := launch.Env{Size: 2, LocalSize: 1, Launcher: launch.Symgrad, Job: "j"}
	for _, tc := range []struct {
		name string
		cfg  Config
		want error
		text string
	}{
		{"unknown backend", Config{Backend: "tcp"}, dist.ErrInvalid, `unknown backend "tcp": use one of auto, shm, mpi, ucx, sim, cuda, nccl, nvshmem`},
		{"unknown device", Config{Device: "tpu"}, dist.ErrInvalid, `unknown device "tpu": use auto, cpu or cuda`},
		{"GPUs on the host", Config{Backend: NVSHMEM, Device: HostDevice}, dist.ErrInvalid, "nvshmem is between GPUs, and the device is cpu"},
		{"host on GPUs", Config{Backend: SHM, Device: CUDADevice}, dist.ErrInvalid, "shm is between ranks of the host, and the device is cuda"},
		{"engine on the host", Config{Engine: "nccl"}, dist.ErrInvalid, `engine "nccl", which has no effect on backend shm`},
		{"table on the host", Config{Backend: SHM, TunePath: "t.json"}, dist.ErrInvalid, `table "t.json", which has no effect on backend shm`},
		{"unknown engine", Config{Backend: NCCL, Engine: "warp"}, dist.ErrInvalid, `unknown engine "warp" of backend nccl: use one of nccl, nccl-window`},
		{"engine of another backend", Config{Backend: NVSHMEM, Engine: "nccl"}, dist.ErrInvalid, `unknown engine "nccl" of backend nvshmem: use one of nvshmem`},
		{"unknown engine of all", Config{Device: CUDADevice, Engine: "warp"}, dist.ErrInvalid, "ll, ll128, ll128-twoshot, oneshot, twoshot, tiles, copy, nccl, nccl-window, nvshmem"},
		{"blocks on the host", Config{MaxCTAs: 8}, dist.ErrInvalid, "at most 8 blocks in a launch, which has no effect on backend shm"},
		{"blocks of NVSHMEM", Config{Backend: NVSHMEM, MaxCTAs: 8}, dist.ErrInvalid, "at most 8 blocks in a launch, which has no effect on backend nvshmem: it is for cuda and nccl"},
		{"step on the host", Config{HeapStep: 1 << 30}, dist.ErrInvalid, "memory that grows by 1073741824 B, which has no effect on backend shm"},
		{"step that is no power of two", Config{Backend: CUDA, HeapStep: 3 << 20}, dist.ErrInvalid, "memory grows by 3145728 B: want a power of two"},
		{"step that is too small", Config{Backend: CUDA, HeapStep: 1 << 20}, dist.ErrInvalid, "from 2097152 to 68719476736"},
		{"step that is too large", Config{Backend: NVSHMEM, HeapStep: 128 << 30}, dist.ErrInvalid, "from 2097152 to 68719476736"},
		{"step without NVSHMEM", Config{Backend: NCCL, HeapStep: 1 << 30}, dist.ErrInvalid, "no effect on backend nccl"},
		{"less than no blocks", Config{Backend: CUDA, MaxCTAs: -1}, dist.ErrInvalid, "at most -1 blocks in a launch: want 0 to 128"},
		{"too many blocks", Config{Backend: CUDA, MaxCTAs: 129}, dist.ErrInvalid, "at most 129 blocks in a launch: want 0 to 128"},
		{"several hosts on GPUs", Config{Backend: CUDA, Env: &two}, dist.ErrUnsupported, "slurm gives ranks of several hosts no address to meet at; before srun: export SYMGRAD_MASTER=:29500"},
		{"several hosts by NVSHMEM", Config{Backend: NVSHMEM, Env: &two}, dist.ErrUnsupported, "not supported here: use backend cuda or nccl, where NCCL joins hosts"},
		{"several hosts by NVSHMEM's engine", Config{Backend: CUDA, Engine: NVSHMEM, Env: &two}, dist.ErrUnsupported, "NVSHMEM joins hosts by RDMA transports only"},
		{"negative timeout", Config{StepTimeout: -1}, dist.ErrInvalid, "timeout"},
		{"negative ring", Config{TraceEntries: -1}, dist.ErrInvalid, "trace"},
		{"huge ring", Config{TraceEntries: 1<<24 + 1}, dist.ErrInvalid, "trace"},
		{"two hosts", Config{Backend: SHM, Env: &two}, dist.ErrUnsupported, "1 of 2 ranks are on this host, and shared memory needs all"},
		{"two hosts without UCX or address", Config{Env: &two}, dist.ErrUnsupported, ""},
		{"MPI without its launcher", Config{Backend: MPI, Env: &byHand}, dist.ErrUnsupported, "no launcher of MPI started this process"},
		{"MPI under srun", Config{Backend: MPI, Env: &two}, dist.ErrUnsupported, "use backend ucx, or mpirun inside the allocation"},
		{"UCX on GPUs", Config{Backend: UCX, Device: CUDADevice}, dist.ErrInvalid, "ucx is between ranks of the host, and the device is cuda"},
		{"sim by name", Config{Backend: Sim, Env: &two}, dist.ErrUnsupported, "only when asked for"},
	} {
		w, err := Open(context.Background(), tc.cfg)
		if w != nil || !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.text) {
			t.Errorf("%s: error %v, want %v with %q", tc.name, err, tc.want, tc.text)
		}
	}
}

func TestOpenRefusesNoContext(t *testing.T) {
	var none context.Context
	env := launch.Env{Size: 1, LocalSize: 1, Launcher: launch.None}
	for _, cfg := range []Config{{Env: &env}, {Env: &env, Backend: CUDA}} {
		if w, err := Open(none, cfg); w != nil || !errors.Is(err, dist.ErrInvalid) || !strings.Contains(err.Error(), "no context") {
			t.Errorf("%s: error %v, want dist.ErrInvalid", cfg.Name(), err)
		}
	}
	if g, err := OpenGPUs(none, Config{Env: &env, Backend: CUDA}); g != nil || !errors.Is(err, dist.ErrInvalid) {
		t.Errorf("OpenGPUs: error %v, want dist.ErrInvalid", err)
	}
}

func TestSimulateRunsEveryRank(t *testing.T) {
	for _, n := range []int{1, 4} {
		if err := Simulate(n, Config{}, sumOfRanks); err != nil {
			t.Errorf("%d ranks: %v", n, err)
		}
	}
}

func TestSimulateRefusesGPUs(t *testing.T) {
	for _, cfg := range []Config{{Backend: CUDA}, {Backend: NCCL}, {Device: CUDADevice}} {
		err := Simulate(1, cfg, func(*dist.World) error { t.Errorf("%+v: a rank runs", cfg); return nil })
		if !errors.Is(err, dist.ErrInvalid) || !strings.Contains(err.Error(), "between GPUs") {
			t.Errorf("%+v: error %v, want dist.ErrInvalid with why", cfg, err)
		}
	}
}

func TestSimulateTellsTheOthersOfAFailure(t *testing.T) {
	boom := errors.New("boom")
	err := Simulate(3, Config{}, func(w *dist.World) error {
		if w.Rank() == 1 {
			return boom
		}
		return sumOfRanks(w)
	})
	if !errors.Is(err, boom) || !strings.HasPrefix(err.Error(), "rank 1: boom") {
		t.Errorf("error %v, want rank 1's first", err)
	}
}
