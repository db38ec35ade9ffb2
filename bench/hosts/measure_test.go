package hosts

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/symgrad/symgrad/internal/net/hostcost"
	"github.com/symgrad/symgrad/internal/net/hosttest"
)

// Settings of bench/hosts.sh.
var (
	raw     = flag.String("raw", "", "folder for the results of all runs; without it nothing is measured")
	bin     = flag.String("bin", "", "folder of symgrad, collbench-openmpi and collbench-mpich")
	rounds  = flag.Int("rounds", 2, "runs of each engine and range of sizes")
	engines = flag.String("engines", "", "engines to measure; empty means all")
	layouts = flag.String("layouts", "2x1 2x2 3x1", "hosts x ranks of each host")
	most    = flag.String("max", "64M", "largest size")
	factor  = flag.Int("factor", 4, "from one size of a range to the next")
	budget  = flag.Int("budget", 100, "milliseconds that collbench may spend on a row")
)

// limit is the longest time of one run: a longer one hangs.
const limit = 180 * time.Second

// firstBytes are the smallest sizes of the two ranges. With factor 4 they have all powers of two.
var firstBytes = []string{"8", "16"}

// engine is a program and its launcher.
type engine struct {
	name     string
	launcher hosttest.MPI // "" for symgrad run on each host
	program  string
	setting  string // variable for all ranks, only if there are more of them than cores
}

var all = []engine{
	{"symgrad-ucx", "", "symgrad", ""},
	{"openmpi", hosttest.OpenMPI, "collbench-openmpi", ""},
	{"symgrad-openmpi", hosttest.OpenMPI, "symgrad", ""},
	{"mpich", hosttest.MPICH, "collbench-mpich", ""},
	{"symgrad-mpich", hosttest.MPICH, "symgrad", ""},
	{"openmpi-yield", hosttest.OpenMPI, "collbench-openmpi", "OMPI_MCA_mpi_yield_when_idle=1"},
}

// TestMeasureHosts runs all engines in turn, another one first each time, and leaves a file of each
// run: ENGINE.HOSTSxRANKS.NUMBER.json. A run that fails leaves a file .err.
func TestMeasureHosts(t *testing.T) {
	if *raw == "" {
		t.Skip("it measures for bench/hosts.sh, which sets -raw")
	}
	for _, layout := range strings.Fields(*layouts) {
		var hosts, each int
		if _, err := fmt.Sscanf(layout, "%dx%d", &hosts, &each); err != nil || hosts < 2 || each < 1 {
			t.Fatalf("layout %q: want for example 2x1", layout)
		}
		chosen := slices.DeleteFunc(slices.Clone(all), func(e engine) bool {
			return *engines != "" && !slices.Contains(strings.Fields(*engines), e.name) ||
				e.setting != "" && hosts*each <= runtime.NumCPU() || e.name != all[0].name && hosts > 2
		})
		s := site{Hosts: hosttest.New(t, hosts, hosttest.Options{Share: []string{*raw, *bin}}), ranks: slices.Repeat([]int{each}, hosts)}
		for i := range *rounds * len(firstBytes) {
			for k := range chosen {
				e := chosen[(i+k)%len(chosen)]
				name := filepath.Join(*raw, fmt.Sprintf("%s.%s.%d", e.name, layout, i))
				s.measure(t, e, firstBytes[i%len(firstBytes)], name)
			}
			if each == 1 {
				s.measureWire(t)
			}
		}
		if len(s.nets) > 0 {
			s.predict(t, filepath.Join(*raw, "predicted."+layout+".json"))
		}
		s.Close()
	}
}

// site is hosts and the number of ranks of each.
type site struct {
	*hosttest.Hosts
	ranks []int
	nets  []hostcost.Net // as measured so far
}

// measureWire measures the wire between the hosts, with one process on each.
func (s *site) measureWire(t *testing.T) {
	t.Helper()
	store, err := os.MkdirTemp(*raw, "wire")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(store)
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var nodes []*exec.Cmd
	for i := range s.ranks {
		part := fmt.Sprintf("-wire=%d %d %s", i, len(s.ranks), store)
		nodes = append(nodes, s.Command(i, program, "-test.run=^TestWireOfHost$", part))
	}
	out, err := run(t, nodes)
	var net hostcost.Net
	if err == nil {
		err = json.NewDecoder(bytes.NewReader(out)).Decode(&net)
	}
	if err != nil {
		t.Logf("the wire failed: %v: %.400s", err, out)
		return
	}
	t.Logf("wire: %+v", net)
	s.nets = append(s.nets, net)
}

// predict writes the predicted times of allreduces to a file: medians over all measurements of the
// wire.
func (s *site) predict(t *testing.T, name string) {
	t.Helper()
	type row struct {
		Bytes int64   `json:"bytes"`
		US    float64 `json:"time_us"`
	}
	file := struct {
		Net  []hostcost.Net `json:"net"`
		Rows []row          `json:"rows"`
	}{Net: s.nets}
	for bytes := int64(8); bytes <= 64<<20; bytes *= 2 {
		seconds := make([]float64, len(s.nets))
		for i, n := range s.nets {
			seconds[i] = n.AllReduce(bytes).Seconds
		}
		slices.Sort(seconds)
		file.Rows = append(file.Rows, row{bytes, seconds[len(seconds)/2] * 1e6})
	}
	text, err := json.Marshal(file)
	if err == nil {
		err = os.WriteFile(name, text, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// measure runs one engine on a range of sizes, and leaves its result in NAME.json or NAME.err.
func (s *site) measure(t *testing.T, e engine, first, name string) {
	t.Helper()
	begun, result := time.Now(), name+".json"
	words := []string{filepath.Join(*bin, e.program)}
	if e.setting != "" {
		words = []string{"env", e.setting, words[0]}
	}
	ours := e.program == "symgrad"
	if ours {
		words = append(words, "bench", "--op", "allreduce", "--json", result)
	} else {
		words = append(words, "-o", "allreduce", "-l", e.name, "-t", fmt.Sprint(*budget))
	}
	out, err := s.start(t, e.launcher, append(words, "-b", first, "-e", *most, "-f", fmt.Sprint(*factor)))
	if err == nil && !ours {
		err = os.WriteFile(result, out, 0o644)
	}
	t.Logf("%s: %.1f s", filepath.Base(name), time.Since(begun).Seconds())
	if err != nil {
		t.Logf("%s failed: %v: ...%s", e.name, err, out[max(0, len(out)-400):])
		if err := os.WriteFile(name+".err", fmt.Appendf(out, "%v\n", err), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// start runs a command on all hosts, and returns the output of the first launcher, with the errors
// of all if one fails.
func (s *site) start(t *testing.T, launcher hosttest.MPI, words []string) ([]byte, error) {
	t.Helper()
	nodes := []*exec.Cmd{}
	if launcher != "" {
		nodes = append(nodes, s.MPIRun(launcher, s.ranks, words[0], words[1:]...))
	} else {
		secret := filepath.Join(*raw, "secret")
		if err := os.WriteFile(secret, []byte(strings.Repeat("0123456789abcdef", 4)+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		for i, n := range s.ranks {
			nodes = append(nodes, s.Command(i, filepath.Join(*bin, "symgrad"), append([]string{
				"run", "--nnodes", fmt.Sprint(len(s.ranks)), "--node-rank", fmt.Sprint(i),
				"--store", s.Addr(0) + ":29500", "--secret", secret, "-n", fmt.Sprint(n), "--",
			}, words...)...))
		}
	}
	return run(t, nodes)
}

// run runs commands together, and returns the output of the first, with the errors of all if one
// fails. After limit it interrupts them: a launcher then ends its ranks.
func run(t *testing.T, commands []*exec.Cmd) ([]byte, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	out, problems := make([]bytes.Buffer, len(commands)), make([]bytes.Buffer, len(commands))
	for i, c := range commands {
		c.Stdout, c.Stderr, c.WaitDelay = &out[i], &problems[i], time.Second
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		stop := context.AfterFunc(ctx, func() { _ = c.Process.Signal(os.Interrupt) })
		defer stop()
	}
	var failed error
	for _, c := range commands {
		failed = cmp.Or(failed, c.Wait())
	}
	if ctx.Err() != nil {
		failed = fmt.Errorf("no end within %v: %w", limit, failed)
	}
	text := out[0].Bytes()
	if failed != nil {
		for i := range problems {
			text = slices.Concat(text, out[i].Bytes(), problems[i].Bytes())
		}
	}
	return text, failed
}
