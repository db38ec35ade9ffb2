package backend

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/launch"
	"github.com/symgrad/symgrad/internal/net/ucx"
	"github.com/symgrad/symgrad/tensor"
)

// Variables of processes that tests start.
const (
	roleVar = "SYMGRAD_TEST_BACKEND_ROLE" // "launcher", or a name in scenes
	nodeVar = "SYMGRAD_TEST_BACKEND_NODE" // node of a launcher
	meetVar = "SYMGRAD_TEST_BACKEND_MEET" // host:port of a launcher's store
)

// scenes are programs of ranks on two hosts with two ranks each.
var scenes = map[string]func() error{"sums": sumsScene, "killed": killedScene}

// requireVars are lists. If one contains ucx, tests fail that would skip without the library.
var requireVars = []string{"DIST_REQUIRE", "SYMGRAD_REQUIRE"}

func needUCX(t *testing.T) {
	t.Helper()
	_, err := ucx.Find()
	if err == nil {
		return
	}
	for _, name := range requireVars {
		if slices.Contains(strings.Split(os.Getenv(name), ","), "ucx") {
			t.Fatalf("%s names ucx: %v", name, err)
		}
	}
	t.Skip(err)
}

// play runs the role of a process that a test has started.
func play(role string) int {
	var err error
	if role == "launcher" {
		err = launcherOfTwo()
	} else {
		err = scenes[role]()
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", role, err)
		return 1
	}
	return 0
}

// launcherOfTwo is symgrad run on one of two hosts, with two ranks.
func launcherOfTwo() error {
	secret, err := launch.ReadSecret("")
	if err != nil {
		return err
	}
	cfg := launch.SpawnConfig{
		Program: os.Args[0], N: 2, Nodes: 2, Store: os.Getenv(meetVar), Secret: secret, Wait: time.Minute,
		Env: append(os.Environ(), roleVar+"=sums"),
	}
	if _, err := fmt.Sscan(os.Getenv(nodeVar), &cfg.Node); err != nil {
		return err
	}
	res, err := launch.Spawn(context.Background(), cfg)
	if err == nil && res.Code != 0 {
		err = fmt.Errorf("code %d", res.Code)
	}
	return err
}

// freeAddress returns an address of the loopback interface whose port was free a moment ago.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// started is the end of a process.
type started struct {
	out string
	err error
}

// start runs a process for each of environs, which are this test program again, and waits for them.
func start(t *testing.T, environs ...[]string) []started {
	t.Helper()
	ends := make([]started, len(environs))
	var all sync.WaitGroup
	for i, environ := range environs {
		all.Go(func() {
			cmd := exec.CommandContext(t.Context(), os.Args[0])
			cmd.Env = append(os.Environ(), "UCX_NET_DEVICES=lo", "GOMAXPROCS=2")
			cmd.Env = append(cmd.Env, environ...)
			var out bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &out
			ends[i].err = cmd.Run()
			ends[i].out = out.String()
		})
	}
	all.Wait()
	return ends
}

// torchrun returns the environments of four ranks that torchrun starts on two hosts.
func torchrun(address, secret, role string) [][]string {
	_, port, _ := strings.Cut(address, ":")
	var environs [][]string
	for rank := range 4 {
		environs = append(environs, []string{
			roleVar + "=" + role, fmt.Sprint("RANK=", rank), "WORLD_SIZE=4",
			fmt.Sprint("LOCAL_RANK=", rank%2), "LOCAL_WORLD_SIZE=2", fmt.Sprint("GROUP_RANK=", rank/2), "GROUP_WORLD_SIZE=2",
			"MASTER_ADDR=127.0.0.1", "MASTER_PORT=1", "SYMGRAD_MASTER=:" + port, "SYMGRAD_SECRET=" + secret,
		})
	}
	return environs
}

func TestAutoIsUCXOnTwoHosts(t *testing.T) {
	needUCX(t)
	address, secret := freeAddress(t), launch.NewSecret()
	var launchers [][]string
	for node := range 2 {
		launchers = append(launchers, []string{
			roleVar + "=launcher", fmt.Sprintf("%s=%d", nodeVar, node), meetVar + "=" + address, "SYMGRAD_SECRET=" + secret,
		})
	}
	for name, environs := range map[string][][]string{
		"symgrad run": launchers,
		"torchrun":    torchrun(freeAddress(t), secret, "sums"),
	} {
		t.Run(name, func(t *testing.T) {
			for i, end := range start(t, environs...) {
				if end.err != nil || !strings.Contains(end.out, "right sums") {
					t.Errorf("process %d: %v\n%s", i, end.err, end.out)
				}
			}
		})
	}
}

// sumsScene opens two worlds, one after the other.
func sumsScene() error {
	for range 2 {
		w, err := Open(context.Background(), Config{InitTimeout: time.Minute, StepTimeout: time.Minute})
		if err != nil {
			return err
		}
		if l := w.Local(); w.Backend() != UCX || w.Size() != 4 || l.Size != 2 || l.Rank != w.Rank()%2 || l.Nodes != 2 || l.Node != w.Rank()/2 || l.Job == "" {
			err = fmt.Errorf("rank %d of %d on %s, %+v", w.Rank(), w.Size(), w.Backend(), l)
		}
		err = errors.Join(err, sumOfRanks(w), sumInRankOrder(w))
		if err := errors.Join(err, w.Close()); err != nil {
			return err
		}
	}
	fmt.Println("right sums")
	return nil
}

// sumInRankOrder compares bits: float32 numbers of different sizes have another sum in each order.
func sumInRankOrder(w *dist.World) error {
	const n = 100_003
	value := func(rank, i int) float32 {
		return float32(i%1013+1) / float32(3+rank*rank*7) * float32(int(1)<<(rank*5))
	}
	x, want := make([]float32, n), make([]float32, n)
	for i := range x {
		x[i] = value(w.Rank(), i)
		for rank := range w.Size() {
			want[i] += value(rank, i)
		}
	}
	work, err := w.AllReduce(tensor.Of(x), tensor.Of(x), dist.Sum)
	if err == nil {
		err = work.Wait()
	}
	for i := range x {
		if err == nil && x[i] != want[i] {
			err = fmt.Errorf("element %d: %v, want %v", i, x[i], want[i])
		}
	}
	return err
}

func TestKilledRankIsNamedOverUCX(t *testing.T) {
	needUCX(t)
	for rank, end := range start(t, torchrun(freeAddress(t), launch.NewSecret(), "killed")...) {
		if rank == 3 {
			continue
		}
		if end.err != nil || !strings.Contains(end.out, "rank 3 is gone") {
			t.Errorf("rank %d: %v\n%s", rank, end.err, end.out)
		}
	}
}

func killedScene() error {
	w, err := Open(context.Background(), Config{InitTimeout: time.Minute, StepTimeout: time.Minute})
	if err != nil {
		return err
	}
	if err := sumOfRanks(w); err != nil {
		return err
	}
	if w.Rank() == 3 {
		return syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	var gone *dist.RankError
	if err := sumOfRanks(w); !errors.As(err, &gone) || gone.Rank != 3 {
		return fmt.Errorf("error %w, want the death of rank 3", err)
	}
	fmt.Println("rank 3 is gone")
	_ = w.Close() // the group is broken
	return nil
}

func TestBackendFollowsTheHosts(t *testing.T) {
	one := launch.Env{Size: 4, LocalSize: 4, Nodes: 1, Launcher: launch.OpenMPI}
	byMPI := launch.Env{Size: 4, LocalSize: 2, Node: -1, Launcher: launch.OpenMPI}
	others := launch.Env{Size: 4, LocalSize: 2, Nodes: 2, Launcher: launch.Symgrad}
	for _, tt := range []struct {
		cfg  Config
		env  launch.Env
		want string
	}{
		{Config{}, one, SHM},
		{Config{}, byMPI, MPI},
		{Config{Backend: Auto}, others, UCX},
		{Config{Backend: UCX}, one, UCX},
		{Config{Backend: UCX}, byMPI, UCX},
		{Config{Backend: SHM}, others, SHM},
		{Config{Device: CUDADevice}, others, CUDA},
	} {
		if got := tt.cfg.NameFor(tt.env); got != tt.want {
			t.Errorf("%+v for %v: %s, want %s", tt.cfg, tt.env, got, tt.want)
		}
	}
}

func TestUserChoosesTransportsOfUCX(t *testing.T) {
	if got := transports([]string{"A=b"}); got != "^sm" {
		t.Errorf("by default %q", got)
	}
	if got := transports([]string{"UCX_TLS=tcp"}); got != "" {
		t.Errorf("with UCX_TLS %q", got)
	}
}
