// Package tensor has the typed memory that all other packages use: DType, Device, Buffer (pointer,
// length, dtype, device), and Tensor, a gorgonia tensor in a region of the symmetric heap. It does
// no communication and imports no package of this project.
//
//   - buffer.go, device.go, dtype.go: Buffer, Device, DType
//   - dense.go: Tensor, and Buffers over gorgonia's tensors
//   - half.go, convert.go: Float16, BFloat16 and conversions
//
// A Buffer is a value of three words; it owns nothing. Memory of a Go slice is kept alive by the
// pointer inside the Buffer, a region of the symmetric heap by its heap.
//
// Gorgonia's own tensor package is imported as gtensor throughout the project.
package tensor
