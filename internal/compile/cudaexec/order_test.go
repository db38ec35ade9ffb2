package cudaexec

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/compile/program"
)

// steps is a program of steps on streams that wait for others: "c", "m 0" is a step of Comm after
// step 0, "s" one of Side.
func steps(lines ...string) *program.Program {
	p := &program.Program{Name: "steps", Clock: program.None}
	for i, line := range lines {
		words := strings.Fields(line)
		s := program.Step{Name: fmt.Sprintf("s%d", i), Op: &program.Map{}}
		switch words[0] {
		case "m":
			s.Stream = program.Comm
		case "s":
			s.Stream = program.Side
		case "k": // a collective in the order of computing
			s.Op = &program.Collective{}
		}
		for _, w := range words[1:] {
			var j int
			_, _ = fmt.Sscan(w, &j)
			s.After = append(s.After, j)
		}
		p.Steps = append(p.Steps, s)
	}
	return p
}

func TestEventsStandOnlyWhereAStreamHasToWait(t *testing.T) {
	for _, tt := range []struct {
		name  string
		lines []string
		want  string // for each step the events that it waits for and records
	}{
		{"one stream", []string{"c", "c 0", "c 0 1"}, "w[] r-1 w[] r-1 w[] r-1"},
		{"there and back", []string{"c", "m 0", "c 1"}, "w[] r0 w[0] r1 w[1] r-1"},
		{"the newest of several", []string{"c", "c", "m 0 1"}, "w[] r-1 w[] r0 w[0] r-1"},
		{"waited for before", []string{"c", "m 0", "m 0"}, "w[] r0 w[0] r-1 w[] r-1"},
		{"older than waited for", []string{"c", "c", "m 1", "m 0"}, "w[] r-1 w[] r0 w[0] r-1 w[] r-1"},
		{"a collective among what computes", []string{"c", "c", "k", "c", "c", "k"}, "w[] r-1 w[] r0 w[0] r1 w[1] r-1 w[] r2 w[2] r-1"},
		{"one that begins, one that ends", []string{"k", "c", "k", "k"}, "w[] r0 w[0] r1 w[1] r-1 w[] r-1"},
		{"from one to another to the first", []string{"c", "s 0", "c", "m 1", "c 3"}, "w[] r0 w[0] r1 w[] r-1 w[1] r2 w[2] r-1"},
		{"two at once", []string{"m", "s", "c 0 1", "s 2", "m 2"}, "w[] r0 w[] r1 w[0 1] r2 w[2] r-1 w[2] r-1"},
		{"two that wait for one", []string{"m", "c 0", "c 0", "m 1", "c 3"}, "w[] r0 w[0] r1 w[] r-1 w[1] r2 w[2] r-1"},
	} {
		o, err := newOrder(steps(tt.lines...))
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		var got []string
		for _, turn := range o.turns {
			got = append(got, fmt.Sprintf("w%v r%d", turn.waits, turn.record))
		}
		if text := strings.Join(got, " "); text != tt.want {
			t.Errorf("%s:\n got %s\nwant %s", tt.name, text, tt.want)
		}
	}
}

// Whatever a step has to wait for is done when the events and the order of its own stream say that
// it may start.
func TestEventsKeepEveryOrder(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 7))
		var lines []string
		for i := range 1 + rng.IntN(30) {
			line := []string{"c", "m", "k", "s"}[rng.IntN(4)]
			for range rng.IntN(3) {
				if i > 0 {
					line += fmt.Sprint(" ", rng.IntN(i))
				}
			}
			lines = append(lines, line)
		}
		p := steps(lines...)
		o, err := newOrder(p)
		if err != nil {
			t.Fatal(err)
		}
		recorded := make([]int, o.events)
		before := make([][]bool, len(p.Steps)) // steps that have certainly ended when a step starts
		last := [streams]int{-1, -1, -1}
		for i := range p.Steps {
			before[i] = make([]bool, len(p.Steps))
			join := func(j int) {
				before[i][j] = true
				for k, done := range before[j] {
					before[i][k] = before[i][k] || done
				}
			}
			if j := last[o.on[i]]; j >= 0 {
				join(j)
			}
			for _, e := range o.turns[i].waits {
				join(recorded[e])
			}
			last[o.on[i]] = i
			if e := o.turns[i].record; e >= 0 {
				recorded[e] = i
			}
			must := slices.Clone(p.Steps[i].After)
			if p.Steps[i].Stream == program.Compute { // all that comes before it there
				for j := range i {
					if p.Steps[j].Stream == program.Compute {
						must = append(must, j)
					}
				}
			}
			for _, j := range must {
				if !before[i][j] {
					t.Fatalf("seed %d: step %d does not wait for step %d of\n%s", seed, i, j, strings.Join(lines, "\n"))
				}
			}
		}
	}
}

func TestStepsThatWaitForLaterOnesAreRefused(t *testing.T) {
	for _, lines := range [][]string{{"c 0"}, {"c", "m 2", "c"}, {"c -1"}} {
		if _, err := newOrder(steps(lines...)); !errors.Is(err, dist.ErrInvalid) {
			t.Errorf("%v: %v", lines, err)
		}
	}
	p := steps("c")
	p.Steps[0].Stream = 9
	if _, err := newOrder(p); !errors.Is(err, dist.ErrInvalid) || !strings.Contains(err.Error(), `step 0 "s0"`) {
		t.Errorf("a stream that there is not: %v", err)
	}
}

func TestMeasuredPartsEndWhereComputingWaits(t *testing.T) {
	p := steps("c", "c", "m 1", "c", "c 2", "c", "m 5", "c 6")
	o, err := newOrder(p)
	if err != nil {
		t.Fatal(err)
	}
	want := []segment{{0, 3, program.Compute}, {2, 2, program.Comm}, {4, 5, program.Compute}, {6, 6, program.Comm}, {7, 7, program.Compute}}
	if got := cuts(p, &o, false); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	aside := steps("c", "s 0", "c", "s", "m 1")
	if o, err := newOrder(aside); err != nil || !slices.Equal(cuts(aside, &o, false), []segment{{0, 2, program.Compute}, {1, 3, program.Side}, {4, 4, program.Comm}}) {
		t.Errorf("with steps aside: %v, %v", cuts(aside, &o, false), err)
	}
	o.turns[2].ahead, o.turns[3].behind = true, true
	behind := slices.Replace(slices.Clone(want), 0, 2, segment{0, 1, program.Compute}, segment{2, 2, program.Comm}, segment{3, 3, program.Compute})
	if got := cuts(p, &o, false); !slices.Equal(got, behind) {
		t.Errorf("with a step that waits for a beginning: got %v, want %v", got, behind)
	}
	if got := cuts(p, &o, true); len(got) != len(p.Steps) || got[3] != (segment{3, 3, program.Compute}) {
		t.Errorf("each step: got %v", got)
	}
}

func TestExposedIsWhatNoComputingCovers(t *testing.T) {
	for _, tt := range []struct {
		compute, comm []span
		want          string // compute, comm and exposed
	}{
		{nil, nil, "0s 0s 0s"},
		{[]span{{0, 10}}, []span{{2, 5}}, "10ns 3ns 0s"},
		{[]span{{0, 10}}, []span{{8, 15}}, "10ns 7ns 5ns"},
		{[]span{{10, 20}, {0, 5}}, []span{{4, 12}, {3, 6}}, "15ns 9ns 5ns"},
		{[]span{{0, 5}, {5, 5}, {5, 9}}, []span{{20, 30}}, "9ns 10ns 10ns"},
	} {
		compute, comm := union(tt.compute), union(tt.comm)
		if got := fmt.Sprint(length(compute), length(comm), uncovered(comm, compute)); got != tt.want {
			t.Errorf("compute %v, comm %v: got %s, want %s", tt.compute, tt.comm, got, tt.want)
		}
	}
}

func TestTimelineIsATable(t *testing.T) {
	tl := Timeline{
		Program: "mlp", Run: 100, Runs: 3, Graph: true, Marked: 200, Compute: 150, Comm: 90, Exposed: 50,
		Steps: []StepTime{{Step: 4, Name: "dw0", Op: "matmul 2x3x4", Start: 10, End: 30, Least: 15}},
	}
	want := `mlp: 100ns a run (one graph, mean of 3); with marks 200ns: compute 150ns, communication 90ns, of which exposed 50ns, 25.0 %
 step  stream          start           end         least  op
    4  compute          10ns          30ns          15ns  matmul 2x3x4  "dw0"
`
	if got := tl.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got := (&Timeline{Exposed: 5}).Share(); got != 0 {
		t.Errorf("the share of a run without time is %v", got)
	}
}

func TestStampsAreAtTheEndsOfTheirSegments(t *testing.T) {
	begin := uint64(1000)
	s := &stamps{list: []segment{{0, 1, program.Compute}, {2, 2, program.Comm}}, times: []uint64{begin + 5, begin + 9, begin - 1, begin + 20, begin, begin + 30}}
	if got := s.spans(program.Comm); !slices.Equal(got, []span{{0, 20}}) {
		t.Errorf("communication: %v", got)
	}
	if got := s.spans(program.Compute); !slices.Equal(got, []span{{5, 9}}) {
		t.Errorf("computing: %v", got)
	}
	if from, to := s.whole(); from != begin || to != begin+30 {
		t.Errorf("the run is from %d to %d", from, to)
	}
}

// The programs of the tests with several ranks keep every dependency, whether their collectives are
// on Comm or not.
func TestProgramsOfRanksAreOrdered(t *testing.T) {
	o := options{batch: 4, dims: []int{5, 6, 7, 3}}
	for _, optimized := range []bool{true, false} {
		b := parallel(0, o).plan(t, optimized)
		order, err := newOrder(b.p)
		if err != nil {
			t.Fatal(err)
		}
		if n := collectives(b.p); n < 3 || order.events < 2 {
			t.Errorf("%d collectives and %d events", n, order.events)
		}
		for i := range b.p.Steps {
			_, collective := b.p.Steps[i].Op.(*program.Collective)
			if collective != (order.on[i] == program.Comm) {
				t.Errorf("optimized %t: step %d is on %v", optimized, i, order.on[i])
			}
			if collective && len(order.turns[i].waits) == 0 {
				t.Errorf("optimized %t: %s waits for nothing\n%v", optimized, stepName(b.p, i), b.p)
			}
		}
	}
}
