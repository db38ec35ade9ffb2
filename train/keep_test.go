package train

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/symgrad/symgrad/checkpoint"
	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/train/internal/measure"
)

// While another run saves to the folder, all ranks say so before they train, and nothing there
// changes.
func TestFolderOfAnotherRunIsRefused(t *testing.T) {
	ck := t.TempDir()
	run(t, program, "checkpoint.dir="+ck, ranks(2), steps(4)).summary(t)
	other, err := checkpoint.New(checkpoint.Options{Dir: ck})
	if err != nil {
		t.Fatal(err)
	}
	how := []string{"checkpoint.dir=" + ck, "checkpoint.every=1", "checkpoint.keep=1", steps(8)}
	var mu sync.Mutex
	var refused []error
	err = built(t, 3, func(tr *trainer, err error) error {
		mu.Lock()
		defer mu.Unlock()
		refused = append(refused, err)
		if tr == nil || tr.keeper != nil || tr.d != nil {
			t.Errorf("a rank goes on after %v", err)
		}
		return nil
	}, how...)
	if err != nil || len(refused) != 3 {
		t.Errorf("%v, %d ranks say %v", err, len(refused), refused)
	}
	for _, err := range refused {
		locked := &checkpoint.LockedError{}
		if !errors.As(err, &locked) || !errors.Is(err, checkpoint.ErrLocked) || locked.Dir != ck || locked.PID != os.Getpid() {
			t.Errorf("%v", err)
		}
	}
	r := run(t, program, append(how, ranks(2))...)
	if r.code != 1 || !strings.Contains(r.err, "checkpoint.dir: checkpoint: folder "+ck+": locked: ") || strings.Contains(r.out, "step ") {
		t.Errorf("code %d, %s%s", r.code, r.out, r.err)
	}
	if list, err := checkpoint.List(ck); err != nil || len(list) != 1 || filepath.Base(list[0]) != "step-00000004" {
		t.Errorf("%q, %v", list, err)
	}
	if s := run(t, program, "run.resume="+ck, steps(6)).summary(t); s.ResumedStep != 4 { // to read it needs no lock
		t.Errorf("a run that saves elsewhere goes on from step %d", s.ResumedStep)
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	if s := run(t, program, append(how, ranks(2))...).summary(t); s.ResumedStep != 4 || len(s.Checkpoints) != 4 {
		t.Errorf("from step %d, checkpoints %v", s.ResumedStep, s.Checkpoints)
	}
}

// A run that is refused after it has opened the folder leaves it to the next.
func TestRefusedRunGivesTheFolderBack(t *testing.T) {
	ck := "checkpoint.dir=" + t.TempDir()
	r := run(t, program, ck, ranks(2), "log.trace=true", "log.trace_steps=90,95")
	if r.code != ExitUsage || !strings.Contains(r.err, "log.trace_steps") {
		t.Fatalf("code %d, %s", r.code, r.err)
	}
	run(t, program, ck, ranks(2)).summary(t)
}

// An older checkpoint that cannot be removed causes a warning, and does not end the training.
func TestOldCheckpointThatStaysDoesNotEndTheRun(t *testing.T) {
	for _, async := range []string{"true", "false"} {
		ck := t.TempDir()
		run(t, program, "checkpoint.dir="+ck, ranks(2), steps(2)).summary(t)
		notes := filepath.Join(ck, "step-00000002", "notes")
		if err := os.MkdirAll(filepath.Join(notes, "mine"), 0o777); err != nil {
			t.Fatal(err)
		}
		r := run(t, program, "checkpoint.dir="+ck, "checkpoint.every=1", "checkpoint.keep=1", "checkpoint.async="+async, ranks(2), steps(6))
		if s := r.summary(t); len(s.Checkpoints) != 4 {
			t.Errorf("async %s: checkpoints %v", async, s.Checkpoints)
		}
		if !strings.Contains(r.out, "warning    checkpoint of step 6 is saved") || !strings.Contains(r.out, filepath.Join(ck, "step-00000002.removed.tmp", "notes")) {
			t.Errorf("async %s: %s", async, r.out)
		}
	}
}

// After a failed save in the background, a run still frees its resources.
func TestRunThatCannotSaveClosesTheRest(t *testing.T) {
	ck := filepath.Join(t.TempDir(), "ck")
	err := built(t, 1, func(tr *trainer, err error) error {
		if err != nil {
			return err
		}
		if err := os.RemoveAll(ck); err != nil {
			return err
		}
		tr.meter = measure.New(tr.values, false, "")
		if err := tr.save(0); err != nil {
			return err
		}
		failed := (*checkpoint.SaveError)(nil)
		if err := tr.close(nil); !errors.As(err, &failed) {
			t.Errorf("got %v", err)
		}
		if _, err := tr.d.NewSolver(tr.rule); !errors.Is(err, dist.ErrClosed) {
			t.Errorf("the exchange of gradients is not closed: %v", err)
		}
		return nil
	}, "checkpoint.dir="+ck)
	if err != nil {
		t.Error(err)
	}
}

// The folder of one checkpoint is no folder for checkpoints: the next run would not find those of
// this one.
func TestFolderOfOneCheckpointIsRefused(t *testing.T) {
	ck := t.TempDir()
	run(t, program, "checkpoint.dir="+ck, ranks(2), steps(2)).summary(t)
	for _, name := range []string{"step-00000002", "step-00000003"} {
		r := run(t, program, "checkpoint.dir="+filepath.Join(ck, name), ranks(2), steps(4))
		if r.code != ExitUsage || !strings.Contains(r.err, "checkpoint.dir: ") || !strings.Contains(r.err, "run.resume") {
			t.Errorf("%s: code %d, %s", name, r.code, r.err)
		}
	}
	list, err := os.ReadDir(filepath.Join(ck, "step-00000002"))
	if _, made := os.Stat(filepath.Join(ck, "step-00000003")); err != nil || len(list) != 3 || made == nil {
		t.Errorf("%v, %v, %v", list, err, made)
	}
}
