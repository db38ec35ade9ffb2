package probe

import (
	"context"
	"slices"
)

// BLAS is the matrix libraries.
type BLAS struct {
	Name      string    `json:"name"` // of the one that a program here gets: "openblas", or "gonum" for the built-in one
	Version   string    `json:"version"`
	Path      string    `json:"path"`
	Threads   int       `json:"threads"` // for one call, as the library would choose; 0 if it does not tell
	Off       bool      `json:"off"`     // libraries are switched off by a setting
	Problem   string    `json:"problem"` // why the set library cannot be used; programs then refuse to start
	Libraries []Library `json:"libraries"`
}

// FindBLAS is the matrix libraries, each tried as package blas tries them: identified, and
// computing something small.
func FindBLAS(ctx context.Context, r Roots, o Options) BLAS {
	var wanted []product
	for _, p := range products {
		if p.family == familyBLAS && len(p.sonames) > 0 {
			wanted = append(wanted, p)
		}
	}
	libs, _ := search(ctx, r, o, wanted)
	// Package blas takes one library of all, not one of each product: it says which.
	var a Answer
	if !o.NoBLAS {
		a = r.Ask(ctx, Question{Product: "blas", File: o.Files["blas"]})
	}
	for i := range libs {
		libs[i].Chosen = libs[i].Path != "" && libs[i].Path == a.BLAS.Path
	}
	if a.Path != "" && !slices.ContainsFunc(libs, func(l Library) bool { return l.Path == a.Path }) {
		l := library("blas", a, BySetting)
		l.Chosen = l.Usable
		libs = append(libs, l)
	}
	b := BLAS{Off: o.NoBLAS, Name: a.BLAS.Name, Version: a.BLAS.Version, Path: a.BLAS.Path, Threads: a.BLAS.Threads, Problem: a.Problem, Libraries: libs}
	if file := o.Files["blas"]; b.Problem != "" && file != "" {
		b.Problem = file + ": " + b.Problem
	}
	if b.Name == "" {
		b.Name = "gonum" // the fallback of a program
	}
	return b
}
