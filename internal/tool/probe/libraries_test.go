package probe

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/symgrad/symgrad/internal/host/blas"
)

const (
	wheel  = "/opt/torch/.venv/lib/python3.12/site-packages/nvidia/nccl/lib/libnccl.so.2"
	system = "/usr/lib/x86_64-linux-gnu/libnccl.so.2.27.7"
)

// answers is an Ask that knows some questions, and remembers all it got.
type answers struct {
	mu    sync.Mutex
	know  map[Question]Answer
	asked []Question
}

func (a *answers) ask(_ context.Context, q Question) Answer {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked = append(a.asked, q)
	if known, ok := a.know[q]; ok {
		return known
	}
	return Answer{Path: q.File, Problem: "cannot open shared object file"}
}

// only is the libraries of one product.
func only(libs []Library, name string) []Library {
	return slices.DeleteFunc(slices.Clone(libs), func(l Library) bool { return l.Name != name })
}

func TestSearchReportsEveryFileAndWhichIsTaken(t *testing.T) {
	files := []string{
		strings.TrimPrefix(wheel, "/") + "=", strings.TrimPrefix(system, "/") + "=",
		"usr/lib/x86_64-linux-gnu/libnccl.so.2 -> libnccl.so.2.27.7",
		"opt/torch/bin/python3 -> ../.venv/bin/python3", "opt/torch/.venv/bin/python3=",
	}
	linked := Question{"nccl", "/usr/lib/x86_64-linux-gnu/libnccl.so.2"}
	good := func(path, version string) Answer { return Answer{Loaded: true, Path: path, Version: version} }
	tests := []struct {
		name string
		know map[Question]Answer
		set  string
		want []Library
	}{
		{
			"the loader's comes first",
			map[Question]Answer{{"nccl", "libnccl.so.2"}: good(system, "2.27.7"), {"nccl", wheel}: good(wheel, "2.28.3")},
			"",
			[]Library{
				{Name: "nccl", Path: system, FoundBy: ByLoader, Version: "2.27.7", Usable: true, Chosen: true},
				{Name: "nccl", Path: wheel, FoundBy: BySearch, Version: "2.28.3", Usable: true},
			},
		},
		{
			"the loader does not know its cache: the file is found",
			map[Question]Answer{linked: good(system, "2.27.7"), {"nccl", wheel}: good(wheel, "2.28.3")},
			"",
			[]Library{
				{Name: "nccl", Path: system, FoundBy: ByLoader, Version: "2.27.7", Usable: true, Chosen: true},
				{Name: "nccl", Path: wheel, FoundBy: BySearch, Version: "2.28.3", Usable: true},
			},
		},
		{
			"one that is broken is passed over",
			map[Question]Answer{linked: {Path: linked.File, Problem: "libcudart.so.12: cannot open shared object file"}, {"nccl", wheel}: good(wheel, "2.28.3")},
			"",
			[]Library{
				{Name: "nccl", Path: system, FoundBy: ByLoader, Problem: "libcudart.so.12: cannot open shared object file"},
				{Name: "nccl", Path: wheel, FoundBy: BySearch, Version: "2.28.3", Usable: true, Chosen: true},
			},
		},
		{
			"one that kills the process is named by its file",
			map[Question]Answer{
				{"nccl", "libnccl.so.2"}: {Loaded: true, Path: "libnccl.so.2", Problem: "died"},
				linked:                   {Loaded: true, Path: linked.File, Problem: "died"},
			},
			"",
			[]Library{
				{Name: "nccl", Path: system, FoundBy: ByLoader, Problem: "died"},
				{Name: "nccl", Path: wheel, FoundBy: BySearch, Problem: "cannot open shared object file"},
			},
		},
		{
			"one that is set is the only one",
			map[Question]Answer{{"nccl", wheel}: good(wheel, "2.28.3"), {"nccl", "libnccl.so.2"}: good(system, "2.27.7")},
			wheel,
			[]Library{{Name: "nccl", Path: wheel, FoundBy: BySetting, Version: "2.28.3", Usable: true, Chosen: true}},
		},
		{
			"one that is set and absent is not replaced",
			map[Question]Answer{{"nccl", "libnccl.so.2"}: good(system, "2.27.7")},
			"/absent.so",
			[]Library{{Name: "nccl", Path: "/absent.so", FoundBy: BySetting, Problem: "cannot open shared object file"}},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := roots(files...)
			r.Environ = []string{"PATH=/opt/torch/bin"}
			a := &answers{know: tt.know}
			r.Ask = a.ask
			var o Options
			if tt.set != "" {
				o.Files = map[string]string{"nccl": tt.set}
			}
			_, _, _, libs := FindLibraries(t.Context(), r, o)
			if diff := cmp.Diff(tt.want, only(libs, "nccl"), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("(-want +got):\n%s\nasked %v", diff, a.asked)
			}
		})
	}
}

func TestLibraryOfItsOwnVariableIsTheOnlyOne(t *testing.T) {
	const home = "/opt/nccl/lib/libnccl.so.2"
	r := roots("opt/nccl/lib/libnccl.so.2=", "usr/lib/x86_64-linux-gnu/libnccl.so.2.27.7=")
	r.Environ = []string{"NCCL_HOME=/opt/nccl"}
	a := &answers{know: map[Question]Answer{
		{"nccl", home}: {Loaded: true, Path: home, Version: "2.28.3"}, {"nccl", "libnccl.so.2"}: {Loaded: true, Path: system, Version: "2.27.7"},
	}}
	r.Ask = a.ask
	for set, want := range map[string]Library{
		"":     {Name: "nccl", Path: home, FoundBy: BySetting, Version: "2.28.3", Usable: true, Chosen: true},
		"/set": {Name: "nccl", Path: "/set", FoundBy: BySetting, Problem: "cannot open shared object file"},
	} {
		o := Options{Files: map[string]string{}}
		if set != "" {
			o.Files["nccl"] = set
		}
		_, _, _, libs := FindLibraries(t.Context(), r, o)
		if diff := cmp.Diff([]Library{want}, only(libs, "nccl"), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("set %q (-want +got):\n%s", set, diff)
		}
	}
}

func TestSearchNamesWhatItLookedFor(t *testing.T) {
	mpi, ucx, shmem, gpu := FindLibraries(t.Context(), roots(), Options{})
	names := func(libs []Library) (names []string) {
		for _, l := range libs {
			names = append(names, l.Name)
			if l.Usable || l.Chosen || l.Path != "" || l.Notes == nil || !strings.HasPrefix(l.Problem, "not found: no lib") {
				t.Errorf("a library of an empty machine: %+v", l)
			}
		}
		return names
	}
	if diff := cmp.Diff([]string{"mpi-abi", "openmpi", "mpich"}, names(mpi)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"ucx"}, names(ucx)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"openshmem"}, names(shmem)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"cudart", "nvrtc", "nvjitlink", "cublas", "cudnn", "nccl", "nvshmem"}, names(gpu)); diff != "" {
		t.Error(diff)
	}
}

func TestOneMPIIsChosen(t *testing.T) {
	r := roots()
	r.Ask = (&answers{know: map[Question]Answer{
		{"openmpi", "libmpi.so.40"}:    {Loaded: true, Path: "/lib/libmpi.so.40"},
		{"mpich", "libmpich.so.12"}:    {Loaded: true, Path: "/lib/libmpich.so.12"},
		{"mpi-abi", "libmpi_abi.so.0"}: {Loaded: true, Path: "/lib/libmpi_abi.so.0", Problem: "broken"},
	}}).ask
	mpi, _, _, _ := FindLibraries(t.Context(), r, Options{})
	for _, l := range mpi {
		if l.Chosen != (l.Name == "openmpi") || l.Usable != (l.Name != "mpi-abi") {
			t.Errorf("%+v", l)
		}
	}
}

func TestOptionsNameOnlyWhatIsKnown(t *testing.T) {
	for _, tt := range []struct {
		files map[string]string
		want  string
	}{
		{nil, ""},
		{map[string]string{"nccl": "/x", "blas": "y"}, ""},
		{map[string]string{"nccl": "/x", "ncll": "/x"}, `unknown library "ncll": use one of mkl, openblas, `},
		{map[string]string{"nccl": ""}, "no file for library nccl"},
	} {
		err := Options{Files: tt.files}.Validate()
		if got := ""; err != nil {
			got = err.Error()
			if tt.want == "" || !strings.HasPrefix(got, tt.want) {
				t.Errorf("%v: %q, want %q", tt.files, got, tt.want)
			}
		} else if tt.want != "" {
			t.Errorf("%v: no error, want %q", tt.files, tt.want)
		}
	}
}

func TestBLASIsWhatPackageBLASTakes(t *testing.T) {
	openblas := Answer{Loaded: true, Path: "/lib/libopenblas.so.0", Version: "0.3.21", BLAS: blas.Info{Name: "openblas", Version: "0.3.21", Path: "/lib/libopenblas.so.0", Threads: 2}}
	blis := Answer{Loaded: true, Path: "/lib/libblis.so.4", Version: "0.9.0", BLAS: blas.Info{Name: "blis", Version: "0.9.0", Path: "/lib/libblis.so.4"}}
	other := Answer{Loaded: true, Path: "/opt/libmine.so", BLAS: blas.Info{Name: "blas", Path: "/opt/libmine.so"}}
	gonum := Answer{Loaded: true, BLAS: blas.Info{Name: "gonum", Version: "v0.17.0", Threads: 8}}
	know := map[Question]Answer{{"openblas", "libopenblas.so.0"}: openblas, {"blis", "libblis.so.4"}: blis}
	found := func(chosen string) []Library {
		return []Library{
			{Name: "mkl", Problem: "not found: no libmkl_rt.so.2"},
			{Name: "openblas", Path: openblas.Path, FoundBy: ByLoader, Version: "0.3.21", Usable: true, Chosen: chosen == "openblas"},
			{Name: "blis", Path: blis.Path, FoundBy: ByLoader, Version: "0.9.0", Usable: true, Chosen: chosen == "blis"},
		}
	}
	tests := []struct {
		name string
		o    Options
		blas Answer // of package blas
		want BLAS
	}{
		{"automatic", Options{}, openblas, BLAS{Name: "openblas", Version: "0.3.21", Path: openblas.Path, Threads: 2, Libraries: found("openblas")}},
		{
			"set to another",
			Options{Files: map[string]string{"blas": "libblis.so.4"}},
			blis,
			BLAS{Name: "blis", Version: "0.9.0", Path: blis.Path, Libraries: found("blis")},
		},
		{
			"set to one of no vendor",
			Options{Files: map[string]string{"blas": "/opt/libmine.so"}},
			other,
			BLAS{Name: "blas", Path: other.Path, Libraries: append(found(""), Library{Name: "blas", Path: other.Path, FoundBy: BySetting, Usable: true, Chosen: true})},
		},
		{
			"set to what is broken",
			Options{Files: map[string]string{"blas": "/opt/libmine.so"}},
			Answer{Loaded: true, Path: "/opt/libmine.so", Problem: "sgemm computes wrong numbers"},
			BLAS{
				Name: "gonum", Problem: "/opt/libmine.so: sgemm computes wrong numbers",
				Libraries: append(found(""), Library{Name: "blas", Path: other.Path, FoundBy: BySetting, Problem: "sgemm computes wrong numbers"}),
			},
		},
		{"nothing will do", Options{}, gonum, BLAS{Name: "gonum", Version: "v0.17.0", Threads: 8, Libraries: found("")}},
		{"switched off", Options{NoBLAS: true}, openblas, BLAS{Name: "gonum", Off: true, Libraries: found("")}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := roots()
			a := &answers{know: map[Question]Answer{{"blas", tt.o.Files["blas"]}: tt.blas}}
			for q, answer := range know {
				a.know[q] = answer
			}
			r.Ask = a.ask
			if diff := cmp.Diff(tt.want, FindBLAS(t.Context(), r, tt.o), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
