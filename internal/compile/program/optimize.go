package program

// Optimize rewrites a program into a faster one with the same results. It gathers sharded
// parameters when needed, packs operands and assigns streams. Call Plan next. It works in place;
// after an error the program is invalid.
//
// Results in f32 and f64 keep their bits, except for recognised convolutions and cross-entropies,
// for fused sums of products, and for Narrow, which includes attention. Elements of f16 and bf16
// are not rounded between fused steps. Errors: ErrInvalid.
func Optimize(p *Program) error {
	fetched, err := rematerialize(p) // before other passes: see Rematerialize
	if err != nil {
		return err
	}
	cleaned(p)
	for _, recognise := range []func(*Program) bool{convolutions, entropy, attention, fuseAccumulate, demote} {
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
	if err := recomputeActivations(p, fetched); err != nil {
		return err
	}
	if err := Pack(p); err != nil {
		return err
	}
	schedule(p)
	return nil
}

// cleaned runs the passes that only remove, until none changes the program.
func cleaned(p *Program) {
	for again := true; again; {
		again = removeDead(p)
		again = simplify(p) || again
		again = eliminateCommon(p) || again
	}
}
