package probe

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"go.uber.org/goleak"

	"github.com/symgrad/symgrad/internal/dl/dltest"
	"github.com/symgrad/symgrad/internal/host/blas"
)

// askWord makes this test binary the child that asks a library.
const askWord = "ask"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == askWord {
		if err := Reply(os.Args[2:], os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// child has the questions of a test answered by this test binary.
func child() func(context.Context, Question) Answer { return Child(os.Args[0], askWord) }

// fake compiles testdata/fake.c with the defines and returns the library's path.
func fake(t *testing.T, soname string, defines ...string) string {
	t.Helper()
	flags := make([]string, len(defines))
	for i, d := range defines {
		flags[i] = "-D" + d
	}
	return dltest.Compile(t, soname, filepath.Join("testdata", "fake.c"), flags...)
}

// deadline bounds how long a test waits for a child that misbehaves.
func deadline(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// tree is a file system of texts ("name=text") and of links ("name -> target").
func tree(entries ...string) fstest.MapFS {
	fsys := fstest.MapFS{}
	for _, e := range entries {
		name, text, isFile := strings.Cut(e, "=")
		if link, target, ok := strings.Cut(e, " -> "); ok && (!isFile || len(link) < len(name)) {
			fsys[link] = &fstest.MapFile{Data: []byte(target), Mode: fs.ModeSymlink}
			continue
		}
		fsys[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return fsys
}

// roots is a machine of files, without libraries.
func roots(entries ...string) Roots {
	return Roots{
		FS:       tree(entries...),
		Statfs:   func(string) (int64, int64, error) { return 64 << 20, 32 << 20, nil },
		TryMemfd: func(int64) error { return nil },
		Ask: func(_ context.Context, q Question) Answer {
			if q == (Question{Product: "blas"}) { // which falls back
				return Answer{Loaded: true, BLAS: blas.Info{Name: "gonum"}}
			}
			return Answer{Path: q.File, Problem: "cannot open shared object file"}
		},
	}
}
