package optim

// vectorLen returns how many of the first n elements of a float32 pass run in assembly: all except
// the last few, or none.
func vectorLen(n int) int {
	if !hasPasses {
		return 0
	}
	return n &^ 7
}
