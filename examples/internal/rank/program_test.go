package rank_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/launch"
	"github.com/symgrad/symgrad/examples/internal/rank"
	"github.com/symgrad/symgrad/examples/internal/ranktest"
	"github.com/symgrad/symgrad/tensor"
)

func TestMain(m *testing.M) { ranktest.Main(m, main) }

func main() { os.Exit(execute(os.Args[1:], os.Stdout, os.Stderr)) }

// settings are those of a program that adds the ranks' numbers, and fails on request.
type settings struct {
	fail    int  // the rank that returns an error; -1 for none
	wrong   int  // the rank that finds the result to be wrong
	forever bool // add until a rank dies
	chatty  bool // print every sum
}

func execute(args []string, stdout, stderr io.Writer) int {
	var s settings
	return rank.Program{
		Name: "adder", Args: "[name]", About: "Add the ranks' numbers.", Ranks: 3,
		Flags: func(f *pflag.FlagSet) {
			f.IntVar(&s.fail, "fail", -1, "rank that fails")
			f.IntVar(&s.wrong, "wrong", -1, "rank that has a wrong result")
			f.BoolVar(&s.forever, "forever", false, "do not end")
			f.BoolVar(&s.chatty, "chatty", false, "print every sum")
		},
		Check: func(ranks int, args []string) error {
			if s.fail >= ranks || len(args) > 1 {
				return fmt.Errorf("rank %d of %d cannot fail, %d names", s.fail, ranks, len(args))
			}
			return nil
		},
		Run: s.run,
	}.Execute(args, stdout, stderr)
}

var errTold = errors.New("told to fail")

func (s *settings) run(_ context.Context, w *dist.World, out io.Writer) error {
	for first := true; first || s.forever; first = false {
		sum := []int64{int64(w.Rank())}
		if w.Rank() == s.fail {
			return errTold
		}
		if err := rank.Done(w.AllReduce(tensor.Of(sum), tensor.Of(sum), dist.Sum)); err != nil {
			return err
		}
		if first || s.chatty {
			fmt.Fprintf(out, "%d ranks on %s: sum %d\n", w.Size(), w.Backend(), sum[0])
		}
	}
	bad := 0
	if w.Rank() == s.wrong {
		bad = 7
	}
	return rank.Verdict(w, "elements that differ", bad)
}

func TestRanksAreGoroutinesOrProcesses(t *testing.T) {
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"--backend", "sim"}, "3 ranks on sim: sum 3\n"},
		{[]string{"--backend", "sim", "-n", "5", "name"}, "5 ranks on sim: sum 10\n"},
		{[]string{"--backend", "sim", "-n1"}, "1 ranks on sim: sum 0\n"},
		{nil, "3 ranks on shm: sum 3\n"},
		{[]string{"--backend", "shm", "--ranks", "1"}, "1 ranks on shm: sum 0\n"},
	} {
		o := ranktest.Process(t, test.args...)
		if o.Want(t, 0); o.Stdout != test.want || o.Stderr != "" {
			t.Errorf("%v: %q and %q, want %q", test.args, o.Stdout, o.Stderr, test.want)
		}
	}
}

func TestLauncherDecidesTheNumberOfRanks(t *testing.T) {
	outcomes := ranktest.Launched(t, nil, []string{"-n", "2"})
	outcomes[0].Want(t, 0, "2 ranks on shm: sum 1\n")
	if o := outcomes[1]; o != (ranktest.Outcome{}) {
		t.Errorf("rank 1 ended with %+v", o)
	}
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"-n", "5"}, "adder: --ranks 5, but symgrad started 2: remove --ranks\n"},
		{[]string{"--backend", "sim"}, "adder: --backend sim runs all ranks in one process, but symgrad started 2: start the program without a launcher\n"},
	} {
		for r, o := range ranktest.Launched(t, test.args, test.args) {
			if o.Want(t, 2); o.Stderr != test.want {
				t.Errorf("%v: rank %d says %q, want %q", test.args, r, o.Stderr, test.want)
			}
		}
	}
}

func TestWrongCommandLinesAreOneLineAndCode2(t *testing.T) {
	for _, test := range []struct{ args, want string }{
		{"--fast", "unknown flag: --fast (--help lists the flags)"},
		{"-n x", `-n "x": want a whole number`},
		{"-n 0", "--ranks 0: want 1 or more"},
		{"-n -3", "--ranks -3: want 1 or more"},
		{"--timeout 0s", "--timeout 0s: want more than 0"},
		{"--timeout -1s", "--timeout -1s: want more than 0"},
		{"--backend tcp", `unknown backend "tcp": use one of auto, shm, mpi, ucx, sim, cuda, nccl, nvshmem`},
		{"-n 2 --fail 2", "rank 2 of 2 cannot fail, 0 names"},
		{"a b", "2 names"},
	} {
		o := ranktest.Execute(execute, strings.Fields(test.args)...)
		o.Want(t, 2, test.want)
		if !strings.HasPrefix(o.Stderr, "adder: ") || strings.Count(o.Stderr, "\n") != 1 || o.Stdout != "" {
			t.Errorf("%s: %q and %q", test.args, o.Stdout, o.Stderr)
		}
	}
}

func TestArgumentsAreRefusedWhereThereAreNone(t *testing.T) {
	var out, errs strings.Builder
	code := rank.Program{Name: "bare", Ranks: 1, Run: new(settings).run}.Execute([]string{"x"}, &out, &errs)
	if code != 2 || errs.String() != "bare: unexpected argument \"x\" (--help lists the flags)\n" {
		t.Errorf("code %d, %q", code, errs.String())
	}
}

func TestHelpIsNoError(t *testing.T) {
	o := ranktest.Execute(execute, "--help")
	o.Want(t, 0, "adder [flags] [name]", "Add the ranks' numbers.", "--fail", "-n, --ranks", "(default 3)", "--backend", "--timeout")
	if o.Stderr != "" {
		t.Errorf("stderr %q", o.Stderr)
	}
}

func TestFailingRankIsNamedAndDecidesTheCode(t *testing.T) {
	for _, args := range [][]string{{"--fail", "1"}, {"--fail", "1", "--backend", "sim"}} {
		o := ranktest.Process(t, args...)
		o.Want(t, 1, "adder: rank 1 of 3: told to fail")
	}
}

func TestWrongResultOfOneRankFailsAll(t *testing.T) {
	for _, args := range [][]string{{"--wrong", "2"}, {"--wrong", "2", "--backend", "sim"}} {
		o := ranktest.Process(t, args...)
		o.Want(t, 1, "wrong result: rank 2 has 7 elements that differ")
	}
	ranktest.Worlds(t, 3, func(t *testing.T, run func(ranktest.Run) (string, error)) {
		out, err := run((&settings{fail: -1, wrong: 0}).run)
		for r := range 3 {
			if err == nil || !errors.Is(err, rank.ErrWrong) || !strings.Contains(err.Error(), fmt.Sprintf("rank %d: wrong result: rank 0 has 7", r)) {
				t.Errorf("rank %d does not know: %v", r, err)
			}
		}
		if !strings.Contains(out, "sum 3") {
			t.Errorf("output %q", out)
		}
	})
}

func TestKilledRankEndsAll(t *testing.T) {
	ranktest.WantLost(t, "adder", 1, ranktest.Kill(t, 3, 1, "--forever"))
}

// A program that starts its ranks ends as one that a shell runs before "| head" does, and as
// symgrad run.
func TestOutputWithoutAReaderIsCode141(t *testing.T) {
	for _, args := range [][]string{{"-n", "2"}, {"-n", "1"}, {"-n", "2", "--backend", "sim"}} {
		o := ranktest.Unread(t, append(args, "--forever", "--chatty")...)
		if o.Code == -1 { // a process without ranks of its own, which SIGPIPE ends: a shell says 141
			o.Code = 141
		}
		o.Want(t, 141)
	}
}

func TestWrongLauncherVariablesAreUsage(t *testing.T) {
	t.Setenv("SYMGRAD_RANK", "2")
	t.Setenv("SYMGRAD_WORLD_SIZE", "2")
	ranktest.Execute(execute).Want(t, 2, "SYMGRAD_RANK")
}

func TestDoneIsTheFirstError(t *testing.T) {
	boom := errors.New("boom")
	if err := rank.Done(dist.Work{}, boom); err != boom {
		t.Errorf("error %v, want that of queueing", err)
	}
	if err := rank.Done(dist.Work{}, nil); err != nil {
		t.Errorf("error %v of work that is done", err)
	}
	if launch.ExitCode(rank.ErrWrong) != 1 {
		t.Error("a wrong result is not exit code 1")
	}
}
