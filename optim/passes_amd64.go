package optim

import "golang.org/x/sys/cpu"

// hasPasses reports whether this machine can run the passes below.
var hasPasses = cpu.X86.HasAVX2

//go:noescape
func sgdF32(t *sgdTerms[float32], weight, grad *float32, n int)

//go:noescape
func momentumF32(t *momentumTerms[float32], weight, grad, buffer *float32, n int)

//go:noescape
func lionF32(t *lionTerms[float32], weight, grad, mean *float32, n int)

//go:noescape
func adamF32(t *adamTerms[float32], weight, grad, mean, square *float32, n int)

//go:noescape
func amsgradF32(t *adamTerms[float32], weight, grad, mean, square, largest *float32, n int)

//go:noescape
func lambF32(t *lambTerms[float32], rate float32, weight, grad, mean, square *float32, n int)

//go:noescape
func lambDirectionsF32(t *lambTerms[float32], to, weight, grad, mean, square *float32, n int)

//go:noescape
func averageF32(add float32, average, weight *float32, n int)

//go:noescape
func clampF32(scale, bound float32, to, grad *float32, n int)

//go:noescape
func squaresF32(sums *[4]float64, x *float32, n int)
