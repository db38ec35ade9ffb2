package train_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/symgrad/symgrad/config"
	"github.com/symgrad/symgrad/train"
)

// outside makes a module in a new folder that has testdata/own/main.go and requires this module, as
// a user's does, and builds its program. Its other requirements are those of this module. So it
// needs the module cache and no network.
//
// Returns: the program's path.
func outside(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("go"); err != nil {
		t.Skipf("needs the go command: %v", err)
	}
	tree, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	own, err := os.ReadFile(filepath.Join(tree, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	mod := regexp.MustCompile(`(?m)^module \S+$`).ReplaceAllString(string(own), "module example.com/own") +
		"\nrequire github.com/symgrad/symgrad v0.0.0\n\nreplace github.com/symgrad/symgrad => " + tree + "\n"
	main, errMain := os.ReadFile(filepath.Join("testdata", "own", "main.go"))
	sum, errSum := os.ReadFile(filepath.Join(tree, "go.sum"))
	err = errors.Join(errMain, errSum,
		os.WriteFile(filepath.Join(dir, "go.mod"), []byte(mod), 0o600),
		os.WriteFile(filepath.Join(dir, "go.sum"), sum, 0o600),
		os.WriteFile(filepath.Join(dir, "main.go"), main, 0o600))
	if err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", "build", "-o", "own", ".")
	build.Dir = dir
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-mod=readonly", "GOPROXY=off", "GOSUMDB=off", "GOWORK=off", "GOTOOLCHAIN=local")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return filepath.Join(dir, "own")
}

// A program of another module trains its own model on two ranks, stops, and continues on three.
func TestModuleOutsideTrainsItsModel(t *testing.T) {
	own, dir := outside(t), t.TempDir()
	run := func(ranks, steps int, more ...string) train.Summary {
		args := append([]string{
			"--set", fmt.Sprint("launch.nproc_per_node=", ranks), "--set", fmt.Sprint("run.max_steps=", steps), "--set", "run.epochs=0",
			"--set", "optim.lr=0.03", "--set", "run.output_dir=" + dir, "--set", "checkpoint.dir=" + filepath.Join(dir, "ck"),
		}, more...)
		if out, err := exec.Command(own, args...).CombinedOutput(); err != nil {
			t.Fatalf("%d ranks: %v\n%s", ranks, err, out)
		}
		text, err := os.ReadFile(filepath.Join(dir, config.SummaryName))
		var s train.Summary
		if err = errors.Join(err, json.Unmarshal(text, &s)); err != nil {
			t.Fatal(err)
		}
		return s
	}
	if s := run(2, 100, "--verify"); s.WorldSize != 2 || s.Backend != "shm" || s.VerifyMaxRelDiff == nil || s.TestSamples != 1000 {
		t.Errorf("%+v", s)
	}
	if s := run(3, 300, "--below", "0.1"); s.ResumedStep != 100 || *s.TestAccuracy < 0.9 {
		t.Errorf("from step %d, %v of the test answers are right", s.ResumedStep, *s.TestAccuracy)
	}
	if out, err := exec.Command(own, "--help").Output(); err != nil || !strings.Contains(string(out), "own [--config FILE] ") {
		t.Errorf("%v, %s", err, out)
	}
}
