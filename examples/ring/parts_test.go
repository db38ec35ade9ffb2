package main

import (
	"strings"
	"testing"

	"github.com/symgrad/symgrad/examples/internal/ranktest"
)

func TestWrongCommandLinesAreOneLineAndCode2(t *testing.T) {
	for _, test := range []struct{ args, want string }{
		{"--rounds 0", "ring: --rounds 0: want 1 or more"},
		{"--bytes 0", "ring: --bytes 0: want a multiple of 8, at most 1 GiB"},
		{"--bytes 12", "ring: --bytes 12: want a multiple of 8"},
		{"--bytes 2000000000", "at most 1 GiB"},
		{"-n 0", "ring: --ranks 0"},
		{"4", `ring: unexpected argument "4"`},
	} {
		o := ranktest.Execute(execute, strings.Fields(test.args)...)
		o.Want(t, 2, test.want)
		if strings.Count(o.Stderr, "\n") != 1 || o.Stdout != "" {
			t.Errorf("%s: %q and %q", test.args, o.Stdout, o.Stderr)
		}
	}
}

func TestHelpTellsTheFlags(t *testing.T) {
	ranktest.Execute(execute, "--help").Want(t, 0, about, "--rounds", "--bytes", "--backend")
}

func TestWrongCountsTheNumbersThatDiffer(t *testing.T) {
	for _, test := range []struct {
		numbers []int64
		want    int
	}{{nil, 0}, {[]int64{5, 5}, 0}, {[]int64{5, 4, 6}, 2}} {
		if got := wrong(test.numbers, 5); got != test.want {
			t.Errorf("%v: %d, want %d", test.numbers, got, test.want)
		}
	}
}
