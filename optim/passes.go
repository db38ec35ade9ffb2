package optim

// vectorLen is how many of the first n elements of a pass over float32 are for assembly: all but
// the last few, or none.
func vectorLen(n int) int {
	if !hasPasses {
		return 0
	}
	return n &^ 7
}
