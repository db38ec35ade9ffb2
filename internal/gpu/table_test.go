package gpu

import (
	"bytes"
	"cmp"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

func TestBuiltinTableIsForAnyMachine(t *testing.T) {
	table, err := BuiltinTable("")
	if err != nil {
		t.Fatal(err)
	}
	if last := table.Rules[len(table.Rules)-1]; last.Ranks != 0 || last.Bytes != 0 {
		t.Errorf("the last rule, %+v, does not fit everything", last)
	}
}

func TestBuiltinTableIsThatOfTheGPUs(t *testing.T) {
	for _, c := range []struct {
		machine, want string
		fits          bool
	}{
		{"NVIDIA H200", "NVIDIA H200", true},
		{"NVIDIA H100 80GB HBM3", "NVIDIA H100 80GB HBM3", true},
		{"NVIDIA A100", "NVIDIA H100 80GB HBM3", false}, // whose rules count alone
		{"", "NVIDIA H100 80GB HBM3", false},
	} {
		table, err := BuiltinTable(c.machine)
		if err != nil || table.Machine != c.want || table.Fits(c.machine) != c.fits {
			t.Fatalf("%s: the table of %s, %v", c.machine, table.Machine, err)
		}
		if err := table.Validate(); err != nil {
			t.Errorf("%s: %v", c.machine, err)
		}
		for _, n := range []int{2, 4} {
			if !slices.ContainsFunc(table.Rows, func(r Row) bool { return r.Ranks == n }) {
				t.Errorf("%s: no rows of %d ranks", c.machine, n)
			}
		}
	}
}

// The built-in table's choices were also fast on other machines, by the tables of symgrad tune
// there, including types without rows in it. Its rows of reduce, broadcast and all-to-all are from
// the first. The measured tables also have timings of a
// deleted engine, host.
func TestBuiltinTableChoosesWhatIsFastOnOtherMachines(t *testing.T) {
	for _, c := range []struct {
		file  string
		ranks []int
		most  float64 // of the time of the fastest
	}{
		{"h100x4-tune.json", []int{2, 4}, 1.15},
		{"h200x2-tune.json", []int{2}, 1.08}, // H200s, which go by rows of H100s
	} {
		measured, choices, rows := measuredTable(t, c.file), map[int]*dispatcher{}, map[int]int{}
		table, err := BuiltinTable(measured.Machine)
		if err != nil {
			t.Fatal(err)
		}
		var engines []Engine
		for _, m := range measured.Rows[0].Timings {
			engines = append(engines, &column{name: m.Engine})
		}
		engines = append(engines, &column{name: "nccl-window"}) // of the symmetric ones
		for _, n := range c.ranks {
			choices[n] = &dispatcher{engines: engines, ranks: n, hosts: 1, forced: -1}
			if err := choices[n].bind(table, measured.Machine, new(DispatchConfig)); err != nil {
				t.Fatal(err)
			}
		}
		for _, r := range measured.Rows {
			r.Timings = slices.DeleteFunc(r.Timings, func(m Timing) bool { return m.Engine == "host" })
			chosen, us := choices[r.Ranks].timing(t, &r)
			best := slices.MinFunc(r.Timings, func(a, b Timing) int { return cmp.Compare(a.Microseconds, b.Microseconds) })
			if us > c.most*best.Microseconds {
				t.Errorf("%s: %s %s of %d B, symmetric %v, %d ranks, goes to %s, which took %.2f us; %s took %.2f", c.file, r.Kind, r.DType, r.Bytes,
					r.Symmetric, r.Ranks, chosen, us, best.Engine, best.Microseconds)
			}
			rows[r.Ranks]++
		}
		const each = 19 * 2 * (3*3 + 3) // sizes, private or not, three kinds of three types, three that do not reduce
		for _, n := range c.ranks {
			if rows[n] != each {
				t.Errorf("%s: %d rows of %d ranks, want %d", c.file, rows[n], n, each)
			}
		}
	}
}

// measuredTable is a table among the results.
func measuredTable(t *testing.T, file string) *Table {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "bench", "results", "current", file))
	if err != nil {
		t.Fatal(err)
	}
	measured, err := ReadTable(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return measured
}

// timing returns the engine for the operation of r, and its time.
func (k *dispatcher) timing(t *testing.T, r *Row) (engine string, us float64) {
	t.Helper()
	key, err := r.key()
	if err != nil {
		t.Fatal(err)
	}
	one := map[tensor.DType]tensor.Buffer{
		0: tensor.Of(make([]byte, 1)), tensor.F32: f32s(1), tensor.F16: tensor.Of(make([]tensor.Float16, 1)), tensor.BF16: tensor.Of(make([]tensor.BFloat16, 1)),
	}[key.dtype]
	op := dist.Op{Kind: key.kind, Red: dist.Sum, Symmetric: r.Symmetric, Count: int(r.Bytes / one.Bytes()), Src: one, Dst: one}
	op.Count /= int(max(Size(&op, r.Ranks)/r.Bytes, 1)) // a rank's part
	for _, i := range k.candidates(&op) {
		for _, m := range r.Timings {
			if m.Engine == k.engines[i].Name() {
				return m.Engine, m.Microseconds
			}
		}
	}
	t.Fatalf("%s %s of %d B goes to no engine that was measured", r.Kind, r.DType, r.Bytes)
	return "", 0
}

func sumRow(bytes int64, timings ...Timing) Row {
	return Row{Kind: "allreduce", DType: "f32", Reduction: "sum", Ranks: 2, Bytes: bytes, Timings: timings}
}

func TestTableIsTheSameAfterAFile(t *testing.T) {
	table := &Table{
		Version: tableVersion, Machine: "NVIDIA H200", Driver: 13000, Libraries: []Library{{"nccl", "2.28.3"}},
		Rows:  []Row{sumRow(1024, Timing{"nccl", 10.125}, Timing{"oneshot", 5.5})},
		Rules: []Rule{{Engines: []string{"nccl"}}},
	}
	var file bytes.Buffer
	if err := table.Write(&file); err != nil {
		t.Fatal(err)
	}
	again, err := ReadTable(bytes.NewReader(file.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	if again.Hash() != table.Hash() {
		t.Errorf("%+v came back as %+v", table, again)
	}
	again.Rows[0].Timings[0].Microseconds++
	if again.Hash() == table.Hash() {
		t.Error("tables that differ have one hash")
	}
}

func TestTableRefuses(t *testing.T) {
	valid := func() *Table { return &Table{Version: tableVersion, Rows: []Row{sumRow(1024, Timing{"nccl", 1})}} }
	for word, change := range map[string]func(t *Table){
		"version 9":            func(t *Table) { t.Version = 9 },
		"unknown collective":   func(t *Table) { t.Rows[0].Kind = "send" },
		"dtype \"f31\"":        func(t *Table) { t.Rows[0].DType = "f31" },
		"which reduces: true":  func(t *Table) { t.Rows[0].DType = "" },
		"which reduces: false": func(t *Table) { t.Rows[0].Kind = "allgather" },
		"class":                func(t *Table) { t.Rows[0].Reduction = "min" },
		"0 ranks":              func(t *Table) { t.Rows[0].Ranks = 0 },
		"power of two":         func(t *Table) { t.Rows[0].Bytes = 1000 },
		"no timings":           func(t *Table) { t.Rows[0].Timings = nil },
		"microseconds":         func(t *Table) { t.Rows[0].Timings[0].Microseconds = 0 },
		"the same operation":   func(t *Table) { t.Rows = append(t.Rows, t.Rows[0]) },
		"rule 0":               func(t *Table) { t.Rules = []Rule{{Ranks: 2}} },
		"collective \"send\"":  func(t *Table) { t.Rules = []Rule{{Kinds: []string{"reduce", "send"}, Engines: []string{"ll"}}} },
	} {
		table := valid()
		change(table)
		b, err := json.Marshal(table)
		if err != nil {
			t.Fatal(err)
		}
		_, err = ReadTable(bytes.NewReader(b))
		if strings.HasPrefix(word, "dtype") {
			word = "f31"
		}
		if e := want(err, dist.ErrInvalid, word); e != nil {
			t.Error(e)
		}
	}
	for _, text := range []string{"", "{", `{"version":1} 2`, `{"version":1,"gpu":"x"}`} {
		if _, err := ReadTable(strings.NewReader(text)); want(err, dist.ErrInvalid) != nil {
			t.Errorf("table %q: error %v", text, err)
		}
	}
}

func FuzzReadTable(f *testing.F) {
	f.Add(string(tableH100))
	f.Add(`{"version":1,"rows":[{"kind":"allreduce","dtype":"f32","reduction":"sum","ranks":2,"bytes":1024,"timings":[{"engine":"a","microseconds":1}]}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		table, err := ReadTable(strings.NewReader(text))
		if err != nil {
			return
		}
		var file bytes.Buffer
		if err := table.Write(&file); err != nil {
			t.Fatal(err)
		}
		again, err := ReadTable(&file)
		if err != nil || again.Hash() != table.Hash() {
			t.Errorf("a table that was read cannot be read again: %v", err)
		}
	})
}

func TestSizesAndClassesOfOperations(t *testing.T) {
	for _, c := range []struct {
		op    dist.Op
		size  int64
		class string
	}{
		{dist.Op{Kind: dist.KindAllReduce, Red: dist.Sum, Count: 3, Src: f32s(3)}, 12, "sum"},
		{dist.Op{Kind: dist.KindReduce, Red: dist.Avg, Count: 3, Src: f32s(3)}, 12, "scaled"},
		{dist.Op{Kind: dist.KindReduceScatter, Red: dist.Max, Count: 3, Dst: f32s(3), Src: f32s(12)}, 48, "other"},
		{dist.Op{Kind: dist.KindReduceScatter, Red: dist.PreMulSum(float32(2)), Count: 3, Src: f32s(12)}, 48, "scaled"},
		{dist.Op{Kind: dist.KindAllGather, Count: 3, Src: f32s(3), Dst: f32s(12)}, 48, ""},
		{dist.Op{Kind: dist.KindGather, Count: 3, Src: f32s(3)}, 48, ""},
		{dist.Op{Kind: dist.KindBroadcast, Count: 3, Dst: f32s(3)}, 12, ""},
		{dist.Op{Kind: dist.KindBarrier}, 0, ""},
	} {
		if size, class := Size(&c.op, 4), Class(&c.op); size != c.size || class != c.class {
			t.Errorf("%v of %d: %d B, class %q; want %d, %q", c.op.Kind, c.op.Count, size, class, c.size, c.class)
		}
	}
	for size, class := range map[int64]int{0: 0, 1: 0, 2: 1, 3: 2, 4: 2, 1023: 10, 1024: 10, 1025: 11, 1 << 40: 40} {
		if got := sizeClass(size); got != class {
			t.Errorf("%d B are of class %d, want %d", size, got, class)
		}
	}
}

// f32s is n elements that are only looked at from outside.
func f32s(n int) tensor.Buffer { return tensor.Of(make([]float32, n)) }
