package faults

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/symgrad/symgrad/internal/hosttest"
	"github.com/symgrad/symgrad/internal/ucx"
)

// recordVar names a file to which this process adds its runs: a line of versions, then one for each
// case.
const recordVar = "SYMGRAD_TEST_FAULTS"

// session is the first line of the file.
type session struct {
	Kernel    string            `json:"kernel"`
	Processor int               `json:"processors"`
	Libraries map[string]string `json:"libraries"`
}

// row counts the runs of one case.
type row struct {
	Case    string  `json:"case"`
	Runs    int     `json:"runs"`
	Passed  int     `json:"passed"`
	Slowest float64 `json:"slowest_s,omitempty"` // until the error of the last survivor, or all ranks work again
}

// records has the runs of this process.
var records = recorder{rows: map[string]*row{}}

type recorder struct {
	mu   sync.Mutex
	rows map[string]*row
}

// add adds runs of a case.
func (r *recorder) add(name string, passed bool, slowest time.Duration) {
	n := row{Case: name, Runs: 1, Slowest: float64(slowest.Milliseconds()) / 1000}
	if passed {
		n.Passed = 1
	}
	r.merge(n)
}

func (r *recorder) merge(n row) {
	r.mu.Lock()
	defer r.mu.Unlock()
	sum := r.rows[n.Case]
	if sum == nil {
		sum = &row{Case: n.Case}
		r.rows[n.Case] = sum
	}
	sum.Runs, sum.Passed, sum.Slowest = sum.Runs+n.Runs, sum.Passed+n.Passed, max(sum.Slowest, n.Slowest)
}

// write adds the runs to the file, if one is named.
func (r *recorder) write() error {
	name := os.Getenv(recordVar)
	if name == "" || len(r.rows) == 0 {
		return nil
	}
	old, err := os.ReadFile(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for i, line := range bytes.Split(bytes.TrimSpace(old), []byte("\n")) {
		var n row
		if i == 0 {
			continue // the versions
		}
		if err := json.Unmarshal(line, &n); err != nil {
			return err
		}
		r.merge(n)
	}
	var out bytes.Buffer
	lines := json.NewEncoder(&out)
	err = lines.Encode(versions())
	for _, name := range slices.Sorted(maps.Keys(r.rows)) {
		err = errors.Join(err, lines.Encode(r.rows[name]))
	}
	return errors.Join(err, os.WriteFile(name, out.Bytes(), 0o666))
}

// versions describes this machine and its libraries.
func versions() session {
	s := session{Processor: runtime.NumCPU(), Libraries: map[string]string{"go": runtime.Version()}}
	if text, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		s.Kernel = strings.TrimSpace(string(text))
	}
	if found, err := ucx.Find(); err == nil {
		s.Libraries["ucx"] = found.Version
	}
	for _, by := range []hosttest.MPI{hosttest.OpenMPI, hosttest.MPICH} {
		out, err := exec.Command(string(by), "--version").Output()
		for _, word := range strings.Fields(string(out)) {
			if err == nil && strings.Count(word, ".") >= 2 && word[0] >= '0' && word[0] <= '9' {
				s.Libraries[string(by)] = word
				break
			}
		}
	}
	return s
}
