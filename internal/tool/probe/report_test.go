package probe

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/symgrad/symgrad/dist/launch"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the golden files")

// golden compares text with a file of testdata.
func golden(t *testing.T, name, text string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *rewrite {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), text); diff != "" {
		t.Errorf("%s (-want +got):\n%s", file, diff)
	}
}

// keysOf is the paths of all keys of a type's JSON: "gpus.devices[].name".
func keysOf(t *testing.T, typ reflect.Type, at string) []string {
	t.Helper()
	switch typ.Kind() {
	case reflect.Slice:
		return keysOf(t, typ.Elem(), at+"[]")
	case reflect.Struct:
		var keys []string
		for i := range typ.NumField() {
			f := typ.Field(i)
			name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
			if name == "" || strings.ToLower(name) != name || options != "" {
				t.Errorf("%s.%s has the tag %q: want a key in lower case and no options", typ, f.Name, f.Tag.Get("json"))
			}
			path := name
			if at != "" {
				path = at + "." + name
			}
			keys = append(keys, keysOf(t, f.Type, path)...)
		}
		return keys
	}
	return []string{at}
}

func TestKeysOfTheReportAreStable(t *testing.T) {
	golden(t, "keys.txt", strings.Join(keysOf(t, reflect.TypeFor[Report](), ""), "\n")+"\n")
}

// bare is a machine with nothing.
func bare() Roots {
	r := roots()
	r.TryMemfd = func(int64) error { return errors.New("not permitted") }
	r.Statfs = func(string) (int64, int64, error) { return 0, 0, errors.New("no such file") }
	return r
}

func TestReportHasNoNulls(t *testing.T) {
	for name, r := range map[string]Roots{"bare": bare(), "two sockets": roots(twoSockets...)} {
		text, err := json.Marshal(Collect(t.Context(), r, Options{}))
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "null") {
			t.Errorf("%s: %s", name, text)
		}
	}
}

func TestWorldsWorkInThisProcess(t *testing.T) {
	want := []World{{Backend: "shm", Ranks: 2, OK: true}, {Backend: "sim", Ranks: 2, OK: true}}
	if diff := cmp.Diff(want, TryWorlds()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := tryWorld("x", func() error { return errors.New("no memory") }); got.OK || got.Problem != "no memory" {
		t.Errorf("a world that fails: %+v", got)
	}
}

func TestVerdictFollowsTheJobAndTheTrial(t *testing.T) {
	for _, tt := range []struct {
		name    string
		environ []string
		ok      bool
		verdict string
		chosen  string
	}{
		{"plainly", nil, true, "ready: backend shm, ", "shm"},
		{"torchrun, one host", []string{"RANK=1", "WORLD_SIZE=2", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2"}, true, "ready: backend shm, ", "shm"},
		{"two hosts", []string{"RANK=1", "WORLD_SIZE=4", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2"}, false, "backend ucx is for this job but cannot be used: ", ""},
		{"half an environment", []string{"RANK=1"}, false, "programs would refuse to start here: environment variable WORLD_SIZE is not set", "shm"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := roots()
			r.Environ = tt.environ
			rep := Collect(t.Context(), r, Options{})
			if rep.OK != tt.ok || !strings.HasPrefix(rep.Verdict, tt.verdict) {
				t.Errorf("%t, %q; want %t, %q", rep.OK, rep.Verdict, tt.ok, tt.verdict)
			}
			chosen := ""
			for _, b := range rep.Backends {
				if b.Chosen {
					chosen += b.Name
				}
				if b.Why == "" {
					t.Errorf("backend %s has no reason", b.Name)
				}
			}
			if chosen != tt.chosen {
				t.Errorf("chosen %q, want %q", chosen, tt.chosen)
			}
		})
	}
	broken := Report{Backends: []Backend{{Name: "shm", Usable: true, Chosen: true}}, Worlds: []World{{Backend: "sim", OK: true}, {Backend: "shm", Problem: "no memory"}}}
	if ok, verdict := broken.judge("shm"); ok || verdict != "backend shm would be chosen and does not work: no memory" {
		t.Errorf("%t, %q", ok, verdict)
	}
	gpus := Report{CPU: CPU{Usable: 1}, GPUs: GPUs{Devices: make([]GPU, 2)}, BLAS: BLAS{Name: "gonum"}, Backends: []Backend{{Name: "shm", Chosen: true}}}
	gone := Report{Backends: []Backend{{Name: "shm", Usable: true}, {Name: "nccl", Why: "missing: no NCCL is found"}}}
	if ok, verdict := gone.judge("nccl"); ok || verdict != "backend nccl is configured but cannot be used: missing: no NCCL is found" {
		t.Errorf("%t, %q", ok, verdict)
	}
	unusable := gpus
	unusable.BLAS.Problem = "libmine.so: invalid ELF header"
	if ok, verdict := unusable.judge("shm"); ok || verdict != "programs would refuse to start here: BLAS libmine.so: invalid ELF header" {
		t.Errorf("%t, %q", ok, verdict)
	}
	if ok, verdict := gpus.judge("shm"); !ok || verdict != "ready: backend shm, 1 core, 2 GPUs seen, BLAS gonum" {
		t.Errorf("%t, %q", ok, verdict)
	}
}

func TestLauncherIsTheOneThatProgramsSee(t *testing.T) {
	r := roots()
	r.Environ = []string{
		"OMPI_COMM_WORLD_RANK=2", "OMPI_COMM_WORLD_SIZE=4", "OMPI_COMM_WORLD_LOCAL_RANK=0", "OMPI_COMM_WORLD_LOCAL_SIZE=2",
		"SLURM_JOB_ID=7", "PMIX_RANK=2", "SYMGRAD_RUN_SEED=3", "RANKED=1", "PATH=/bin",
	}
	got, env := SeeLauncher(r)
	want := Launcher{Name: launch.OpenMPI, Rank: 2, Size: 4, LocalRank: 0, LocalSize: 2, Variables: []Variable{
		{"OMPI_COMM_WORLD_LOCAL_RANK", launch.OpenMPI},
		{"OMPI_COMM_WORLD_LOCAL_SIZE", launch.OpenMPI},
		{"OMPI_COMM_WORLD_RANK", launch.OpenMPI},
		{"OMPI_COMM_WORLD_SIZE", launch.OpenMPI},
		{"PMIX_RANK", launch.PMIx},
		{"SLURM_JOB_ID", launch.Slurm},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if env.Rank != 2 || env.OneHost() {
		t.Errorf("the job is %v", env)
	}
}

// A remaining variable may be why programs refuse to start.
func TestVariablesOfOurLauncherAreAllListed(t *testing.T) {
	for _, name := range launch.Variables() {
		r := roots()
		r.Environ = []string{name + "=1"}
		got, _ := SeeLauncher(r)
		if want := []Variable{{name, launch.Symgrad}}; !slices.Equal(got.Variables, want) {
			t.Errorf("%s: listed %v, want %v", name, got.Variables, want)
		}
	}
}

func TestCollectStopsAskingWhenCanceled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := roots()
	r.Ask = child()
	rep := Collect(ctx, r, Options{Files: map[string]string{"nccl": "libnccl.so.2"}})
	i := slices.IndexFunc(rep.GPULibraries, func(l Library) bool { return l.Name == "nccl" })
	if got := rep.GPULibraries[i].Problem; got != "the question was interrupted: context canceled" {
		t.Errorf("nccl: %q", got)
	}
}
