// Package program is what a graph is compiled to: values, and steps over views of them. A program
// is data. It knows neither the graph that it comes from nor the device that runs it: the front
// half (package machine) makes it, Optimize and Plan work on it, and back halves
// (internal/hostexec, internal/cudaexec) run it.
//
// # Few kinds of steps
//
// Whatever only rearranges a tensor is a View and costs nothing: reshape, transpose, slice, repeat.
// Whatever works element by element is a Map, with any number of scalar operations in it; fusion is
// the joining of Maps, and of a Map with the Reduce behind it. A matrix product takes transposed
// operands as views. The rest are kinds of their own, because fast code for them looks different.
//
// Parameters of which each rank has a part are gathered by steps, fetches, and gathered again where
// the gap between two uses is long, so that a step of training holds those of two layers at a time;
// see Rematerialize.
//
// # From a graph to memory
//
// A program comes in three forms. Raw: steps in the order of the graph, any views, everything on
// the Compute stream. Packed: views are what operations demand, collectives may be on the Comm
// stream, and gradients of weights on Side; Pack makes it so, and Optimize does, which makes the
// program fast as well. Planned: Arena values have their bytes. Each form runs and gives the same
// results; package oracle says which, and tests compare the forms with each other on random
// programs. Validate checks any of them. What Optimize and Plan do for GPUs alone a program asks
// for: Rows, Again, Aside, Narrow.
//
// Values are memory and no variables: a step may write a parameter where it is, or a part of a
// value. A pass may move or repeat a step only past steps that do not write what it reads; see
// flow. What passes do away with is values in the arena that one step makes, whole, for nobody
// after the run.
//
// Outside values are bound to memory that does not overlap, unless no step writes it.
package program
