package program

// Optimize rewrites a program into a faster one with the same results, that fetches parameters when
// it needs them, packs it and puts its steps on streams. Plan comes next. It works in place; on an
// error the program is not fit for use.
//
// Results keep their bits in f32 and f64, but where a convolution or a cross-entropy is recognised,
// where products are added to each other or Narrow, which attention is a part of, and for f16 and
// bf16, which are not rounded between joined steps. Errors: ErrInvalid.
func Optimize(p *Program) error {
	if err := Rematerialize(p); err != nil { // first: see there
		return err
	}
	cleaned(p)
	for _, recognise := range []func(*Program) bool{convolutions, entropy, attention, fuseAccumulate, demoteToBF16} {
		if recognise(p) {
			cleaned(p)
		}
	}
	for fuse(p) {
		cleaned(p)
	}
	collapseDims(p)
	for fuseSiblings(p) {
		cleaned(p)
		collapseDims(p)
	}
	recomputeSoftmax(p) // after eliminateCommon, which would undo it
	if err := Pack(p); err != nil {
		return err
	}
	schedule(p)
	return nil
}

// cleaned runs the passes that only take away, until none finds anything.
func cleaned(p *Program) {
	for again := true; again; {
		again = removeDead(p)
		again = simplify(p) || again
		again = eliminateCommon(p) || again
	}
}
