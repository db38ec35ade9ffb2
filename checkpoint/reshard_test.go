package checkpoint

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/symgrad/symgrad/tensor"
)

// Any number of ranks reads, in any pieces, a checkpoint that any number of ranks wrote.
func TestAnyRanksReadWhatOthersWrote(t *testing.T) {
	for _, writers := range []int{1, 2, 3, 4, 7} {
		for _, mode := range []struct{ sharded, replicated bool }{{false, true}, {true, true}, {true, false}} {
			o := Options{Dir: t.TempDir(), Size: writers, Sharded: mode.sharded}
			if err := saveAll(t, o, quick{}, 40, mode.replicated); err != nil {
				t.Fatal(err)
			}
			for _, readers := range []int{1, 2, 3, 4, 5} {
				c := open(t, o.Dir)
				for rank := range readers {
					for _, r := range runsOf(model(), 40, rank, readers, false) {
						got := bufferOf(t, make([]byte, r.Data.Bytes()), r.Tensor.DType)
						if err := c.Read(r.Tensor.Name, r.Offset, got); err != nil || !bytes.Equal(got.Raw(), r.Data.Raw()) {
							t.Errorf("%d writers, %+v, rank %d of %d, %s from %d: %v", writers, mode, rank, readers, r.Tensor.Name, r.Offset, err)
						}
					}
				}
				closed(t, c)
			}
		}
	}
}

// Cuts of a tensor may differ from those of RunShare, and from the order of ranks.
func TestAnyCutsAreReadBack(t *testing.T) {
	w := Tensor{Name: "w", Role: Param, DType: tensor.F32, Shape: []int{97}}
	root := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp(root, "")
		if err != nil {
			t.Fatal(err)
		}
		size := rapid.IntRange(1, 4).Draw(t, "size")
		runs := make([][]Run, size)
		for at := 0; at < 97; {
			n := rapid.IntRange(1, 97-at).Draw(t, "n")
			rank := rapid.IntRange(0, size-1).Draw(t, "rank")
			data, err := bufferOver(content(w, 1)[4*at:4*(at+n)], n, tensor.F32)
			if err != nil {
				t.Fatal(err)
			}
			runs[rank] = append(runs[rank], Run{Tensor: w, Offset: at, Len: n, Data: data})
			at += n
		}
		all, err := newSavers(Options{Dir: dir, Size: size, Sharded: true}, quick{})
		for rank := size - 1; rank >= 0 && err == nil; rank-- {
			err = all[rank].Save(Meta{Step: 1}, runs[rank])
		}
		if err != nil {
			t.Fatal(err)
		}
		c, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		from := rapid.IntRange(0, 97).Draw(t, "from")
		got := make([]float32, rapid.IntRange(0, 97-from).Draw(t, "length"))
		if err := c.Read("w", from, tensor.Of(got)); err != nil || !bytes.Equal(tensor.Of(got).Raw(), content(w, 1)[4*from:4*(from+len(got))]) {
			t.Fatalf("%d from %d: %v", len(got), from, err)
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestCheckpointReadRefuses(t *testing.T) {
	o := Options{Dir: t.TempDir(), Size: 2, Sharded: true}
	mustSave(t, o, 3)
	c := open(t, o.Dir)
	defer closed(t, c)
	one := tensor.Of(make([]float32, 1))
	for want, err := range map[string]error{
		`there is no tensor "x"`:                               c.Read("x", 0, one),
		`there is no tensor "W": did you mean "w"?`:            c.Read("W", 0, one),
		"tensor w: invalid argument: it is f32, not f64":       c.Read("w", 0, tensor.Of(make([]float64, 1))),
		"it has 1073 elements, not 1 from 1073 on":             c.Read("w", 1073, one),
		"it has 1073 elements, not 1 from -1 on":               c.Read("w", -1, one),
		fmt.Sprintf("not 1 from %d on", math.MaxInt):           c.Read("w", math.MaxInt, one),
		"it has 1073 elements, not 1074 from 0 on":             c.Read("w", 0, tensor.Of(make([]float32, 1074))),
		"it is f32, not invalid: read it as it is and convert": c.Read("w", 0, tensor.Buffer{}),
	} {
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if err := c.Read("w", 1073, tensor.Of([]float32{})); err != nil {
		t.Errorf("no elements at the end: %v", err)
	}
	if _, ok := c.Lookup("x"); ok {
		t.Error("there is a tensor x")
	}
}

// Several goroutines may read at once, and changes to the returned values do not affect the
// checkpoint.
func TestCheckpointIsReadByMany(t *testing.T) {
	o := Options{Dir: t.TempDir(), Size: 3, Sharded: true}
	mustSave(t, o, 3)
	c := open(t, o.Dir)
	defer closed(t, c)
	for _, d := range c.Tensors() {
		for i := range d.Shape {
			d.Shape[i] = -1
		}
	}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() { checkContent(t, c, 3) })
	}
	all.Wait()
}
