package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/examples/internal/rank"
	"github.com/symgrad/symgrad/examples/internal/ranktest"
)

func TestMain(m *testing.M) { ranktest.Main(m, main) }

// lines returns the PEs' lines of one example: format with each PE's number and its value.
func lines(n int, format string, value func(pe int) int) string {
	var b strings.Builder
	for pe := range n {
		fmt.Fprintf(&b, format+"\n", pe, value(pe))
	}
	return b.String()
}

// output returns the output of all examples on n PEs.
func output(n int) map[string]string {
	constant := func(v int) func(int) int { return func(int) int { return v } }
	triangle := n * (n + 1) / 2
	return map[string]string{
		"broadcast":     lines(n, "PE %d has 0 to %d", constant(9)),
		"reduce":        lines(n, fmt.Sprintf("PE %%d sum result: %%d, expected: %d", triangle-n), constant(triangle-n)),
		"reducescatter": lines(n, "PE %d has a block that begins with %d", func(pe int) int { return 3 * pe * triangle }),
		"fcollect":      lines(n, "PE %d received 0 to %d", constant(n-1)),
		"alltoall":      lines(n, "PE %d received, from the last PE, %d", func(pe int) int { return 100*(n-1) + 2*pe + 1 }),
		"barrier":       lines(n, "PE %d passed the barrier and sees the marks of %d PEs", constant(n)),
		"put":           lines(n, "PE %d fetched a letter that begins with %d", func(pe int) int { return 8 * ((pe + 2*n - 2) % n) }),
		"signal":        lines(n, "PE %d has a letter that begins with %d", func(pe int) int { return 8 * ((pe + n - 1) % n) }),
	}
}

func TestExamplesOnEveryBackend(t *testing.T) {
	for n := 1; n <= 5; n++ {
		ranktest.Worlds(t, n, func(t *testing.T, run func(ranktest.Run) (string, error)) {
			var s settings
			if err := s.check(n, nil); err != nil {
				t.Fatal(err)
			}
			out, err := run(s.run)
			if err != nil {
				t.Fatal(err)
			}
			var want strings.Builder
			for _, x := range examples() {
				fmt.Fprintf(&want, "== %s: %s\n%s", x.name, x.about, output(n)[x.name])
			}
			if out != want.String() {
				t.Errorf("output\n%s\nwant\n%s", out, want.String())
			}
		})
	}
}

func TestChosenExamplesRunInTheirOrder(t *testing.T) {
	for _, test := range []struct{ args, want string }{
		{"", "broadcast reduce reducescatter fcollect alltoall barrier put signal"},
		{"all", "broadcast reduce reducescatter fcollect alltoall barrier put signal"},
		{"put", "put"},
		{"reduce broadcast reduce", "reduce broadcast reduce"},
	} {
		var s settings
		if err := s.check(1, strings.Fields(test.args)); err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, x := range s.chosen {
			names = append(names, x.name)
		}
		if got := strings.Join(names, " "); got != test.want {
			t.Errorf("%q runs %q, want %q", test.args, got, test.want)
		}
	}
}

func TestProgramStartsItsRanks(t *testing.T) {
	for _, test := range []struct {
		args []string
		n    int
		name string
	}{
		{[]string{"fcollect"}, 4, "fcollect"},
		{[]string{"-n", "2", "signal"}, 2, "signal"},
		{[]string{"-n", "3", "--backend", "sim", "barrier"}, 3, "barrier"},
	} {
		o := ranktest.Process(t, test.args...)
		if o.Want(t, 0, "== "+test.name+": ", output(test.n)[test.name]); o.Stderr != "" {
			t.Errorf("%v: stderr %q", test.args, o.Stderr)
		}
	}
	o := ranktest.Process(t, "-n", "3")
	for _, x := range examples() {
		o.Want(t, 0, output(3)[x.name])
	}
}

func TestRanksOfALauncherRunThem(t *testing.T) {
	outcomes := ranktest.Launched(t, []string{"put", "reduce"}, []string{"put", "reduce"})
	outcomes[0].Want(t, 0, output(2)["put"], output(2)["reduce"])
	if o := outcomes[1]; o != (ranktest.Outcome{}) {
		t.Errorf("rank 1 ended with %+v", o)
	}
}

// Ranks that run different examples detect it at the first operation that differs.
func TestRanksThatRunDifferentExamplesFail(t *testing.T) {
	for r, o := range ranktest.Launched(t, []string{"broadcast"}, []string{"reduce"}) {
		if o.Code == 0 || !strings.Contains(o.Stderr, fmt.Sprintf("nvshmem: rank %d of 2: ", r)) {
			t.Errorf("rank %d: code %d, %s", r, o.Code, o.Stderr)
		}
	}
}

func TestWrongElementFailsAllRanks(t *testing.T) {
	ranktest.Worlds(t, 3, func(t *testing.T, run func(ranktest.Run) (string, error)) {
		spoilt := example{"spoilt", "", func(ctx context.Context, p *pe) (int, error) {
			bad, err := fcollect(ctx, p)
			if p.my == 2 {
				bad++
			}
			return bad, err
		}}
		_, err := run((&settings{chosen: []example{spoilt}}).run)
		if !errors.Is(err, rank.ErrWrong) || strings.Count(err.Error(), "spoilt: wrong result: rank 2 has 1 wrong elements") != 3 {
			t.Errorf("error %v", err)
		}
	})
}

var errGone = errors.New("gone")

// In every example the other PEs learn of a lost PE instead of waiting for it.
func TestPEThatIsGoneEndsTheOthers(t *testing.T) {
	for _, x := range examples() {
		ranktest.Worlds(t, 3, func(t *testing.T, run func(ranktest.Run) (string, error)) {
			_, err := run(func(ctx context.Context, w *dist.World, out io.Writer) error {
				if w.Rank() == 1 {
					return errGone
				}
				return (&settings{chosen: []example{x}}).run(ctx, w, out)
			})
			if !errors.Is(err, errGone) || !errors.Is(err, dist.ErrAborted) {
				t.Errorf("%s: error %v", x.name, err)
			}
		})
	}
}

func TestWrongCountsElements(t *testing.T) {
	double := func(i int) float32 { return float32(2 * i) }
	for _, test := range []struct {
		got  []float32
		want int
	}{{nil, 0}, {[]float32{0, 2, 4}, 0}, {[]float32{0, 3, 4, 7}, 2}} {
		if n := wrong(test.got, double); n != test.want {
			t.Errorf("%v: %d, want %d", test.got, n, test.want)
		}
	}
}

func TestWrongCommandLinesAreOneLineAndCode2(t *testing.T) {
	for _, test := range []struct{ args, want string }{
		{"gather", `nvshmem: unknown example "gather" (--help lists them)`},
		{"reduce Barrier", `nvshmem: unknown example "Barrier"`},
		{"--size 3", "nvshmem: unknown flag: --size"},
		{"-n 0 all", "nvshmem: --ranks 0"},
	} {
		o := ranktest.Execute(execute, strings.Fields(test.args)...)
		o.Want(t, 2, test.want)
		if strings.Count(o.Stderr, "\n") != 1 || o.Stdout != "" {
			t.Errorf("%s: %q and %q", test.args, o.Stdout, o.Stderr)
		}
	}
}

func TestHelpListsTheExamples(t *testing.T) {
	o := ranktest.Execute(execute, "--help")
	for _, x := range examples() {
		o.Want(t, 0, x.name, x.about)
	}
}
