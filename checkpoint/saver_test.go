package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/symgrad/symgrad/tensor"
)

func TestSavedIsReadBack(t *testing.T) {
	for _, tt := range []struct {
		size       int
		sharded    bool
		replicated bool
		async      bool
		files      []string
	}{
		{1, false, true, false, []string{"model.safetensors"}},
		{1, true, false, true, []string{"rank-00000-of-00001.safetensors"}},
		{3, false, true, true, []string{"model.safetensors"}},
		{2, true, true, false, []string{"rank-00000-of-00002.safetensors", "rank-00001-of-00002.safetensors"}},
		{2, true, false, true, []string{"rank-00000-of-00002.safetensors", "rank-00001-of-00002.safetensors"}},
	} {
		t.Run(fmt.Sprintf("size=%d sharded=%v replicated=%v async=%v", tt.size, tt.sharded, tt.replicated, tt.async), func(t *testing.T) {
			defer goleak.VerifyNone(t)
			o := Options{Dir: t.TempDir(), Size: tt.size, Sharded: tt.sharded, Async: tt.async, Session: "a-1"}
			if err := saveAll(t, o, disk{}, 200, tt.replicated); err != nil {
				t.Fatal(err)
			}
			want := []string{"step-00000200/", "step-00000200/manifest.json"}
			for _, f := range tt.files {
				want = append(want, "step-00000200/"+f)
			}
			if got := names(t, o.Dir); !slices.Equal(got, want) {
				t.Errorf("%q, want %q", got, want)
			}
			c := open(t, o.Dir)
			defer closed(t, c)
			checkContent(t, c, 200)
			m, meta := c.Manifest(), metaOf(200)
			if m.WorldSize != tt.size || m.Stage != 1 || m.Solver != meta.Solver || m.Config != meta.Config || len(m.ConfigHash) != 64 || m.PlanHash != "p1" {
				t.Errorf("%+v", m)
			}
			if string(m.Sampler) != string(meta.Sampler) || string(m.Scaler) != string(meta.Scaler) || !reflect.DeepEqual(m.Extra, meta.Extra) {
				t.Errorf("sampler %s, scaler %s, extra %s", m.Sampler, m.Scaler, m.Extra)
			}
			if len(m.Random) != len(tt.files) || string(m.Random[0]) != string(meta.Random) {
				t.Errorf("random %s", m.Random)
			}
			if len(c.Rejected()) > 0 || len(c.Tensors()) != len(model()) {
				t.Errorf("%v, %v", c.Rejected(), c.Tensors())
			}
		})
	}
}

// A rank's file has its share of the replicated runs, and all files together have them once.
func TestReplicatedRunsAreShared(t *testing.T) {
	o := Options{Dir: t.TempDir(), Size: 3, Sharded: true}
	if err := saveAll(t, o, disk{}, 1, true); err != nil {
		t.Fatal(err)
	}
	c := open(t, o.Dir)
	defer closed(t, c)
	var total int64
	for _, f := range c.files {
		total += f.header.Bytes() - f.header.Start
	}
	var want int64
	for _, m := range model() {
		want += m.Bytes()
	}
	if total != want {
		t.Errorf("%d B in all files, want %d", total, want)
	}
	i := c.find["w"]
	if got := c.manifest.Tensors[i].Runs; !reflect.DeepEqual(got, []RunInfo{{0, "w[0:512]", 0, 512}, {1, "w[512:1024]", 512, 512}, {2, "w[1024:1073]", 1024, 49}}) {
		t.Errorf("%+v", got)
	}
}

func TestRunShareCoversOnce(t *testing.T) {
	for _, n := range []int{0, 1, 255, 256, 257, 1000, 4096, 1 << 20} {
		for size := 1; size < 9; size++ {
			end := 0
			for rank := range size {
				at, length := RunShare(n, rank, size)
				if length < 0 || length > 0 && (at != end || at%256 != 0) {
					t.Errorf("%d elements, rank %d of %d: %d from %d, the one before ended at %d", n, rank, size, length, at, end)
				}
				end += length
			}
			if end != n {
				t.Errorf("%d elements, %d ranks: %d covered", n, size, end)
			}
		}
	}
}

// A save in the background writes the content at the call of Save, and a second save waits for it.
func TestAsyncSaveCopies(t *testing.T) {
	gate := &gatedFS{open: make(chan struct{})}
	s, err := newSaver(Options{Dir: t.TempDir(), Async: true}, gate)
	if err != nil {
		t.Fatal(err)
	}
	gate.armed = true
	w := Tensor{Name: "w", Role: Param, DType: tensor.F32, Shape: []int{1000}}
	data := make([]float32, 1000)
	for i := range data {
		data[i] = float32(i)
	}
	runs := []Run{{Tensor: w, Len: 1000, Data: tensor.Of(data)}}
	if err := s.Save(Meta{Step: 1}, runs); err != nil {
		t.Fatal(err)
	}
	clear(data) // while it cannot have been written
	close(gate.open)
	if err := errors.Join(s.Save(Meta{Step: 2}, runs), s.Wait()); err != nil {
		t.Fatal(err)
	}
	for step, want := range map[int]float32{1: 999, 2: 0} {
		c, err := OpenAt(s.o.Dir+"/"+stepName(step), VerifyAll)
		if err != nil {
			t.Fatal(err)
		}
		got := make([]float32, 1)
		if err := c.Read("w", 999, tensor.Of(got)); err != nil || got[0] != want {
			t.Errorf("step %d: %v, %v, want %v", step, got, err, want)
		}
		closed(t, c)
	}
	closed(t, s)
}

// gatedFS is a disk that creates no file until the gate is open.
type gatedFS struct {
	disk
	armed bool
	open  chan struct{}
}

func (g *gatedFS) Mkdir(name string) error {
	if g.armed {
		<-g.open
	}
	return g.disk.Mkdir(name)
}

// The snapshot is allocated once: later saves of the same tensors allocate little.
func TestAsyncSaveReusesItsMemory(t *testing.T) {
	const n = 4 << 20
	data := make([]float32, n)
	w := Tensor{Name: "w", Role: Param, DType: tensor.F32, Shape: []int{n}}
	s, err := New(Options{Dir: t.TempDir(), Async: true, Keep: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer closed(t, s)
	save := func(step int) {
		if err := errors.Join(s.Save(Meta{Step: step}, []Run{{Tensor: w, Len: n, Data: tensor.Of(data)}}), s.Wait()); err != nil {
			t.Fatal(err)
		}
	}
	save(1)
	first := &s.snapshot[0]
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for step := range 5 {
		save(2 + step)
	}
	runtime.ReadMemStats(&after)
	if bytes := (after.TotalAlloc - before.TotalAlloc) / 5; bytes > 1<<20 || &s.snapshot[0] != first {
		t.Errorf("%d B allocated for each save of %d B", bytes, 4*n)
	}
}

func TestFetchIsAskedForTheShare(t *testing.T) {
	for _, async := range []bool{false, true} {
		dir := t.TempDir()
		w := model()[0]
		for rank, s := range slices.Backward(mustSavers(t, Options{Dir: dir, Size: 2, Sharded: true, Async: async})) {
			var asked [][2]int
			run := Run{Tensor: w, Len: w.Len(), Replicated: true, Fetch: func(offset int, dst tensor.Buffer) error {
				asked = append(asked, [2]int{offset, dst.Len()})
				copy(dst.Raw(), content(w, 7)[4*offset:])
				return nil
			}}
			if err := errors.Join(s.Save(Meta{Step: 7}, []Run{run}), s.Close()); err != nil {
				t.Fatal(err)
			}
			if at, n := RunShare(w.Len(), rank, 2); !slices.Equal(asked, [][2]int{{at, n}}) {
				t.Errorf("rank %d is asked for %v, want %d from %d", rank, asked, n, at)
			}
		}
		c := open(t, dir)
		got := make([]float32, w.Len())
		if err := c.Read("w", 0, tensor.Of(got)); err != nil || !slices.Equal(tensor.Of(got).Raw(), content(w, 7)) {
			t.Errorf("not the fetched elements: %v", err)
		}
		closed(t, c)
	}
	s, err := New(Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	run := Run{Tensor: model()[0], Len: 3, Fetch: func(int, tensor.Buffer) error { return errors.New("the device is lost") }}
	if err := s.Save(Meta{Step: 3}, []Run{run}); err == nil || err.Error() != "checkpoint of step 3, rank 0: tensor w: elements 0 to 3: the device is lost" {
		t.Error(err)
	}
}

func TestSaveRefusesWhatMakesNoSense(t *testing.T) {
	w := Tensor{Name: "w", Role: Param, DType: tensor.F32, Shape: []int{4}}
	four := tensor.Of(make([]float32, 4))
	edit := func(f func(r *Run)) []Run {
		r := Run{Tensor: w, Len: 4, Data: four}
		f(&r)
		return []Run{r}
	}
	for want, tt := range map[string]struct {
		meta Meta
		runs []Run
	}{
		"step -1, stage 0":                                     {Meta{Step: -1}, nil},
		"config: no UTF-8":                                     {Meta{Config: "\xff"}, nil},
		"sampler: no JSON":                                     {Meta{Sampler: json.RawMessage("{")}, nil},
		`extra "x": no JSON`:                                   {Meta{Extra: map[string]json.RawMessage{"x": nil}}, nil},
		`a tensor has the name ""`:                             {runs: edit(func(r *Run) { r.Tensor.Name = "" })},
		`a tensor has the name "__metadata__"`:                 {runs: edit(func(r *Run) { r.Tensor.Name = "__metadata__" })},
		"a name is no UTF-8":                                   {runs: edit(func(r *Run) { r.Tensor.Slot = "\xff" })},
		`tensor w: unknown role ""`:                            {runs: edit(func(r *Run) { r.Tensor.Role = "" })},
		"tensor w: invalid is no element type":                 {runs: edit(func(r *Run) { r.Tensor.DType = 0 })},
		"tensor w: shape [-4] has a negative dimension":        {runs: edit(func(r *Run) { r.Tensor.Shape = []int{-4} })},
		"more bytes than an int counts":                        {runs: edit(func(r *Run) { r.Tensor.Shape = []int{1 << 31, 1 << 31} })},
		"tensor w: a run of 4 elements from 1, it has 4":       {runs: edit(func(r *Run) { r.Offset = 1 })},
		"tensor w: a run of 3 f32, its data is f32[4] on host": {runs: edit(func(r *Run) { r.Len = 3 })},
		"tensor w: a run of 4 f64, its data is f32[4] on host": {runs: edit(func(r *Run) { r.Tensor.DType = tensor.F64 })},
		`two tensors are called "w"`:                           {runs: append(edit(func(*Run) {}), edit(func(*Run) {})...)},
		"tensor w: runs for 2 of its 4 elements":               {runs: edit(func(r *Run) { r.Len, r.Data = 2, tensor.Of(make([]float32, 2)) })},
		"tensor w: elements 0 to 3 of 4 are missing":           {runs: edit(func(r *Run) { r.Offset, r.Len, r.Data = 3, 1, tensor.Of(make([]float32, 1)) })},
	} {
		s, err := New(Options{Dir: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		err = s.Save(tt.meta, tt.runs)
		if save := new(*SaveError); !errors.Is(err, ErrInvalid) || !errors.As(err, save) || (*save).Rank != 0 || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
		if got := names(t, s.o.Dir); len(got) > 0 {
			t.Errorf("%s: %q is left", want, got)
		}
	}
}

// Rank 0 need not wait for the file of a rank that cannot read its elements, and returns that
// rank's error.
func TestRefusalOfARankIsTold(t *testing.T) {
	lost := errors.New("the device is lost")
	all := mustSavers(t, Options{Dir: t.TempDir(), Size: 2, Sharded: true})
	r := Run{Tensor: Tensor{Name: "w", Role: Param, DType: tensor.F32, Shape: []int{600}}, Len: 600, Replicated: true}
	r.Fetch = func(int, tensor.Buffer) error { return lost }
	if err := all[1].Save(Meta{Step: 5}, []Run{r}); !errors.Is(err, lost) {
		t.Errorf("rank 1: %v", err)
	}
	r.Fetch = func(int, tensor.Buffer) error { return nil }
	if err := all[0].Save(Meta{Step: 5}, []Run{r}); err == nil || !strings.Contains(err.Error(), "rank 1 has no file: tensor w") {
		t.Errorf("rank 0: %v", err)
	}
	if got := names(t, all[0].o.Dir); len(got) > 0 {
		t.Errorf("%q is left", got)
	}
}

func TestRanksThatDifferAreRefused(t *testing.T) {
	for want, edit := range map[string]func(m *Meta, r *Run){
		"rank 1 has other settings than rank 0":                                       func(m *Meta, _ *Run) { m.ConfigHash = "x" },
		"rank 1 has another plan than rank 0":                                         func(m *Meta, _ *Run) { m.PlanHash = "x" },
		"tensor w is w f32[600] (param) on rank 0 and w f32[600 1] (param) on rank 1": func(_ *Meta, r *Run) { r.Tensor.Shape = []int{600, 1} },
		"tensor w: elements from 0 on are stored twice, the second time in file 1":    func(_ *Meta, r *Run) { r.Offset = 0 },
		"tensor w: elements 300 to 400 of 600 are missing":                            func(_ *Meta, r *Run) { r.Offset, r.Len = 400, 200 },
	} {
		dir := t.TempDir()
		var err error
		for rank, s := range slices.Backward(mustSavers(t, Options{Dir: dir, Size: 2, Sharded: true})) {
			m := Meta{Step: 5}
			r := Run{Tensor: Tensor{Name: "w", Role: Param, DType: tensor.F32, Shape: []int{600}}, Offset: rank * 300, Len: 300}
			if rank == 1 {
				edit(&m, &r)
			}
			r.Data = tensor.Of(make([]float32, r.Len))
			err = s.Save(m, []Run{r})
			if rank == 1 && err != nil {
				t.Fatal(err)
			}
		}
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
		if got := names(t, dir); len(got) > 0 {
			t.Errorf("%s: %q is left", want, got)
		}
	}
}

// A rank without a file is named; files of an earlier start of the program do not count.
func TestMissingRanksAreNamed(t *testing.T) {
	defer goleak.VerifyNone(t)
	o := Options{Dir: t.TempDir(), Size: 4, Sharded: true, Session: "later", Timeout: 5 * time.Millisecond, Async: true}
	if err := os.Mkdir(filepath.Join(o.Dir, "step-00000007.tmp"), 0o777); err != nil { // left by an earlier start
		t.Fatal(err)
	}
	root, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	if got := names(t, o.Dir); len(got) > 0 {
		t.Errorf("%q is left", got)
	}
	earlier := o
	earlier.Rank, earlier.Session = 3, "earlier"
	s, err := New(earlier) // that is still dying
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Save(metaOf(9), runsOf(model(), 9, 3, 4, false)), s.Close()); err != nil {
		t.Fatal(err)
	}
	o.Rank = 2
	if s, err = New(o); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Save(metaOf(9), runsOf(model(), 9, 2, 4, false)), s.Close()); err != nil {
		t.Fatal(err)
	}
	if err := root.Save(metaOf(9), runsOf(model(), 9, 0, 4, false)); err != nil {
		t.Fatal(err)
	}
	err = root.Wait()
	var save *SaveError
	if !errors.Is(err, ErrTimeout) || !errors.As(err, &save) || save.Step != 9 || !strings.Contains(err.Error(), "no file of rank 1 and 3 after 5ms") {
		t.Error(err)
	}
	if err := errors.Join(root.Wait(), root.Close(), root.Close()); err != nil {
		t.Errorf("told twice: %v", err)
	}
	if err := root.Save(metaOf(10), nil); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	for _, name := range names(t, o.Dir) {
		if !strings.HasPrefix(name, "step-00000009.s-earlier.tmp/") { // which the next save or start removes
			t.Errorf("%s is left", name)
		}
	}
}

func TestOptionsAreChecked(t *testing.T) {
	for want, o := range map[string]Options{
		"no folder is set":               {},
		"keep -1 checkpoints":            {Dir: "x", Keep: -1},
		"rank 2 of 2":                    {Dir: "x", Rank: 2, Size: 2},
		"rank 1 of 0":                    {Dir: "x", Rank: 1},
		"100000 ranks":                   {Dir: "x", Size: 100000},
		"timeout -1s":                    {Dir: "x", Timeout: -time.Second},
		`session "a/b": want at most 64`: {Dir: "x", Session: "a/b"},
		"the folder of one checkpoint":   {Dir: "x/step-00000001"},
	} {
		if _, err := New(o); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
