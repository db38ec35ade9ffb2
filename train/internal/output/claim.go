package output

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/symgrad/symgrad/config"
	"github.com/symgrad/symgrad/internal/tool/cli"
	"github.com/symgrad/symgrad/train/internal/exchange"
)

// claimName is the file in run.output_dir that a running program locks.
const claimName = ".lock"

// Claim is the exclusive right of a run to write to its output folder.
type Claim struct {
	Kept    []string // new names of an earlier run's results
	Warning string   // why other runs in the folder are not detected; "" if they are
	file    *os.File // nil if another process has the lock, or locks are not supported
}

// New locks the output folder of a run. It renames the results of an earlier run there with a
// number: repeating a command may be intended, and must lose no results.
//
// Owns: the caller closes the claim. Errors: ErrUsage if another run writes there; those of the
// file system.
func New(c *config.Config) (*Claim, error) {
	dir := c.OutputDir()
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, fmt.Errorf("run.output_dir: %w", err)
	}
	cl := &Claim{}
	f, err := os.OpenFile(filepath.Join(dir, claimName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("run.output_dir: %w", err)
	}
	cl.file = f
	switch err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); {
	case errors.Is(err, syscall.EWOULDBLOCK):
		pid := make([]byte, 32)
		n, _ := f.ReadAt(pid, 0) // an empty file names no process
		return nil, errors.Join(cli.Usage("run.output_dir=%s: another run%s writes there: wait until it has ended, or choose another folder",
			dir, strings.TrimRight(" "+string(pid[:n]), " \n")), f.Close())
	case err != nil: // a file system without locks
		cl.Warning = fmt.Sprintf("another run in %s would not be detected: locking the folder failed: %v", dir, err)
	default:
		if err := errors.Join(f.Truncate(0), writeAt(f, fmt.Sprintf("(process %d)\n", os.Getpid()))); err != nil {
			return nil, errors.Join(fmt.Errorf("run.output_dir: %w", err), f.Close())
		}
	}
	if cl.Kept, err = keepEarlier(c); err != nil {
		return nil, errors.Join(fmt.Errorf("run.output_dir: earlier results: %w", err), f.Close())
	}
	return cl, nil
}

func writeAt(f *os.File, text string) error {
	_, err := f.WriteAt([]byte(text), 0)
	return err
}

// Close unlocks the folder. Idempotent.
func (c *Claim) Close() error {
	if c == nil || c.file == nil {
		return nil
	}
	f := c.file
	c.file = nil
	return f.Close()
}

// keepEarlier renames the results of an earlier run in the output folder if that run ended, which
// left a summary, or had other settings. An unfinished run with the same settings is the one that
// resumes now.
//
// Returns: the new names.
func keepEarlier(c *config.Config) ([]string, error) {
	dir := c.OutputDir()
	if !isResult(filepath.Join(dir, config.SummaryName)) && !otherSettings(c) {
		return nil, nil
	}
	names := []string{config.SummaryName, config.FileName, config.MetricsName, config.TableName, config.EventsFolder}
	if c.Log.Trace != "" {
		names = append(names, c.Log.Trace)
	}
	if logs, err := filepath.Rel(dir, c.LogDir()); err == nil && filepath.IsLocal(logs) {
		names = append(names, logs)
	}
	n := 1
	for ; anyExists(dir, names, n); n++ {
		continue
	}
	var kept []string
	for _, name := range names {
		if !isResult(filepath.Join(dir, name)) {
			continue
		}
		to := numbered(name, n)
		if err := os.Rename(filepath.Join(dir, name), filepath.Join(dir, to)); err != nil {
			return kept, err
		}
		kept = append(kept, to)
	}
	return kept, nil
}

// otherSettings reports whether the folder has settings that differ from c.
func otherSettings(c *config.Config) bool {
	text, err := os.ReadFile(filepath.Join(c.OutputDir(), config.FileName))
	first, _, _ := strings.Cut(string(text), "\n")
	hash, ok := strings.CutPrefix(first, "# hash ")
	return err == nil && ok && hash != c.Hash()
}

// isResult reports whether path is a file or folder that a run may have written. Pipes and links
// are the user's.
func isResult(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && (info.Mode().IsRegular() || info.IsDir())
}

// anyExists reports whether one of the names with the number n exists.
func anyExists(dir string, names []string, n int) bool {
	for _, name := range names {
		if _, err := os.Lstat(filepath.Join(dir, numbered(name, n))); !errors.Is(err, fs.ErrNotExist) {
			return true
		}
	}
	return false
}

// numbered returns "summary-2.json" for summary.json and 2.
func numbered(name string, n int) string {
	ending := filepath.Ext(name)
	return fmt.Sprintf("%s-%d%s", strings.TrimSuffix(name, ending), n, ending)
}

// OnRank0 claims the output folder on rank 0, for all ranks.
//
// Collective: all ranks. Returns: on other ranks a claim without a lock, with the same texts.
// Errors: those of New, on all ranks.
func OnRank0(k *exchange.Values, c *config.Config) (*Claim, error) {
	var own *Claim
	told, err := exchange.FromRank0(k, "output folder", func() (Claim, error) {
		var err error
		if own, err = New(c); err != nil {
			return Claim{}, err
		}
		return Claim{Kept: own.Kept, Warning: own.Warning}, nil
	})
	if own == nil {
		own = &told
	}
	return own, err
}
