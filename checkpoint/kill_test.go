package checkpoint

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/symgrad/symgrad/internal/long"
)

// killedVariable makes the test binary the child of TestKilledDuringASave: the folder to save to.
const killedVariable = "SYMGRAD_TEST_KILLED"

func TestMain(m *testing.M) {
	if name := os.Getenv(otherVariable); name != "" {
		lockAsReader(name)
		os.Exit(0)
	}
	if dir := os.Getenv(killedVariable); dir != "" {
		if err := saveForEver(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

// saveForEver saves one step after the other with two ranks, in the background, starting after the
// newest. It writes to standard output a dot for every call of the file system, and each step when
// it is durable.
func saveForEver(dir string) error {
	all, err := newSavers(Options{Dir: dir, Size: 2, Sharded: true, Async: true, Keep: 2}, tellingFS{})
	if err != nil {
		return err
	}
	step := 0
	c, err := Open(dir)
	if err == nil {
		step = c.Manifest().Step
		err = c.Close()
	}
	if err != nil && !errors.Is(err, ErrNone) {
		return err
	}
	for {
		step++
		for rank, s := range all {
			if err := s.Save(metaOf(step), runsOf(model(), step, rank, 2, false)); err != nil {
				return err
			}
		}
		if step%3 == 0 {
			step += 7 // so that steps with gaps are there too
			continue
		}
		if err := errors.Join(all[0].Wait(), all[1].Wait()); err != nil {
			return err
		}
		fmt.Println(step)
	}
}

// tellingFS is a disk that writes a dot for every call.
type tellingFS struct{ disk }

func (t tellingFS) Mkdir(name string) error {
	fmt.Print(".")
	return t.disk.Mkdir(name)
}

func (t tellingFS) Create(name string) (file, error) {
	fmt.Print(".")
	f, err := t.disk.Create(name)
	return tellingFile{f}, err
}

func (t tellingFS) Rename(from, to string) error {
	fmt.Print(".")
	return t.disk.Rename(from, to)
}

func (t tellingFS) Remove(name string) error {
	fmt.Print(".")
	return t.disk.Remove(name)
}

func (t tellingFS) SyncDir(string) error {
	fmt.Print(".")
	return nil // a kill loses nothing that was written
}

type tellingFile struct{ file }

func (t tellingFile) Write(p []byte) (int, error) {
	fmt.Print(".")
	return t.file.Write(p)
}

func (t tellingFile) Sync() error {
	fmt.Print(".")
	return nil
}

// A program that saves is killed at random moments, 50 of them in long tests. Afterwards there is
// always a whole checkpoint with the right content, at least as new as the last one that the
// program reported as durable. The next program continues from there.
func TestKilledDuringASave(t *testing.T) {
	dir := t.TempDir()
	rng := rand.New(rand.NewPCG(1, 2))
	durable, torn, kills := 0, 0, long.Times(12, 50)
	for i := range kills {
		seen, stderr := killAfter(t, dir, rng.IntN(400))
		durable = max(durable, seen)
		c, err := Open(dir)
		if errors.Is(err, ErrNone) && durable == 0 {
			continue
		}
		if err != nil {
			t.Fatalf("kill %d: %v; the child said %q", i, err, stderr)
		}
		if got := c.Manifest().Step; got < durable {
			t.Errorf("kill %d: step %d is there, %d was durable", i, got, durable)
		}
		checkContent(t, c, c.Manifest().Step)
		torn += len(c.Rejected())
		durable = c.Manifest().Step
		closed(t, c)
		if stderr != "" {
			t.Errorf("kill %d: %s", i, stderr)
		}
	}
	if durable < kills || torn == 0 {
		t.Errorf("the last step is %d, %d checkpoints were torn: the kills did not hit saves", durable, torn)
	}
}

// killAfter starts a child and kills it after some calls of the file system. Returns: the newest
// durable step, and the child's error.
func killAfter(t *testing.T, dir string, calls int) (durable int, complaint string) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), killedVariable+"="+dir)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(out)
	var line strings.Builder
	killed := false
	for {
		c, err := r.ReadByte()
		if err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, os.ErrClosed) {
				t.Fatal(err)
			}
			break
		}
		switch c {
		case '.':
			calls--
		case '\n':
			if step, err := strconv.Atoi(line.String()); err == nil {
				durable = step
			}
			line.Reset()
		default:
			line.WriteByte(c)
		}
		if calls <= 0 && !killed {
			killed = true
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	_ = cmd.Wait() // killed, or its complaint says why it ended
	return durable, stderr.String()
}
