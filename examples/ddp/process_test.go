package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/symgrad/symgrad/config"
	"github.com/symgrad/symgrad/train"
)

// hang is far more than anything here takes: it ends a test that would never end.
const hang = time.Minute

func TestRanksThatTheProgramStartsComputeWhatSimulatedOnesDo(t *testing.T) {
	data := madeUp(t)
	for _, n := range []int{1, 3} {
		o := processes(t, data, ranks(n), "run.max_steps=10", "ddp.bucket_mb=0.001", "--verify", "log.trace=t.json", "log.trace_steps=1,2")
		s := o.summary(t)
		want := simulated(t, data, ranks(n), "run.max_steps=10").summary(t)
		if s.ParamsSHA256 != want.ParamsSHA256 || !slices.Equal(s.Losses, want.Losses) || s.TestCorrect != want.TestCorrect {
			t.Errorf("%d ranks: parameters %.8s, %d right, want %.8s, %d", n, s.ParamsSHA256, s.TestCorrect, want.ParamsSHA256, want.TestCorrect)
		}
		if s.Backend != "shm" || s.WorldSize != n {
			t.Errorf("%d ranks by %s, want %d by shm", s.WorldSize, s.Backend, n)
		}
		if !strings.Contains(o.stdout, "symmetric heap (shm)") || !strings.Contains(o.stdout, "shm: all ranks are on this host") {
			t.Errorf("%d ranks: the backend is not explained in\n%s", n, o.stdout)
		}
		for r := range n {
			_, err := os.Stat(filepath.Join(o.dir, "logs", fmt.Sprintf("rank-%d.log", r)))
			if (err == nil) != (n > 1) {
				t.Errorf("%d ranks: log of rank %d: %v", n, r, err)
			}
		}
	}
}

func TestWrongRankVariableIsExplained(t *testing.T) {
	p := prepared(t, settings(t.TempDir(), madeUp(t))...)
	p.Env = append(p.Env, "SYMGRAD_RANK=2", "SYMGRAD_WORLD_SIZE=2")
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	o := p.outcome(t)
	if o.code != train.ExitUsage || !strings.Contains(o.stderr, "SYMGRAD_RANK") {
		t.Errorf("code %d, %s", o.code, o.stderr)
	}
}

func TestMissingDataIsToldOnce(t *testing.T) {
	o := processes(t, t.TempDir(), ranks(3))
	if o.code != 1 || strings.Count(o.stderr, "run `make data`") != 1 {
		t.Errorf("code %d, %s", o.code, o.stderr)
	}
}

func TestTruncatedDataEndsAllRanks(t *testing.T) {
	data := madeUp(t)
	if err := os.Truncate(filepath.Join(data, "train-images-idx3-ubyte"), 1000); err != nil {
		t.Fatal(err)
	}
	o := processes(t, data, ranks(3))
	if o.code != 1 || !strings.Contains(o.stderr, "train-images-idx3-ubyte is damaged: data ends after 984 of 14720 bytes") {
		t.Errorf("code %d, %s", o.code, o.stderr)
	}
}

// byHand starts ranks in the given folders as a launcher of one's own would.
func byHand(t *testing.T, folders []string, args [][]string) []outcome {
	t.Helper()
	job := fmt.Sprintf("%s-%d", t.Name(), os.Getpid())
	ps := make([]*process, len(args))
	for r := range ps {
		ps[r] = prepared(t, args[r]...)
		ps[r].Dir = folders[r]
		ps[r].Env = append(ps[r].Env, "SYMGRAD_JOB="+job,
			fmt.Sprint("SYMGRAD_RANK=", r), fmt.Sprint("SYMGRAD_WORLD_SIZE=", len(ps)),
			fmt.Sprint("SYMGRAD_LOCAL_RANK=", r), fmt.Sprint("SYMGRAD_LOCAL_WORLD_SIZE=", len(ps)))
		if err := ps[r].Start(); err != nil {
			t.Fatal(err)
		}
	}
	outcomes := make([]outcome, len(ps))
	for r, p := range ps {
		outcomes[r] = p.outcome(t)
	}
	return outcomes
}

// Hashed settings must be equal, and all ranks report who has which value. Other settings may
// differ, and rank 0's count.
func TestRanksCompareSettingsAndData(t *testing.T) {
	data, other := madeUp(t), madeUp(t)
	labels := filepath.Join(other, "train-labels-idx1-ubyte")
	text, err := os.ReadFile(labels)
	if err != nil {
		t.Fatal(err)
	}
	text[len(text)-1] ^= 1
	if err := os.WriteFile(labels, text, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name string
		data string   // of rank 1
		own  []string // settings of rank 1
		want []string // in every rank's error; none means success
	}{
		{"another learning rate", data, []string{"optim.lr=0.5"}, []string{`"optim.lr: 0.003"`, `rank 1 has "optim.lr: 0.5"`}},
		{"another batch", data, []string{"data.global_batch=25"}, []string{"data.global_batch", "rank 1"}},
		{"other data", other, nil, []string{"SHA-256 of the data", "rank 1"}},
		{"another interval of the log", data, []string{"log.every=3", "log.losses=false", "log.trace=t.json", "log.trace_steps=0,1", "--verify"}, nil},
	} {
		dir := t.TempDir()
		outcomes := byHand(t, []string{data, test.data}, [][]string{
			settings(dir, ".", ranks(5), "log.every=2"),
			settings(dir, ".", append([]string{ranks(5), "log.every=2"}, test.own...)...),
		})
		for r, o := range outcomes {
			if (o.code == 0) != (test.want == nil) {
				t.Errorf("%s: rank %d ended with code %d: %s", test.name, r, o.code, o.stderr)
			}
			if test.want == nil && r == 0 && !strings.Contains(o.stdout, "started by symgrad (overrides launch.nproc_per_node=5)") {
				t.Errorf("%s: it is not told whose number of ranks counts:\n%s", test.name, o.stdout)
			}
			for _, want := range test.want {
				if !strings.Contains(o.stderr, want) {
					t.Errorf("%s: rank %d: %q is missing in %s", test.name, r, want, o.stderr)
				}
			}
		}
	}
}

// running starts a run without end, and returns after rank 0 has reported one of the first steps.
func running(t *testing.T, n int) (p *process, wait func() outcome) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "run")
	p = prepared(t, settings(dir, madeUp(t), ranks(n), "run.max_steps=100000000", "log.every=100")...)
	p.dir, p.Stdout = dir, nil
	out, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatalf("ended with %v before the first step:\n%s", err, p.stderr.String())
		}
		if strings.HasPrefix(line, "step ") {
			break
		}
	}
	drained := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, lines)
		drained <- err
	}()
	return p, func() outcome {
		t.Helper()
		select {
		case err := <-drained: // the output ends with the last process that holds it
			if err != nil {
				t.Fatal(err)
			}
		case <-time.After(hang):
			t.Fatalf("still there; stderr:\n%s", p.stderr.String())
		}
		return p.outcome(t)
	}
}

// rankPIDs is findRanks, for a test.
func rankPIDs(t *testing.T, launcher, n int) []int {
	t.Helper()
	pids, err := findRanks(launcher, n)
	if err != nil {
		t.Fatal(err)
	}
	return pids
}

// findRanks finds the processes of the ranks that launcher has started, by rank.
func findRanks(launcher, n int) ([]int, error) {
	pids := make([]int, n)
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, err
	}
	for _, name := range stats {
		stat, err := os.ReadFile(name)
		if err != nil {
			continue // it has ended
		}
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:])) // state, parent, ...
		if len(fields) < 2 || fields[1] != strconv.Itoa(launcher) {
			continue
		}
		dir := filepath.Dir(name)
		environ, err := os.ReadFile(filepath.Join(dir, "environ"))
		if err != nil {
			continue
		}
		for _, v := range strings.Split(string(environ), "\x00") {
			if rank, ok := strings.CutPrefix(v, "SYMGRAD_RANK="); ok {
				r, errRank := strconv.Atoi(rank)
				pid, errPID := strconv.Atoi(filepath.Base(dir))
				if err := errors.Join(errRank, errPID); err != nil || r >= n {
					return nil, fmt.Errorf("rank %q of process %s: %v", rank, dir, err)
				}
				pids[r] = pid
			}
		}
	}
	if slices.Contains(pids, 0) {
		return nil, fmt.Errorf("ranks of %d are %v, want %d", launcher, pids, n)
	}
	return pids, nil
}

func alive(pid int) bool { return syscall.Kill(pid, 0) == nil }

func TestKilledRankEndsAllAndIsNamed(t *testing.T) {
	for victim := range 3 {
		p, wait := running(t, 3)
		pids := rankPIDs(t, p.Process.Pid, 3)
		if err := syscall.Kill(pids[victim], syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		o := wait()
		if o.code != 128+int(syscall.SIGKILL) {
			t.Errorf("code %d, want that of the killed rank:\n%s", o.code, o.stderr)
		}
		for _, want := range []string{
			fmt.Sprintf("symgrad: rank %d (pid %d) was killed by signal: killed", victim, pids[victim]),
			fmt.Sprintf("rank %d died", victim),
		} {
			if !strings.Contains(o.stderr, want) {
				t.Errorf("rank %d killed: %q is missing in\n%s", victim, want, o.stderr)
			}
		}
		for r, pid := range pids {
			if r != victim && !strings.Contains(o.stderr, fmt.Sprintf("rank %d (pid %d) exited with code 75", r, pid)) {
				t.Errorf("rank %d did not end by itself:\n%s", r, o.stderr)
			}
			if alive(pid) {
				t.Errorf("rank %d, process %d, is still there", r, pid)
			}
		}
	}
}

func TestSignalEndsAllRanks(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		for _, n := range []int{1, 2} {
			p, wait := running(t, n)
			if err := p.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			o := wait()
			if o.code != 128+int(sig) || !strings.Contains(o.stderr, "stopped by signal: "+sig.String()) {
				t.Errorf("%v to %d ranks: code %d, %s", sig, n, o.code, o.stderr)
			}
			if _, err := os.Stat(filepath.Join(o.dir, config.SummaryName)); err == nil {
				t.Errorf("%v to %d ranks: there is a summary of a run that did not end", sig, n)
			}
		}
	}
}

func TestSignalEndsASimulation(t *testing.T) {
	dir := t.TempDir()
	p := prepared(t, settings(dir, madeUp(t), ranks(3), "comm.backend=sim", "run.max_steps=100000000", "log.every=100")...)
	out, err := os.OpenFile(filepath.Join(dir, "out"), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	p.Stdout = nil
	pipe, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(pipe)
	for lines.Scan() && !strings.HasPrefix(lines.Text(), "step ") {
		continue
	}
	if err := p.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	for lines.Scan() { // to the end of the process
		continue
	}
	if o := p.outcome(t); o.code != 130 || !strings.Contains(o.stderr, "stopped by signal: interrupt") {
		t.Errorf("code %d, %s", o.code, o.stderr)
	}
}

func TestSimulationRefusesALauncher(t *testing.T) {
	p := prepared(t, settings(t.TempDir(), madeUp(t), "comm.backend=sim")...)
	p.Env = append(p.Env, "RANK=0", "WORLD_SIZE=2", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=29500")
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	if o := p.outcome(t); o.code != train.ExitUsage || !strings.Contains(o.stderr, "torchrun started 2; start the program without a launcher") {
		t.Errorf("code %d, %s", o.code, o.stderr)
	}
}

// withoutGPUs runs the program where it sees no GPU, even if there are some.
func withoutGPUs(t *testing.T, more ...string) outcome {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "run")
	p := prepared(t, settings(dir, madeUp(t), append([]string{"run.device=auto"}, more...)...)...)
	p.Env, p.dir = append(p.Env, "CUDA_VISIBLE_DEVICES=-1"), dir
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	return p.outcome(t)
}

// Where settings ask for GPUs and there are none, the program says so once, before it starts a
// rank.
func TestMissingGPUsAreToldOnce(t *testing.T) {
	for _, test := range []struct {
		settings []string
		want     string
	}{
		{[]string{"run.device=cuda"}, "run.device=cuda: no GPU "},
		{[]string{"comm.backend=nccl"}, "comm.backend=nccl: no GPU "},
		{[]string{"run.device=cuda", "ddp.hook=powersgd"}, "run.device=cuda: no GPU "},
		{[]string{"comm.backend=nccl", "run.machine=tape"}, "comm.backend=nccl: run.machine=tape runs on the host"},
		{[]string{"run.precision=tf32"}, "run.precision=tf32: it is for GPUs, and this run is on the host, in fp32: no GPU "},
	} {
		o := withoutGPUs(t, append(test.settings, ranks(2))...)
		if o.code != train.ExitUsage || strings.Count(o.stderr, test.want) != 1 {
			t.Errorf("%v: code %d, %s", test.settings, o.code, o.stderr)
		}
	}
}

// Without GPUs, no setting has to select the host.
func TestRunIsOnTheHostWhereThereAreNoGPUs(t *testing.T) {
	o := withoutGPUs(t, ranks(2))
	if s := o.summary(t); s.Device != "cpu" || s.Backend != "shm" || !strings.Contains(o.stdout, "compiled, on the host: no GPU ") {
		t.Errorf("on %s by %s:\n%s", s.Device, s.Backend, o.stdout)
	}
}
