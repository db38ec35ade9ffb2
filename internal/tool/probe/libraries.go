package probe

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/symgrad/symgrad/dist/backend"
	"github.com/symgrad/symgrad/internal/dl"
)

// Library is a file found for a product, or a product that was not found.
type Library struct {
	Name    string   `json:"name"`     // of the product: "nccl"
	Path    string   `json:"path"`     // links resolved; "" if there is none
	FoundBy string   `json:"found_by"` // "loader", "search" (one of dl.Places), "set" (Options.Files, or a variable such as NCCL_HOME), or ""
	Version string   `json:"version"`
	Usable  bool     `json:"usable"`
	Problem string   `json:"problem"` // why it is not usable
	Chosen  bool     `json:"chosen"`  // a program here gets this one
	Notes   []string `json:"notes"`
}

// The ways to find a library, in Library.FoundBy.
const (
	ByLoader  = "loader"
	BySearch  = "search"
	BySetting = "set"
)

// Options are the user's settings of the search.
type Options struct {
	Files  map[string]string // per product (see ProductNames) the only file, or soname, to try
	NoBLAS bool              // programs use the built-in matrix routines

	Ranks    int                        // ranks that programs here start themselves; 0 if a launcher does
	Settings backend.Config             // settings of programs; its Env is ignored
	Table    func(machine string) Table // returns the table of backend cuda for the named GPU, "" for none; may be nil
}

// Validate rejects unknown products.
func (o Options) Validate() error {
	for _, name := range slices.Sorted(maps.Keys(o.Files)) {
		if _, ok := productByName(name); !ok {
			return fmt.Errorf("unknown library %q: use one of %s", name, strings.Join(ProductNames(), ", "))
		}
		if o.Files[name] == "" {
			return fmt.Errorf("no file for library %s", name)
		}
	}
	return nil
}

// maxAsked is the number of libraries that are asked concurrently. More would slow down those that
// wake up GPUs or start threads.
const maxAsked = 4

// search asks all files of the products. Returns: at least one Library per product, with its
// answers, in the order of products.
func search(ctx context.Context, r Roots, o Options, of []product) ([]Library, []Answer) {
	loaderDirs, places := dl.LoaderDirs(r.FS, r.Environ), dl.Places(r.FS, r.Environ)
	found := make([][]Library, len(of))
	answers := make([][]Answer, len(of))
	var asking sync.WaitGroup
	slots := make(chan struct{}, maxAsked)
	for i, p := range of {
		asking.Go(func() {
			set := cmp.Or(o.Files[p.Name], p.home.AtHome(r.FS, r.Environ))
			s := dl.Search{Name: p.Name, Override: set, Sonames: p.sonames, Dirs: places}
			found[i], answers[i] = searchOne(ctx, r, s, loaderDirs, func(q Question) Answer {
				slots <- struct{}{}
				defer func() { <-slots }()
				return r.Ask(ctx, q)
			})
		})
	}
	asking.Wait()
	return slices.Concat(found...), slices.Concat(answers...)
}

// searchOne asks the files of one product: the configured one; else the one that the loader finds
// for each soname, then every other file.
func searchOne(ctx context.Context, r Roots, s dl.Search, loaderDirs []string, ask func(Question) Answer) ([]Library, []Answer) {
	var libs []Library
	var answers []Answer
	seen := map[string]bool{}
	add := func(a Answer, by string) {
		if !seen[a.Path] {
			seen[a.Path] = true
			libs = append(libs, library(s.Name, a, by))
			answers = append(answers, a)
		}
	}
	if s.Override != "" {
		add(ask(Question{s.Name, s.Override}), BySetting)
		return choose(libs), answers
	}
	var nameless []Answer // loaded, but the path is unknown because the process died
	for _, soname := range s.Sonames {
		switch a := ask(Question{s.Name, soname}); {
		case !a.Loaded:
		case path.IsAbs(a.Path):
			add(a, ByLoader)
		default:
			nameless = append(nameless, a)
		}
	}
	files, err := s.Find(r.FS, loaderDirs)
	if err != nil {
		return []Library{library(s.Name, Answer{Problem: err.Error()}, "")}, []Answer{{}}
	}
	for _, f := range files {
		if seen[f.Real] {
			continue
		}
		a, by := ask(Question{s.Name, f.Path}), BySearch
		if slices.Contains(loaderDirs, path.Dir(f.Path)) {
			by = ByLoader
		}
		a.Path = f.Real
		add(a, by)
	}
	for _, a := range nameless {
		if len(libs) == 0 {
			add(a, ByLoader)
		}
	}
	if len(libs) == 0 {
		text := "not found: no " + strings.Join(s.Sonames, ", ")
		return []Library{library(s.Name, Answer{Problem: text}, "")}, []Answer{{}}
	}
	return choose(libs), answers
}

// library returns an answer as a Library.
func library(name string, a Answer, by string) Library {
	l := Library{
		Name: name, Path: a.Path, FoundBy: by, Version: a.Version, Problem: a.Problem, Usable: a.Problem == "", Notes: a.Notes,
	}
	if l.Notes == nil {
		l.Notes = []string{}
	}
	return l
}

// choose marks the first usable one, as dl.Open does: the loader's before others, the better soname
// first.
func choose(libs []Library) []Library {
	for i := range libs {
		if libs[i].Usable {
			libs[i].Chosen = true
			break
		}
	}
	return libs
}

// chooseOne keeps only the first choice: a process takes one MPI, the first usable product of the
// table.
func chooseOne(libs []Library) {
	chosen := false
	for i := range libs {
		libs[i].Chosen = libs[i].Chosen && !chosen
		chosen = chosen || libs[i].Chosen
	}
}

// FindLibraries returns the libraries of MPI, UCX, OpenSHMEM and the GPU toolkits.
func FindLibraries(ctx context.Context, r Roots, o Options) (mpi, ucx, shmem, gpu []Library) {
	var wanted []product
	for _, p := range products {
		if slices.Contains([]family{familyMPI, familyUCX, familySHMEM, familyGPU}, p.family) {
			wanted = append(wanted, p)
		}
	}
	mpi, ucx, shmem, gpu = []Library{}, []Library{}, []Library{}, []Library{}
	libs, _ := search(ctx, r, o, wanted)
	for _, l := range libs {
		switch p, _ := productByName(l.Name); p.family {
		case familyMPI:
			mpi = append(mpi, l)
		case familyUCX:
			ucx = append(ucx, l)
		case familySHMEM:
			shmem = append(shmem, l)
		default:
			gpu = append(gpu, l)
		}
	}
	chooseOne(mpi)
	return mpi, ucx, shmem, gpu
}
