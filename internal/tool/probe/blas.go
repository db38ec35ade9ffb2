package probe

import (
	"context"
	"slices"
)

// BLAS has the matrix libraries.
type BLAS struct {
	Name      string    `json:"name"` // of the library that a program gets here: "openblas", or "gonum" for the built-in one
	Version   string    `json:"version"`
	Path      string    `json:"path"`
	Threads   int       `json:"threads"` // for one call, as the library would choose; 0 if unknown
	Off       bool      `json:"off"`     // a setting disables libraries
	Problem   string    `json:"problem"` // why the configured library cannot be used; programs then refuse to start
	Libraries []Library `json:"libraries"`
}

// FindBLAS returns the matrix libraries. Each is tried as in package blas: identified, and tested
// with a small computation.
func FindBLAS(ctx context.Context, r Roots, o Options) BLAS {
	var wanted []product
	for _, p := range products {
		if p.family == familyBLAS && len(p.sonames) > 0 {
			wanted = append(wanted, p)
		}
	}
	libs, _ := search(ctx, r, o, wanted)
	// Package blas takes one library of all products and reports which.
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
		b.Name = "gonum" // used if cpu.blas=gonum
	}
	return b
}
