package output

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/symgrad/symgrad/config"
)

// names returns the files of a folder, without the lock.
func names(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, e := range entries {
		if e.Name() != claimName {
			all = append(all, e.Name())
		}
	}
	return strings.Join(all, " ")
}

// A run that did not end is taken up by the same command, and one with other settings is not the
// same.
func TestUnfinishedRunIsKeptFromOtherSettings(t *testing.T) {
	c := config.Default()
	c.Run.OutputDir = t.TempDir()
	logs := filepath.Join(c.Run.OutputDir, "logs")
	if err := errors.Join(c.Save(c.Run.OutputDir, nil), os.Mkdir(logs, 0o700)); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		seed int64
		want string
	}{{c.Run.Seed, "config.yaml logs"}, {c.Run.Seed + 1, "config-1.yaml logs-1"}} {
		c.Run.Seed = test.seed
		cl, err := New(&c)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(cl.Close(), cl.Close()); err != nil {
			t.Error(err)
		}
		if got := names(t, c.Run.OutputDir); got != test.want {
			t.Errorf("seed %d: there is %s, want %s", test.seed, got, test.want)
		}
	}
}

func TestNumberedNamesKeepTheirEnding(t *testing.T) {
	got := []string{numbered("summary.json", 1), numbered("logs", 12), numbered("a/t.json.gz", 2)}
	if want := []string{"summary-1.json", "logs-12", "a/t.json-2.gz"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
