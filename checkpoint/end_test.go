package checkpoint

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/symgrad/symgrad/tensor"
)

var (
	errPeerDied = errors.New("rank 1 died: connection closed")
	errSignal   = errors.New("stopped by signal")
)

// endless returns options for two ranks without a time limit. Rank 1 never saves.
func endless(t *testing.T, async bool) (Options, context.CancelCauseFunc) {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	return Options{Dir: t.TempDir(), Size: 2, Sharded: true, Timeout: 1000 * time.Hour, Async: async, Context: ctx}, cancel
}

// Every wait of rank 0 for another rank's file ends with the context and returns its cause: a save,
// the next one, Wait, and Close.
func TestWaitsForARankEndWithTheContext(t *testing.T) {
	for name, c := range map[string]struct {
		async bool
		wait  func(s *Saver) error // after the first save, if that is in the background
	}{
		"save":              {false, nil},
		"wait":              {true, (*Saver).Wait},
		"close":             {true, (*Saver).Close},
		"the save after it": {true, func(s *Saver) error { return s.Save(metaOf(2), runsOf(model(), 2, 0, 2, false)) }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o, end := endless(t, c.async)
				s, err := New(o)
				if err != nil {
					t.Fatal(err)
				}
				got := make(chan error, 1)
				go func() {
					err := s.Save(metaOf(1), runsOf(model(), 1, 0, 2, false))
					if c.wait != nil {
						err = errors.Join(err, c.wait(s))
					}
					got <- err
				}()
				<-time.After(time.Minute) // of the bubble: the save now looks for the file of rank 1
				began := time.Now()
				end(errPeerDied)
				err = <-got
				if took := time.Since(began); took > 0 {
					t.Errorf("it took %v", took)
				}
				save := (*SaveError)(nil)
				if !errors.As(err, &save) || !errors.Is(err, errPeerDied) || !strings.Contains(err.Error(), "no file of rank 1") {
					t.Errorf("got %v, want why the context ended", err)
				}
				_ = s.Close() // with the error of the next save
				for _, name := range names(t, o.Dir) {
					if name != lockName {
						t.Errorf("%s is left", name)
					}
				}
			})
		})
	}
}

// endingFS is a disk on which the context ends while a file is written.
type endingFS struct {
	quick
	end    func()
	writes atomic.Int32
}

type endingFile struct {
	file
	fs *endingFS
}

func (e *endingFS) Create(name string) (file, error) {
	f, err := e.quick.Create(name)
	return endingFile{f, e}, err
}

func (f endingFile) Write(p []byte) (int, error) {
	f.fs.writes.Add(1)
	f.fs.end()
	return f.file.Write(p)
}

func TestAWriterEndsWithTheContext(t *testing.T) {
	for rank := range 2 {
		o, end := endless(t, false)
		o.Rank = rank
		sys := &endingFS{end: func() { end(errPeerDied) }}
		s, err := newSaver(o, quick{})
		if err != nil {
			t.Fatal(err)
		}
		s.sys = sys
		large := tensor.Of(make([]float32, 4<<20)) // 16 pieces
		w := Tensor{Name: "w", Role: Param, DType: tensor.F32, Shape: []int{2 * large.Len()}}
		err = s.Save(Meta{Step: 1}, []Run{{Tensor: w, Offset: rank * large.Len(), Len: large.Len(), Data: large}})
		if n := sys.writes.Load(); !errors.Is(err, errPeerDied) || n != 1 {
			t.Errorf("rank %d: %d writes, then %v, want one and why the context ended", rank, n, err)
		}
		closed(t, s)
	}
}

// A disk that blocks all writes delays neither Wait nor Close for long.
func TestWaitsForAWriteThatIsStuckEndWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, end := endless(t, true)
		gate := &gatedFS{open: make(chan struct{})}
		s, err := newSaver(o, gate)
		if err != nil {
			t.Fatal(err)
		}
		gate.armed = true
		if err := s.Save(metaOf(1), runsOf(model(), 1, 0, 2, false)); err != nil {
			t.Fatal(err)
		}
		end(errPeerDied)
		for _, wait := range []func() error{s.Wait, s.Close} {
			began := time.Now()
			if err := wait(); !errors.Is(err, errPeerDied) || time.Since(began) > endPatience {
				t.Errorf("after %v: %v, want why the context ended", time.Since(began), err)
			}
		}
		close(gate.open)
		<-s.running
	})
}

// A rank may find its folder, or a file in it, removed by rank 0, which learned first that a third
// rank died. The error then says that the third rank died.
func TestARankWhoseFilesAreGoneSaysWhy(t *testing.T) {
	for name, remove := range map[string]func(staging string) error{
		"the folder": os.RemoveAll,
		"its files, and the folder later": func(staging string) error {
			files, err := filepath.Glob(filepath.Join(staging, ".*"))
			for _, f := range files {
				err = errors.Join(err, os.Remove(f))
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o, end := endless(t, false)
				o.Rank = 1
				sys := &endingFS{}
				sys.end = func() {
					if err := remove(filepath.Join(o.Dir, stagingName(1, o.Session, 0))); err != nil {
						t.Error(err)
					}
					time.AfterFunc(endPatience/2, func() { end(errPeerDied) })
				}
				s, err := newSaver(o, quick{})
				if err != nil {
					t.Fatal(err)
				}
				s.sys = sys
				if err := s.Save(metaOf(1), runsOf(model(), 1, 1, 2, false)); !errors.Is(err, errPeerDied) {
					t.Errorf("got %v, want why the context ended", err)
				}
				closed(t, s)
			})
		})
	}
}

// growingFS is a disk on which the files of other ranks grow up to a size.
type growingFS struct {
	disk
	size, most int64
}

func (g *growingFS) Size(string) (int64, error) {
	g.size = min(g.size+1, g.most)
	return g.size, nil
}

// After Options.Stop rank 0 waits for ranks that write. It names a rank that does not.
func TestAfterAStopOnlyRanksThatWriteAreWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stop, signal := context.WithCancelCause(t.Context())
		o, end := endless(t, false)
		defer end(nil)
		o.Stop = stop
		g := &growingFS{most: 1000}
		s, err := newSaver(o, g)
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		time.AfterFunc(time.Minute, func() { signal(errSignal) })
		err = s.Save(metaOf(1), runsOf(model(), 1, 0, 2, false))
		took := time.Since(began) - time.Minute
		if !errors.Is(err, errSignal) || !errors.Is(err, ErrTimeout) || !strings.Contains(err.Error(), "rank 1 has written nothing for 2s") {
			t.Errorf("got %v, want rank 1", err)
		}
		if g.size < g.most || took < stopPatience || took > time.Hour {
			t.Errorf("given up %v after the signal, when the files had %d of %d B", took, g.size, g.most)
		}
		closed(t, s)
	})
}

// Options.Stop does not end a save whose ranks all write.
func TestASaveGoesOnAfterAStop(t *testing.T) {
	stop, signal := context.WithCancelCause(t.Context())
	signal(errSignal)
	o, end := endless(t, false)
	defer end(nil)
	o.Stop = stop
	all := mustSavers(t, o)
	if err := saveWith(t, all, 3, false); err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		closed(t, s)
	}
	checkNewest(t, o.Dir, 3)
}
