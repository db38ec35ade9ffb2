//go:build !amd64

package optim

// hasPasses is false: all passes are plain Go.
const hasPasses = false

func sgdF32(*sgdTerms[float32], *float32, *float32, int) {}

func momentumF32(*momentumTerms[float32], *float32, *float32, *float32, int) {}

func lionF32(*lionTerms[float32], *float32, *float32, *float32, int) {}

func adamF32(*adamTerms[float32], *float32, *float32, *float32, *float32, int) {}

func amsgradF32(*adamTerms[float32], *float32, *float32, *float32, *float32, *float32, int) {}

func lambF32(*lambTerms[float32], float32, *float32, *float32, *float32, *float32, int) {}

func lambDirectionsF32(*lambTerms[float32], *float32, *float32, *float32, *float32, *float32, int) {}

func averageF32(float32, *float32, *float32, int)        {}
func clampF32(float32, float32, *float32, *float32, int) {}
func squaresF32(*[4]float64, *float32, int)              {}
