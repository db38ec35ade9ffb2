package ucx

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/symgrad/symgrad/internal/net/wire"
)

// roleVariable has "rank size folder" in the process of a rank.
const roleVariable = "SYMGRAD_TEST_UCX_ROLE"

// requireVars are lists. If one contains ucx, tests fail that would skip without the library.
var requireVars = []string{"DIST_REQUIRE", "SYMGRAD_REQUIRE"}

// needUCX skips the test without the library, or fails if a list of requireVars contains ucx.
func needUCX(t testing.TB) Found {
	t.Helper()
	f, err := Find()
	if err != nil {
		for _, name := range requireVars {
			if slices.Contains(strings.Split(os.Getenv(name), ","), "ucx") {
				t.Fatalf("%s names ucx: %v", name, err)
			}
		}
		t.Skip(err)
	}
	return f
}

// folder is a Store of the processes of one test.
type folder string

func (f folder) Set(_ context.Context, key string, value []byte) error {
	file := f.file(key)
	if err := os.WriteFile(file+".new", value, 0o600); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}

func (f folder) Get(ctx context.Context, key string) ([]byte, error) {
	for b := (wire.Backoff{}); ; b.Pause() {
		value, err := os.ReadFile(f.file(key))
		if !errors.Is(err, fs.ErrNotExist) {
			return value, err
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
}

func (f folder) file(key string) string {
	return filepath.Join(string(f), strings.ReplaceAll(key, "/", "."))
}

// ranks runs body in n processes, which are this test again, over TCP on loopback. Those in killed
// end by SIGKILL. One call serves one test or subtest.
func ranks(t *testing.T, n int, cfg Config, killed []int, body func(w *Wire) error) {
	t.Helper()
	needUCX(t)
	if role := os.Getenv(roleVariable); role != "" {
		runRank(t, role, cfg, body)
		return
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	store := t.TempDir()
	pattern := "^" + strings.ReplaceAll(t.Name(), "/", "$/^") + "$"
	var all sync.WaitGroup
	for r := range n {
		all.Go(func() {
			cmd := exec.Command(program, "-test.run="+pattern, "-test.v", "-test.timeout=3m")
			cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d %d %s", roleVariable, r, n, store))
			out, err := cmd.CombinedOutput()
			switch {
			case slices.Contains(killed, r):
				if err == nil || err.Error() != "signal: killed" {
					t.Errorf("rank %d: %v, want a kill\n%s", r, err, out)
				}
			case err != nil || !bytes.Contains(out, []byte("--- PASS")):
				t.Errorf("rank %d: %v\n%s", r, err, out)
			case bytes.Contains(out, []byte("WARN")):
				t.Errorf("rank %d: the library warns:\n%s", r, out)
			case testing.Verbose():
				t.Logf("rank %d:\n%s", r, out)
			}
		})
	}
	all.Wait()
}

func runRank(t *testing.T, role string, cfg Config, body func(w *Wire) error) {
	var rank, size int
	var store folder
	if _, err := fmt.Sscan(role, &rank, &size, (*string)(&store)); err != nil {
		t.Fatal(err)
	}
	if cfg.Interface == "" {
		cfg.Interface, cfg.Transports = "lo", "tcp,self"
	}
	w, err := Open(t.Context(), rank, size, store, cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(body(w), w.Close(), w.Close()); err != nil {
		t.Fatal(err)
	}
}
