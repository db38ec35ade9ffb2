package perf

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/tool/drawing"
	"github.com/symgrad/symgrad/tensor"
)

// example is a result with every kind of row.
func example() Result {
	zero, three := int64(0), int64(3)
	return Result{
		Machine:   Machine{Host: "node7", OS: "linux", Kernel: "6.1", Arch: "amd64", CPU: "Some CPU", Cores: 2, NUMANodes: 1, MemoryBytes: 8 << 30},
		Libraries: map[string]string{"symgrad": "v1.2.3", "go": "go1.26"},
		Settings:  Settings{Backend: "shm", Ranks: 2, Style: OSU, Fresh: true, Checks: 1},
		Clock:     Clock{Name: "tsc", ReadNS: 20},
		Ranks:     []Rank{{0, "node7", 100, 0, "", 0}, {1, "node7", 101, -1, "", 0}},
		Rows: []Row{
			{"allreduce", 8, 2, "f32", "sum", -1, false, 10000, 0.1, 0.09, 0.095, 7, 0.08, 0.08, 0, &zero, "", "", 0},
			{"allreduce", 8, 2, "f32", "sum", -1, true, 10000, 0.08, 0.07, 0.075, 7, 0.1, 0.1, 0, &three, "", "", 0},
			{"allreduce", 1 << 26, 1 << 24, "f32", "sum", -1, false, 20, 123456.7, 1e5, 120000, 2e5, 0.543, 0.543, 0, &zero, "", "", 0},
			{"broadcast", 64, 16, "f32", "none", 0, false, 10, 4, 3, 4, 5, 16, 16, 0, nil, "", "", 0},
			{"barrier", 0, 0, "none", "none", -1, false, 10, 0.05, 0.04, 0.05, 0.06, 0, 0, 0, &zero, "", "", 0},
			{"atomics", 8, 1, "u64", "none", -1, false, 10, 0.02, 0.01, 0.02, 0.03, 0, 0, 100, &zero, "", "", 0},
		},
	}
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *rewrite {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got; -rewrite writes it anew):\n%s", name, diff)
	}
}

func TestJSONIsGoldenAndReadBack(t *testing.T) {
	var text bytes.Buffer
	if err := example().WriteJSON(&text); err != nil {
		t.Fatal(err)
	}
	golden(t, "result.json", text.Bytes())
	back, err := ReadJSON(&text)
	if err != nil || !reflect.DeepEqual(back, example()) {
		t.Errorf("read back: %v\n%s", err, cmp.Diff(example(), back))
	}
}

// The names that other programs read.
func TestJSONHasTheAgreedNames(t *testing.T) {
	var text bytes.Buffer
	if err := example().WriteJSON(&text); err != nil {
		t.Fatal(err)
	}
	var all map[string]any
	if err := json.Unmarshal(text.Bytes(), &all); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"machine", "libraries", "rows"} {
		if all[name] == nil {
			t.Errorf("no %q", name)
		}
	}
	row := all["rows"].([]any)[0].(map[string]any)
	for _, name := range []string{
		"op", "bytes", "count", "dtype", "redop", "in_place", "time_us", "algbw_gbs", "busbw_gbs", "wrong",
	} {
		if row[name] == nil {
			t.Errorf("no %q in a row", name)
		}
	}
}

func TestEmptyResultIsStillJSON(t *testing.T) {
	var text bytes.Buffer
	if err := (Result{}).WriteJSON(&text); err != nil || !json.Valid(text.Bytes()) {
		t.Errorf("%v: %s", err, text.Bytes())
	}
}

func TestReadJSONRefuses(t *testing.T) {
	for _, text := range []string{"", "no json", "[]", "{}", `{"rows": [{}]}`, `{"settings": {"ranks": 2}}`, `{"rows": [{"bytes": "8"}]}`} {
		if r, err := ReadJSON(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), "not a result of symgrad bench") {
			t.Errorf("%q is taken for %+v, %v", text, r, err)
		}
	}
}

func TestSumsOverRows(t *testing.T) {
	r := example()
	if n := r.Wrong(); n != 3 {
		t.Errorf("%d wrong, want 3", n)
	}
	if got, want := r.AverageBusBW(), (0.08+0.1+0.543+16)/4; math.Abs(got-want) > 1e-12 {
		t.Errorf("average %v, want %v: a barrier has none", got, want)
	}
	if got := (Result{}).AverageBusBW(); got != 0 {
		t.Errorf("average of nothing %v", got)
	}
}

func TestRowsOfCases(t *testing.T) {
	for want, c := range map[string]Case{
		"allreduce bf16 avg, in place, 8 B, 4 elements, root -1": {AllReduce, tensor.BF16, dist.RedAvg, 8, 4, true, -1},
		"gather u8, 8 B, 4 elements, root 1":                     {Gather, tensor.U8, dist.RedSum, 8, 4, false, 1},
		"barrier, 0 B, 0 elements, root -1":                      {Op: Barrier, DType: tensor.U8, Root: -1},
	} {
		if got := newRow(c).key(); got != want {
			t.Errorf("%+v: %q, want %q", c, got, want)
		}
	}
}

func TestRound(t *testing.T) {
	for x, want := range map[float64]float64{0: 0, 1.23456789: 1.23457, 123456789: 123457000, 1e-9: 1e-9, math.Inf(1): 0} {
		if got := round(x); got != want {
			t.Errorf("%v: %v, want %v", x, got, want)
		}
	}
	if got := round(math.NaN()); got != 0 {
		t.Errorf("NaN: %v", got)
	}
}

func TestMachineOfFakeFiles(t *testing.T) {
	text := func(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s)} }
	var m Machine
	m.readFrom(fstest.MapFS{
		"proc/sys/kernel/osrelease":            text("6.1.0-9\n"),
		"proc/cpuinfo":                         text("processor\t: 0\nmodel name\t: Fast CPU @ 3 GHz: new\n\nmodel name : other\n"),
		"proc/meminfo":                         text("MemTotal:       1048576 kB\nMemFree: 5 kB\n"),
		"sys/devices/system/node/node0/x":      text(""),
		"sys/devices/system/node/node1/x":      text(""),
		"sys/devices/system/node/possible":     text("0-1"),
		"sys/devices/system/node/node-nothing": text(""),
	})
	if want := (Machine{Kernel: "6.1.0-9", CPU: "Fast CPU @ 3 GHz: new", MemoryBytes: 1 << 30, NUMANodes: 2}); m != want {
		t.Errorf("%+v, want %+v", m, want)
	}
	var none Machine
	none.readFrom(fstest.MapFS{"proc/meminfo": text("MemTotal: much kB\n")})
	if none != (Machine{}) {
		t.Errorf("a machine that tells nothing is %+v", none)
	}
	if here := thisMachine(); here.Cores < 1 || here.OS == "" || here.Arch == "" {
		t.Errorf("this machine is %+v", here)
	}
}

// failing is a writer that takes so many bytes.
type failing int

var errFull = errors.New("no space left")

func (f *failing) Write(p []byte) (int, error) {
	if len(p) > int(*f) {
		return 0, errFull
	}
	*f -= failing(len(p))
	return len(p), nil
}

func TestWritersReportAFullDisk(t *testing.T) {
	c, err := Compare(example(), example())
	if err != nil {
		t.Fatal(err)
	}
	for _, room := range []failing{0, 100, 400} {
		table := NewTable(&room, "v", Config{})
		table.Begin(example())
		small := room
		for name, err := range map[string]error{
			"JSON":       example().WriteJSON(&small),
			"comparison": c.Write(&small),
			"plot":       Plot(&small, drawing.SVG, example(), nil),
			"table":      table.End(example()),
		} {
			if !errors.Is(err, errFull) {
				t.Errorf("%s with room for %d bytes: %v", name, room, err)
			}
		}
	}
}
