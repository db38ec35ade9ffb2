package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/symgrad/symgrad/train"
)

// fed starts the program with the settings coming through a pipe, which only one process can read.
func fed(t *testing.T, text string, env ...string) outcome {
	t.Helper()
	p := prepared(t, "--config", "/dev/stdin")
	p.Env = append(p.Env, env...)
	p.Stdin = strings.NewReader(text)
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	return p.outcome(t)
}

// A file of settings may be longer than a command line or an environment can be.
func TestRanksTakeSettingsThatCameThroughAPipe(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	text := fmt.Sprintf("run: {name: wanted, output_dir: %q, max_steps: 2, eval: false}\nlaunch: {nproc_per_node: 2}\nmodel: {hidden: [16]}\ndata: {path: %q, global_batch: 32}\n",
		dir, madeUp(t))
	for _, more := range []string{"", strings.Repeat("# a long remark\n", 200<<10/16)} {
		o := fed(t, text+more)
		o.dir = dir
		if s := o.summary(t); s.Name != "wanted" || s.Steps != 2 || s.WorldSize != 2 {
			t.Errorf("it was another run: %s, %d steps, %d ranks", s.Name, s.Steps, s.WorldSize)
		}
		if !strings.Contains(o.stdout, "run        wanted, /dev/stdin, config hash") {
			t.Errorf("the source is not named:\n%s", o.stdout)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	}
}

func TestRanksOfAnotherLauncherRefuseAPipe(t *testing.T) {
	o := fed(t, "run: {max_steps: 2}\n", "SYMGRAD_RANK=0", "SYMGRAD_WORLD_SIZE=2", "SYMGRAD_LOCAL_RANK=0", "SYMGRAD_LOCAL_WORLD_SIZE=2")
	if o.code != train.ExitUsage || !strings.Contains(o.stderr, "--config /dev/stdin: not a regular file") {
		t.Errorf("code %d, %s", o.code, o.stderr)
	}
}
