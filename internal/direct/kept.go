package direct

import (
	"errors"

	"github.com/symgrad/symgrad/internal/cuda"
)

// keptSince is the driver from which on launches are kept: it takes half the host's time for one (bench/results/kept-2026-11-25.txt). Older
// ones were not measured.
const keptSince = 13000

// keptMost is how many launches a group keeps. None is given up for another one, since to free it might wait for what runs.
const keptMost = 256

// kept is the launches of a group that came again: a program that repeats its steps repeats their operations, in the same buffers. Where
// one has no place, because it was taken, it is launched as before.
type kept struct {
	places [keptMost]keptLaunch
}

type keptLaunch struct {
	kernel *cuda.Function
	words  [arguments]uint64
	shape  cuda.Launch
	exec   *cuda.GraphExec // nil as long as the launch came once
}

// find is the launch, kept, when it comes for the second time and later; else nil. args are the words.
//
// Errors: the driver's.
func (k *kept) find(f *cuda.Function, words *[arguments]uint64, shape cuda.Launch, args *cuda.Args) (*cuda.GraphExec, error) {
	at := &k.places[place8(words, shape)]
	if at.kernel == f && at.shape == shape && at.words == *words {
		if at.exec == nil {
			var err error
			if at.exec, err = f.Keep(shape, args); err != nil {
				return nil, err
			}
		}
		return at.exec, nil
	}
	if at.exec == nil {
		*at = keptLaunch{kernel: f, words: *words, shape: shape}
	}
	return nil, nil //nolint:nilnil // not kept is no error
}

// place8 is where a launch is kept. Fibonacci hashing, of all words.
func place8(words *[arguments]uint64, shape cuda.Launch) uint8 {
	h := uint64(shape.Grid[0])<<32 | uint64(shape.Block[0])
	for _, w := range words {
		h = (h ^ w) * 0x9e3779b97f4a7c15
		h ^= h >> 32
	}
	return uint8(h >> 56)
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
