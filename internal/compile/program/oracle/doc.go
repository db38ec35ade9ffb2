// Package oracle defines the results of programs: each operation is plain loops in float64, rounded
// to the value's dtype when stored. It is slow, so that a reader can verify it. Tests compare
// passes and back halves with it.
//
// Registers of Map and Reduce are rounded to f32 after each operation if the program computes in
// f32, so fusion does not change a bit. Sums are accumulated in float64 and rounded once; a back
// half that sums in f32 differs by rounding errors.
package oracle
