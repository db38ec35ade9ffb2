package direct

import (
	"errors"

	"github.com/symgrad/symgrad/internal/cuda"
)

// keptSince is the driver from which on launches are kept: it takes half the host's time for one (bench/results/kept-2026-11-25.txt). Older
// ones were not measured.
const keptSince = 13000

// keptPlaces is how many launches a group keeps at most, and keptTries in how many places one looks for its own. None is given up for
// another one, since to free it might wait for what runs: Forget frees all, when nothing is queued.
const (
	keptPlaces = 512
	keptTries  = 16
)

// kept is the launches of a group that came again: a program that repeats its steps repeats their operations, in the same buffers. One that
// finds no place is launched as before.
type kept struct {
	places [keptPlaces]keptLaunch
}

type keptLaunch struct {
	digest uint64 // of words and shape
	kernel *cuda.Function
	words  [arguments]uint64
	shape  cuda.Launch
	exec   *cuda.GraphExec // nil as long as the launch came once
	never  bool            // the driver could not keep it
}

// launch launches what is kept of a launch, from the second time on that it comes, and reports whether it did. args are the words. What
// cannot be kept, for want of memory, is never tried again.
//
// Errors: the driver's, where the device is lost.
func (k *kept) launch(f *cuda.Function, words *[arguments]uint64, shape cuda.Launch, args *cuda.Args, s *cuda.Stream) (bool, error) {
	at := k.find(f, words, shape)
	if at == nil || at.never {
		return false, nil
	}
	var err error
	if at.exec == nil {
		at.exec, err = f.Keep(shape, args)
	}
	if err == nil {
		err = at.exec.Launch(s)
	}
	if err == nil {
		return true, nil
	}
	at.never = true
	var e *cuda.Error
	if errors.As(err, &e) && !e.Fatal() {
		return false, nil
	}
	return false, err
}

// find is the place of a launch that has come before; nil the first time, when it is noted, if there is a place.
func (k *kept) find(f *cuda.Function, words *[arguments]uint64, shape cuda.Launch) *keptLaunch {
	d := digest(words, shape)
	var free *keptLaunch
	for i := range uint64(keptTries) {
		at := &k.places[(d>>32+i*(d>>48|1))%keptPlaces] // double hashing
		if at.digest == d && at.kernel == f && at.shape == shape && at.words == *words {
			return at
		}
		if at.exec == nil && (free == nil || free.kernel != nil && at.kernel == nil) { // one that nobody has noted before one that came once
			free = at
		}
	}
	if free != nil {
		*free = keptLaunch{digest: d, kernel: f, words: *words, shape: shape}
	}
	return nil
}

// digest is a hash of a launch, but for its kernel.
func digest(words *[arguments]uint64, shape cuda.Launch) uint64 {
	h := uint64(shape.Grid[0])<<32 | uint64(shape.Block[0])
	for _, w := range words {
		h = (h ^ w) * 0x9e3779b97f4a7c15 // Fibonacci hashing
		h ^= h >> 32
	}
	return h
}

// close frees what is kept.
func (k *kept) close() error {
	var errs []error
	for i := range k.places {
		if x := k.places[i].exec; x != nil {
			errs = append(errs, x.Close())
		}
	}
	*k = kept{}
	return errors.Join(errs...)
}
