// Package oracle defines the meaning of a program: each operation in plain loops, in float64,
// rounded to the value's type when it is stored. It is slow; its purpose is that a reader can see
// that it is right. Passes and back halves are compared with it.
//
// Registers of Map and Reduce are rounded to f32 after each operation where the program computes in
// f32, so that joining steps does not change a bit. Sums are taken in float64 and rounded once; a
// back half that sums in f32 differs by the rounding errors of its sum.
package oracle
