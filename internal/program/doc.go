// Package program is what a graph is compiled to: values, and steps over views of them. A program is data. It knows
// neither the graph that it comes from nor the device that runs it: the front half (package machine) makes it, Optimize
// and Plan work on it, and back halves (internal/hostexec, internal/cudaexec) run it.
//
// # Few kinds of steps
//
// Whatever only rearranges a tensor is a View and costs nothing: reshape, transpose, slice, repeat. Whatever works element
// by element is a Map, with any number of scalar operations in it; fusion is the joining of Maps, and of a Map with the
// Reduce behind it. A matrix product takes transposed operands as views. The rest are kinds of their own, because fast code
// for them looks different.
package program
