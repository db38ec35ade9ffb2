package hosttest

import (
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
	"sync"
	"testing"
	"time"
)

// RecordVar names a file in which Record counts runs.
const RecordVar = "SYMGRAD_TEST_RECORD"

// Runs are the runs of one case of a test.
type Runs struct {
	Case    string  `json:"case"`
	Runs    int     `json:"runs"`
	Passed  int     `json:"passed"`
	Slowest float64 `json:"slowest_s,omitempty"` // longest time of a run, as the case defines it
}

// recording is held while the file changes. Only one process may use it.
var recording sync.Mutex

// Record adds a run of a case to the file that RecordVar names, if it is set. The run has passed
// unless t has failed. versions, if not nil, describes machine and libraries: the first line of a
// new file.
func Record(t testing.TB, name string, took time.Duration, versions func() any) {
	t.Helper()
	file := os.Getenv(RecordVar)
	if file == "" {
		return
	}
	recording.Lock()
	defer recording.Unlock()
	run := Runs{Case: name, Runs: 1, Slowest: float64(took.Milliseconds()) / 1000}
	if !t.Failed() {
		run.Passed = 1
	}
	if err := addRun(file, run, versions); err != nil {
		t.Error(err)
	}
}

// addRun adds a run to a file.
func addRun(file string, run Runs, versions func() any) error {
	head, all, err := readRuns(file)
	if errors.Is(err, fs.ErrNotExist) && versions != nil {
		head, err = json.Marshal(versions())
	}
	if err != nil {
		return err
	}
	i, known := slices.BinarySearchFunc(all, run, func(a, b Runs) int { return cmp.Compare(a.Case, b.Case) })
	if known {
		a := &all[i]
		a.Runs, a.Passed, a.Slowest = a.Runs+run.Runs, a.Passed+run.Passed, max(a.Slowest, run.Slowest)
	} else {
		all = slices.Insert(all, i, run)
	}
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	lines := json.NewEncoder(out)
	err = lines.Encode(head)
	for _, r := range all {
		err = errors.Join(err, lines.Encode(r))
	}
	return errors.Join(err, out.Close())
}

// readRuns reads a file: its first line, and the runs in the order of their cases.
func readRuns(file string) (head json.RawMessage, all []Runs, err error) {
	in, err := os.Open(file)
	if err != nil {
		return nil, nil, err
	}
	defer in.Close()
	lines := json.NewDecoder(in)
	if err := lines.Decode(&head); err != nil {
		return nil, nil, err
	}
	for {
		var r Runs
		if err := lines.Decode(&r); errors.Is(err, io.EOF) {
			return head, all, nil
		} else if err != nil {
			return nil, nil, err
		}
		all = append(all, r)
	}
}
