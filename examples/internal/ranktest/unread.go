package ranktest

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"testing"
	"time"
)

// Unread runs the program as a process whose output loses its reader after the first line, as with
// "| head -1". The program's arguments must make it write without end.
func Unread(t testing.TB, args ...string) Outcome {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	p := exec.CommandContext(t.Context(), program, args...)
	p.Env = append(os.Environ(), programVar+"=1")
	var stderr bytes.Buffer
	p.Stdout, p.Stderr = w, &stderr
	err = p.Start()
	_ = w.Close() // the program has its own copy
	if err != nil {
		t.Fatal(err)
	}
	stop := time.AfterFunc(hang, func() { _ = p.Process.Kill() })
	defer stop.Stop()
	line, err := bufio.NewReader(r).ReadString('\n')
	if err != nil {
		t.Errorf("no line of output: %v", err)
	}
	_ = r.Close() // the next line has no reader
	_ = p.Wait()  // the exit code says more
	return Outcome{p.ProcessState.ExitCode(), line, stderr.String()}
}
