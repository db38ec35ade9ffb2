package nccl

import (
	"bufio"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
	"github.com/symgrad/symgrad/internal/gpu/cuda/cudatest"
	"github.com/symgrad/symgrad/tensor"
)

// Variables that make this binary a rank of TestDeathOfAProcessIsSurvived.
const (
	roleVariable = "SYMGRAD_TEST_NCCL_ROLE"
	idVariable   = "SYMGRAD_TEST_NCCL_ID"
)

// play is the main function of a rank: "stay", which makes the id and says it, or "die", which is
// told it.
func play(role string) int {
	if err := act(role); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", role, err)
		return 1
	}
	return 0
}

func act(role string) error {
	cfg := machineConfig()
	driver, err := cuda.Open(cuda.Config{Dirs: cfg.Dirs})
	if err != nil {
		return err
	}
	lib, err := Open(cfg)
	if err != nil {
		return err
	}
	rank, id := 0, UniqueID{}
	if role == "die" {
		rank = 1
		if _, err := hex.Decode(id[:], []byte(os.Getenv(idVariable))); err != nil {
			return err
		}
	} else {
		if id, err = lib.NewUniqueID(); err != nil {
			return err
		}
		fmt.Println(hex.EncodeToString(id[:]))
	}
	v, err := driver.Device(rank)
	if err != nil {
		return err
	}
	c, err := lib.InitComm(v, id, rank, 2, "processes")
	if err != nil {
		return err
	}
	return meet(c, role)
}

// meet sums once with both ranks, and then with one. It waits for a line from the test in between.
func meet(c *Comm, role string) error {
	s, err := c.dev.NewStream(0)
	if err != nil {
		return err
	}
	at, err := c.dev.Alloc(wordBytes)
	if err != nil {
		return err
	}
	b, err := device(at, 16, tensor.F32, c.dev)
	if err != nil {
		return err
	}
	if err := errors.Join(c.AllReduce(b, b, dist.Sum, s), s.Synchronize()); err != nil {
		return err
	}
	if role == "stay" {
		if err := c.AllReduce(b, b, dist.Sum, s); err != nil {
			return err
		}
	}
	fmt.Println("ready")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	began := time.Now()
	c.Abort()
	if err := errors.Join(s.Synchronize(), c.Close()); err != nil {
		return err
	}
	if took := time.Since(began); took > 5*time.Second {
		return fmt.Errorf("it took %v", took)
	}
	if err := c.AllReduce(b, b, dist.Sum, s); !errors.Is(err, dist.ErrAborted) {
		return fmt.Errorf("afterwards: error %w, want ErrAborted", err)
	}
	fmt.Println("ended")
	return nil
}

// actor is a process of the test.
type actor struct {
	cmd   *exec.Cmd
	in    io.Writer
	lines *bufio.Scanner
}

func start(ctx context.Context, t *testing.T, role, id string) *actor {
	t.Helper()
	a := &actor{cmd: exec.CommandContext(ctx, os.Args[0])}
	a.cmd.Env = append(os.Environ(), roleVariable+"="+role, idVariable+"="+id)
	a.cmd.Stderr = os.Stderr
	in, err := a.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := a.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	a.in, a.lines = in, bufio.NewScanner(out)
	if err := a.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return a
}

// says returns the next line of a process, except those of NCCL.
func (a *actor) says(t *testing.T) string {
	t.Helper()
	for a.lines.Scan() {
		if line := a.lines.Text(); !strings.Contains(line, "NCCL") {
			return line
		}
	}
	t.Fatalf("%v ended: %v", a.cmd.Args, a.lines.Err())
	return ""
}

// A rank whose process is killed during an operation: the other ends it within seconds and exits
// cleanly.
func TestDeathOfAProcessIsSurvived(t *testing.T) {
	cudatest.Devices(t, 2)
	library(t)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	stay := start(ctx, t, "stay", "")
	die := start(ctx, t, "die", stay.says(t))
	for _, a := range []*actor{die, stay} {
		if line := a.says(t); line != "ready" {
			t.Fatalf("%q, want ready", line)
		}
	}
	if err := die.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = die.cmd.Wait() // "signal: killed"
	if _, err := io.WriteString(stay.in, "dead\n"); err != nil {
		t.Fatal(err)
	}
	if line := stay.says(t); line != "ended" {
		t.Errorf("%q, want ended", line)
	}
	if err := stay.cmd.Wait(); err != nil {
		t.Errorf("the rank that stayed: %v", err)
	}
}
