package checkpoint

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/symgrad/symgrad/tensor"
)

// model has tensors of several types, roles and sizes; none divides by 256.
func model() []Tensor {
	return []Tensor{
		{Name: "w", Role: Param, DType: tensor.F32, Shape: []int{37, 29}},
		{Name: "b", Role: Param, DType: tensor.F32, Shape: []int{29}},
		{Name: "half", Role: Param, DType: tensor.BF16, Shape: []int{1001}},
		{Name: "scale", Role: Buffer, DType: tensor.F64, Shape: []int{}},
		{Name: "seen", Role: Buffer, DType: tensor.I64, Shape: []int{3}},
		{Name: "nothing", Role: Buffer, DType: tensor.U8, Shape: []int{4, 0}},
		{Name: StateName("w", "exp_avg"), Role: State, Param: "w", Slot: "exp_avg", DType: tensor.F32, Shape: []int{37, 29}},
		{Name: StateName("w", "exp_avg_sq"), Role: State, Param: "w", Slot: "exp_avg_sq", DType: tensor.F32, Shape: []int{37, 29}},
		{Name: StateName("w", "ema"), Role: EMA, Param: "w", DType: tensor.F32, Shape: []int{37, 29}},
		{Name: "residual/0/w", Role: Residual, Param: "w", DType: tensor.F32, Shape: []int{37, 29}},
	}
}

// content returns all elements of t after a step: bytes that only this tensor has at this step.
func content(t Tensor, step int) []byte {
	h := fnv.New64a()
	fmt.Fprint(h, t.Name, step)
	rng := rand.New(rand.NewPCG(h.Sum64(), 1))
	words := make([]uint64, (t.Bytes()+7)/8)
	for i := range words {
		words[i] = rng.Uint64()
	}
	return tensor.Of(words).Raw()[:t.Bytes():t.Bytes()]
}

// bufferOf returns elements of dt over p.
func bufferOf(tb testing.TB, p []byte, dt tensor.DType) tensor.Buffer {
	tb.Helper()
	b, err := bufferOver(p, len(p)/dt.Size(), dt)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// elements returns n elements of t from offset on.
func elements(t Tensor, step, offset, n int) tensor.Buffer {
	size := t.DType.Size()
	b, _ := bufferOver(content(t, step)[offset*size:(offset+n)*size], n, t.DType) // Save refuses it if it is none
	return b
}

// runsOf returns a rank's runs of every tensor: all of it, marked as replicated, or its own piece.
func runsOf(tensors []Tensor, step, rank, size int, replicated bool) []Run {
	var runs []Run
	for _, t := range tensors {
		at, n := 0, t.Len()
		if !replicated {
			at, n = RunShare(t.Len(), rank, size)
		}
		runs = append(runs, Run{Tensor: t, Offset: at, Len: n, Data: elements(t, step, at, n), Replicated: replicated})
	}
	return runs
}

// metaOf returns a Meta with every field set.
func metaOf(step int) Meta {
	return Meta{
		Step: step, Stage: 1, Config: "run:\n  name: <a&b>\n", PlanHash: "p1", Solver: Solver{Name: "adamw", Steps: step, Skipped: 1},
		Sampler: json.RawMessage(fmt.Sprintf(`{"epoch":1,"next":%d}`, step*64)), Random: json.RawMessage(`[1,18446744073709551615]`),
		Scaler: json.RawMessage(`{"scale":65536}`), Extra: map[string]json.RawMessage{"accuracy": json.RawMessage("0.5")},
	}
}

// newSavers returns the savers of all ranks, rank 0's made first.
func newSavers(o Options, sys fileSystem) ([]*Saver, error) {
	var all []*Saver
	for o.Rank = range max(o.Size, 1) {
		s, err := newSaver(o, sys)
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

// mustSavers is newSavers on the disk.
func mustSavers(tb testing.TB, o Options) []*Saver {
	tb.Helper()
	all, err := newSavers(o, disk{})
	if err != nil {
		tb.Fatal(err)
	}
	return all
}

// saveAll saves a step with size ranks, rank 0 last, so that no rank waits.
func saveAll(tb testing.TB, o Options, sys fileSystem, step int, replicated bool) error {
	tb.Helper()
	all, err := newSavers(o, sys)
	if err != nil {
		return err
	}
	err = saveWith(tb, all, step, replicated)
	for _, s := range all {
		err = errors.Join(err, s.Close())
	}
	return err
}

// saveWith saves a step with all savers, rank 0 last.
func saveWith(tb testing.TB, all []*Saver, step int, replicated bool) error {
	tb.Helper()
	var errs []error
	for rank, s := range slices.Backward(all) {
		errs = append(errs, s.Save(metaOf(step), runsOf(model(), step, rank, len(all), replicated)), s.Wait())
	}
	return errors.Join(errs...)
}

// quick is a disk without flushes, for tests without power failures.
type quick struct{ disk }

func (quick) SyncDir(string) error { return nil }

func (q quick) Create(name string) (file, error) {
	f, err := q.disk.Create(name)
	return quickFile{f}, err
}

type quickFile struct{ file }

func (quickFile) Sync() error { return nil }

// mustSave is saveAll on a quick disk.
func mustSave(tb testing.TB, o Options, step int) {
	tb.Helper()
	if err := saveAll(tb, o, quick{}, step, false); err != nil {
		tb.Fatal(err)
	}
}

// checkContent compares every tensor with its content after a step.
func checkContent(tb testing.TB, c *Checkpoint, step int) {
	tb.Helper()
	if got := c.Manifest().Step; got != step {
		tb.Errorf("%s: the manifest says step %d, want %d", c.Path(), got, step)
	}
	for _, t := range model() {
		if got, ok := c.Lookup(t.Name); !ok || !got.same(t) {
			tb.Errorf("%s: tensor %v is %v", c.Path(), t, got)
			continue
		}
		p := content(t, -1) // something else
		if err := c.Read(t.Name, 0, bufferOf(tb, p, t.DType)); err != nil {
			tb.Error(err)
		}
		if !bytes.Equal(p, content(t, step)) {
			tb.Errorf("%s: tensor %v is not that of step %d", c.Path(), t, step)
		}
	}
}

// checkNewest opens the newest checkpoint of dir and checks that it is that of step.
func checkNewest(tb testing.TB, dir string, step int) {
	tb.Helper()
	c := open(tb, dir)
	checkContent(tb, c, step)
	closed(tb, c)
}

func open(tb testing.TB, dir string) *Checkpoint {
	tb.Helper()
	c, err := Open(dir)
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

func closed(tb testing.TB, c interface{ Close() error }) {
	tb.Helper()
	if err := c.Close(); err != nil {
		tb.Error(err)
	}
}

// names returns the files in dir and below, with slashes, without the lock.
func names(tb testing.TB, dir string) []string {
	tb.Helper()
	var list []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && path != dir && path != filepath.Join(dir, lockName) {
			name, _ := filepath.Rel(dir, path)
			if d.IsDir() {
				name += "/"
			}
			list = append(list, filepath.ToSlash(name))
		}
		return err
	})
	if err != nil {
		tb.Fatal(err)
	}
	return list
}

// change replaces the content of a file with the result of edit.
func change(tb testing.TB, path string, edit func(p []byte) []byte) {
	tb.Helper()
	p, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, edit(p), 0o666)
	}
	if err != nil {
		tb.Fatal(err)
	}
}
