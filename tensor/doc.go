// Package tensor holds the typed memory that everything else passes around: a DType, a Device, a
// Buffer (pointer, length, dtype, device) and gorgonia tensors whose backing lies in a region of
// the symmetric heap. It does no communication and imports nothing of this project.
//
// A Buffer is a value of a few words; it owns nothing. Whoever made the memory keeps it alive: a Go
// slice by the pointer inside the Buffer, a region of the symmetric heap by its heap.
//
// Gorgonia's own tensor package is imported as gtensor throughout the project.
package tensor
