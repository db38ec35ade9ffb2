// Package program has the compiled form of a graph: values, and steps over views of them. A program
// is data. It depends neither on the graph that it comes from nor on the device that runs it: the
// front half (package machine) makes it, Optimize and Plan work on it, and back halves
// (internal/hostexec, internal/cudaexec) run it.
//
// # Few kinds of steps
//
// Operations that only rearrange a tensor are Views and cost nothing: reshape, transpose, slice,
// repeat. Elementwise operations are a Map, with any number of scalar operations in it; fusion
// joins Maps, and a Map with the Reduce after it. A matrix product takes transposed operands as
// views. The rest are kinds of their own, because fast code for them looks different.
//
// Parameters with a part on each rank are gathered by steps, fetches, and gathered again after a
// long gap between two uses, so a step of training holds those of two layers at a time; see
// Rematerialize.
//
// # From a graph to memory
//
// A program has three forms. Raw: steps in the order of the graph, any views, all on the Compute
// stream. Packed: views meet the requirements of operations, collectives may be on the Comm stream,
// and gradients of weights on Side; Pack makes this form, and so does Optimize, which makes the
// program fast as well. Planned: Arena values have their bytes. Each form runs and gives the same
// results, which package oracle defines; tests compare the forms on random programs. Validate
// checks any of them. Fields of the program enable passes for GPUs: Rows, Again, Aside, Narrow.
//
// Values are memory, not variables: a step may write a parameter in place, or a part of a value. A
// pass may move or repeat a step only past steps that do not write its inputs; see flow. Passes
// remove values in the arena that one step makes, whole, and that are not needed after the run.
//
// Outside values are bound to memory that does not overlap, unless no step writes it.
package program
