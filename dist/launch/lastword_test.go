//go:build linux

package launch

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestEqualErrorsOfRanksAreShownOnce(t *testing.T) {
	for _, test := range []struct {
		name  string
		words map[int]string // by rank; %d is its number
		want  []string       // lines of stderr, once each
		not   []string
	}{
		{
			"all ranks",
			map[int]string{0: "prog: rank %d of 3: no room", 1: "prog: rank %d of 3: no room", 2: "prog: rank %d of 3: no room"},
			[]string{"prog: rank 0 of 3: no room", "symgrad: all 3 ranks ended with the same error: prog: no room"},
			[]string{"rank 1 of 3", "rank 2 of 3", "its last lines", "[1]"},
		},
		{
			"some ranks, which are not named",
			map[int]string{0: "prog: other", 1: "prog: no room", 2: "prog: no room"},
			[]string{"prog: other", "[1] prog: no room", "symgrad: ranks 1-2 ended with the same error: prog: no room"},
			[]string{"[2] prog"},
		},
		{
			"ranks in errors of operations",
			map[int]string{0: "prog: barrier #2 rank %d/3: rank 1 died", 1: "prog: other", 2: "prog: barrier #2 rank %d/3: rank 1 died"},
			[]string{"prog: barrier #2 rank 0/3: rank 1 died", "symgrad: ranks 0, 2 ended with the same error: prog: barrier #2 rank 0/3: rank 1 died"},
			[]string{"rank 2/3"},
		},
		{
			"several lines",
			map[int]string{0: "prog: rank %d of 3: a\nb", 1: "prog: rank %d of 3: a\nb", 2: "prog: rank %d of 3: c"},
			[]string{"prog: rank 0 of 3: a", "b", "symgrad: ranks 0-1 ended with the same error: prog: a", "prog: rank 2 of 3: c"},
			[]string{"rank 1 of 3", "same error: b"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			logs := t.TempDir()
			job, ranks := newStage(t).spawn(t.Context(), SpawnConfig{N: 3, LogDir: logs})
			for rank, r := range ranks { // one after another
				text := test.words[rank]
				if strings.Contains(text, "%d") {
					text = fmt.Sprintf(text, rank)
				}
				r.make(fmt.Sprintf("word %q", text))
				log, err := os.ReadFile(filepath.Join(logs, fmt.Sprintf("rank-%d.log", rank)))
				for ; err == nil && string(log) != text+"\n"; log, err = os.ReadFile(filepath.Join(logs, fmt.Sprintf("rank-%d.log", rank))) {
					if t.Context().Err() != nil {
						t.Fatal("the log never has the line")
					}
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			for _, r := range ranks {
				r.tell("exit 1")
				r.gone()
				job.sees(r)
			}
			job.wait()
			lines := strings.Split(job.err.String(), "\n")
			for _, want := range test.want {
				n := 0
				for _, line := range lines {
					if line == want {
						n++
					}
				}
				if n != 1 {
					t.Errorf("%q is there %d times in\n%s", want, n, &job.err)
				}
			}
			for _, not := range test.not {
				if strings.Contains(job.err.String(), not) {
					t.Errorf("%q is in\n%s", not, &job.err)
				}
			}
			if strings.Contains(job.err.String(), lastWordMark) {
				t.Errorf("the mark is shown: %q", &job.err)
			}
		})
	}
}

// Without a launcher of this project the line is as it is.
func TestLastWordIsPlainWithoutALauncher(t *testing.T) {
	var out strings.Builder
	(Env{}).LastWord(&out, "prog: a\nb\n")
	if out.String() != "prog: a\nb\n" {
		t.Errorf("%q", out.String())
	}
}

func TestRanksAreNamedAsRanges(t *testing.T) {
	for want, ranks := range map[string][]int{"ranks 0-2, 5": {5, 0, 2, 1}, "all 2 ranks": {1, 0}, "ranks 1, 3": {3, 1}} {
		size := 8
		if len(want) < 12 && strings.HasPrefix(want, "all") {
			size = 2
		}
		if got := rankNames(ranks, size); got != want {
			t.Errorf("%v: got %s, want %s", ranks, got, want)
		}
	}
}
