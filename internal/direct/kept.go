package direct

import (
	"errors"

	"github.com/symgrad/symgrad/internal/cuda"
)

// keptSince is the driver from which on launches are kept: it takes half the host's time for one (bench/results/kept-2026-11-25.txt). Older
// ones were not measured.
const keptSince = 13000

// keptPlaces is how many launches a group keeps at most, and keptTries in how many places one looks for its own. One that has not come for
// keptAge launches of the group gives up its place to another one, and one that has come once only, for onceAge.
const (
	keptPlaces = 512
	keptTries  = 16
	keptAge    = 8 * onceAge
	onceAge    = 8 * keptPlaces
)

// kept is the launches of a group that came again: a program that repeats its steps repeats their operations, in the same buffers. One that
// finds no place is launched as before. What launches are kept in is made with the group, since to make it may wait for what runs, which may
// wait for a peer, and that for this rank.
type kept struct {
	places [keptPlaces]keptLaunch
	clock  uint64 // launches
}

type keptLaunch struct {
	digest uint64         // of words and shape
	kernel *cuda.Function // nil in a place that no launch has
	words  [arguments]uint64
	shape  cuda.Launch
	used   uint64     // the clock when it came last
	exec   *cuda.Kept // nil where the driver lacked memory: no launch has the place
	again  bool       // it came again, and exec is this launch
	failed bool       // the driver could not keep it
}

// open makes what launches are kept in, of f, one of the kernels of v, and launches each once, without work, so that the driver has all that
// it needs for them. Where it lacks memory there are fewer.
//
// Errors: the driver's, where the device is lost.
func (k *kept) open(v *cuda.Device, f *cuda.Function) error {
	return idly(v, func(s *cuda.Stream, nothing *cuda.Args) error {
		for i := range k.places {
			x, err := f.Keep(cuda.Launch{}, nothing)
			if err == nil {
				if err = x.Launch(s); err != nil {
					err = errors.Join(err, x.Close())
				}
			}
			if harmless(err) {
				return nil
			}
			if err != nil {
				return err
			}
			k.places[i].exec = x
		}
		return nil
	})
}

// harmless reports whether err is one of the driver's that leaves the device usable.
func harmless(err error) bool {
	var e *cuda.Error
	return errors.As(err, &e) && !e.Fatal()
}

// launch launches what is kept of a launch, from the second time on that it comes, and reports whether it did. args are the words. What
// cannot be kept is not tried again as long as it has its place.
//
// Errors: the driver's, where the device is lost.
func (k *kept) launch(f *cuda.Function, words *[arguments]uint64, shape cuda.Launch, args *cuda.Args, s *cuda.Stream) (bool, error) {
	at := k.find(f, words, shape)
	if at == nil || at.failed {
		return false, nil
	}
	var err error
	if !at.again {
		at.again = true
		err = at.exec.Set(f, shape, args)
	}
	if err == nil {
		err = at.exec.Launch(s)
	}
	if err == nil {
		return true, nil
	}
	at.failed = true
	if harmless(err) {
		return false, nil
	}
	return false, err
}

// find is the place of a launch that has come before; nil the first time, when it is noted, if there is a place.
func (k *kept) find(f *cuda.Function, words *[arguments]uint64, shape cuda.Launch) *keptLaunch {
	k.clock++
	d := digest(words, shape)
	var free *keptLaunch
	for i := range uint64(keptTries) {
		at := &k.places[(d>>32+i*(d>>48|1))%keptPlaces] // double hashing
		if at.digest == d && at.kernel == f && at.shape == shape && at.words == *words {
			at.used = k.clock
			return at
		}
		if at.exec != nil && k.free(at) && (free == nil || at.used < free.used) { // the oldest, and before all one that nobody has had
			free = at
		}
	}
	if free != nil {
		*free = keptLaunch{digest: d, kernel: f, words: *words, shape: shape, used: k.clock, exec: free.exec}
	}
	return nil
}

// free reports whether a place is there for another launch. A step's launches that are too many for all places leave each other theirs, so
// that most places are of use; what comes at the beginning of a program only gives them up.
func (k *kept) free(at *keptLaunch) bool {
	age := uint64(onceAge)
	if at.again {
		age = keptAge
	}
	return at.kernel == nil || k.clock-at.used > age
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

// forget gives up all launches.
func (k *kept) forget() {
	for i := range k.places {
		k.places[i] = keptLaunch{exec: k.places[i].exec}
	}
}

// close frees all.
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
