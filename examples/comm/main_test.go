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
	"github.com/symgrad/symgrad/internal/gpu/cuda/cudatest"
)

func TestMain(m *testing.M) { ranktest.Main(m, main) }

// output returns the output of a lab on n ranks.
func output(name string, n int) string {
	var b strings.Builder
	for r := range n {
		first, last := -1, -1
		switch {
		case name == "group" || n == 1 && name == "sendrecv":
			first, last = 100+16*r, 100+16*r+15
		case name == "window":
			first, last = 0, 16*n-1
		case r < 2: // the sender and the receiver
			first, last = 100, 115
		}
		fmt.Fprintf(&b, "rank %d has %d to %d\n", r, first, last)
	}
	return b.String()
}

// everything returns the output of the program on n ranks.
func everything(n int) string {
	var b strings.Builder
	for _, x := range labs() {
		fmt.Fprintf(&b, "== %s: %s\n%s", x.name, x.about, output(x.name, n))
	}
	return b.String()
}

func TestLabsOnEveryBackend(t *testing.T) {
	for n := 1; n <= 4; n++ {
		ranktest.Worlds(t, n, func(t *testing.T, run func(ranktest.Run) (string, error)) {
			out, err := run((&settings{chosen: labs()}).run)
			if err != nil || out != everything(n) {
				t.Errorf("error %v, output\n%s\nwant\n%s", err, out, everything(n))
			}
		})
	}
}

func TestProgramStartsItsRanks(t *testing.T) {
	if o := ranktest.Process(t, "-n", "3"); o.Code != 0 || o.Stdout != everything(3) || o.Stderr != "" {
		t.Errorf("ended with %+v", o)
	}
	ranktest.Process(t, "--backend", "sim", "window").Want(t, 0, output("window", 2))
}

// It needs GPUs: see cudatest.
func TestLabsOnGPUs(t *testing.T) {
	for _, backend := range []string{"cuda", "nccl", "nvshmem"} {
		for _, n := range []int{1, 2, 4} {
			t.Run(fmt.Sprintf("%s/%d GPUs", backend, n), func(t *testing.T) {
				cudatest.Devices(t, n)
				ranktest.Process(t, "-n", fmt.Sprint(n), "--backend", backend).Want(t, 0, everything(n))
			})
		}
	}
}

func TestWrongElementFailsAllRanks(t *testing.T) {
	ranktest.Worlds(t, 3, func(t *testing.T, run func(ranktest.Run) (string, error)) {
		spoilt := lab{"spoilt", "", func(c *comm) (int, error) {
			bad, err := window(c)
			if c.Rank() == 2 {
				bad++
			}
			return bad, err
		}}
		_, err := run((&settings{chosen: []lab{spoilt}}).run)
		if !errors.Is(err, rank.ErrWrong) || strings.Count(err.Error(), "rank 2 has 1 wrong elements") != 3 {
			t.Errorf("error %v", err)
		}
	})
}

func TestCheckCountsWrongElements(t *testing.T) {
	ranktest.Worlds(t, 2, func(t *testing.T, run func(ranktest.Run) (string, error)) {
		_, err := run(func(_ context.Context, w *dist.World, out io.Writer) error {
			c, err := newComm(w, out)
			if err != nil {
				return err
			}
			a, err := c.array(5, letter)
			if err != nil {
				return err
			}
			bad, err := a.check(func(i int) int32 { return letter(min(i, 2)) })
			if bad != 2 {
				t.Errorf("%d wrong elements, want 2", bad)
			}
			return errors.Join(err, c.close())
		})
		if err != nil {
			t.Error(err)
		}
	})
}

var errGone = errors.New("gone")

func TestRankThatIsGoneEndsTheOthers(t *testing.T) {
	for _, x := range labs() {
		ranktest.Worlds(t, 3, func(t *testing.T, run func(ranktest.Run) (string, error)) {
			_, err := run(func(ctx context.Context, w *dist.World, out io.Writer) error {
				if w.Rank() == 1 {
					return errGone
				}
				return (&settings{chosen: []lab{x}}).run(ctx, w, out)
			})
			if !errors.Is(err, errGone) || !errors.Is(err, dist.ErrAborted) {
				t.Errorf("%s: error %v", x.name, err)
			}
		})
	}
}

func TestWrongCommandLinesAreOneLineAndCode2(t *testing.T) {
	for _, test := range []struct{ args, want string }{
		{"gather", `comm: unknown lab "gather" (--help lists them)`},
		{"-n 0", "comm: --ranks 0"},
	} {
		o := ranktest.Execute(execute, strings.Fields(test.args)...)
		o.Want(t, 2, test.want)
		if strings.Count(o.Stderr, "\n") != 1 || o.Stdout != "" {
			t.Errorf("%s: %q and %q", test.args, o.Stdout, o.Stderr)
		}
	}
}

func TestHelpListsTheLabs(t *testing.T) {
	o := ranktest.Execute(execute, "--help")
	for _, x := range labs() {
		o.Want(t, 0, x.name, x.about)
	}
}
