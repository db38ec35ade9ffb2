// Package program has the compiler's intermediate representation: a graph is compiled to values and
// to steps over views of them. A program is data. It depends neither on the graph nor on the device
// that runs it. The front half (internal/compile/lower) makes it, Optimize and Plan rewrite it, and
// the back halves (internal/compile/hostexec, internal/compile/cudaexec) run it.
//
// # Kinds of steps
//
// Rearranging a tensor is a View and costs nothing: reshape, transpose, slice, repeat. Element-wise
// work is a Map of any number of scalar operations. Fusion joins Maps, or Maps with the Reduce that
// follows. A matrix product takes transposed operands as views. Operations with fast code of their
// own, such as convolutions and attention, are separate kinds: see op.go.
//
// AllGather steps with Fetch gather sharded parameters. Where two uses are far apart they are
// gathered again, so that a rank holds the weights of two layers at a time: see Rematerialize.
//
// # From a graph to memory
//
// A program has three forms:
//
//   - Raw: steps in the order of the graph, any views, all steps on the Compute stream.
//   - Packed: views are those that operations demand. Collectives may be on the Comm stream,
//     gradients of weights on Side. Pack makes this form; so does Optimize, which also makes the
//     program fast.
//   - Planned: Arena values have offsets.
//
// Each form runs, with the same results. Package oracle defines them, and tests compare the forms
// on random programs. Validate checks any form. The flags Rows, Again, Aside and Narrow of Program
// request passes that suit GPUs only.
//
// Values are memory, not variables: a step may update a parameter in place, or write a part of a
// value. So a pass may move or repeat a step only past steps that do not write its inputs; flow
// answers such questions. Passes remove only Temp values in the arena that one step writes whole.
//
// Outside values are bound to memory that does not overlap, unless no step writes it.
package program
