// Package nnop has the graph operations of package nn that Gorgonia lacks. Each op has a Do for
// tape machines and a symbolic gradient. internal/compile/lower turns it into steps of a program,
// so that package machine fuses it and runs it on GPUs.
//
// The ops read their inputs and never change, keep or return them. Results have memory of their
// own. Do computes in the type of the inputs, float32 or float64, with sums in float64.
package nnop
