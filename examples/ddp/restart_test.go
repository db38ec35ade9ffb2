//go:build linux

package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/symgrad/symgrad/dist/launch"
	"github.com/symgrad/symgrad/internal/long"
	"github.com/symgrad/symgrad/internal/net/hosttest"
)

// supervised runs the program as two ranks that the launcher restarts, as symgrad run does, with a
// killer.
func supervised(t *testing.T, kills int, args []string) (launch.Result, string) {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	res, err := launch.Spawn(t.Context(), launch.SpawnConfig{
		Program: program, Args: args, N: 2, MaxRestarts: 30, Pause: 1, Stdout: &stdout, Stderr: &stderr,
		Env: append(os.Environ(), programVar+"=1", fmt.Sprint(killsVar, "=", kills)),
	})
	if err != nil {
		t.Fatal(err)
	}
	return res, stderr.String()
}

// A rank is killed again and again. Each time the launcher starts the job again, which resumes by
// itself and ends as an undisturbed run does.
func TestRestartedJobEndsAsAnUndisturbedOne(t *testing.T) {
	data, ck := madeUp(t), t.TempDir()
	kills := long.Times(4, 20)
	if underRace {
		kills = 2
	}
	how := []string{fmt.Sprint("run.max_steps=", 12*kills+20), "run.eval=false", "log.every=1", "log.losses=true", "optim.name=adamw"}
	whole := processes(t, data, append(how, ranks(2))...).summary(t)
	for _, resume := range []string{"auto", "none"} {
		dir, folder := filepath.Join(t.TempDir(), "run"), filepath.Join(ck, resume)
		args := settings(dir, data, append(how, "checkpoint.every=3", "checkpoint.keep=2", "checkpoint.dir="+folder, "run.resume="+resume)...)
		res, text := supervised(t, kills, args)
		if res.Code != 0 || res.Restarts != kills || strings.Count(text, "was killed by signal: killed at step ") != kills {
			t.Errorf("resume=%s: %d kills, %+v\n%s", resume, kills, res, text)
		}
		end := outcome{0, "", text, dir}.summary(t)
		if end.ParamsSHA256 != whole.ParamsSHA256 || end.ResumedStep == 0 || !slices.Equal(end.Losses, whole.Losses) {
			t.Errorf("resume=%s: after %d kills, from step %d: parameters %.8s, want %.8s", resume, kills, end.ResumedStep, end.ParamsSHA256, whole.ParamsSHA256)
		}
	}
	hosttest.Record(t, fmt.Sprintf("training on one host/%d ranks killed", kills), 0, nil)
}
