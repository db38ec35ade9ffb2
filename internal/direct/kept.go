package direct

import (
	"errors"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/cuda"
	"github.com/symgrad/symgrad/tensor"
)

// keptSince is the driver from which on launches are kept: it takes half the host's time for one.
// Older ones were not measured.
const keptSince = 13000

// mostKept is the bytes of the largest operation that is kept, those of all ranks where it gathers
// or scatters. Larger ones take longer than their launches, so that the host's time for these
// counts for little, and other launches can begin early.
const mostKept = 2 << 20

// keptPlaces is how many operations a group keeps at most, and keptTries in how many places one
// looks for its own. One that has not come for keptAge operations of the group gives up its place
// to another one, and one that has come once only, for onceAge.
const (
	keptPlaces = 512
	keptTries  = 16
	keptAge    = 8 * onceAge
	onceAge    = 8 * keptPlaces
)

// kept is the launches of operations of a group that came again: a program that repeats its steps
// repeats their operations, in the same buffers. One that finds no place is launched as before.
// What launches are kept in is made with the group, since to make it may wait for what runs, which
// may wait for a peer, and that for this rank.
type kept struct {
	places [keptPlaces]keptLaunch
	clock  uint64 // operations that can be kept
}

// keptLaunch is a place, and the one launch that its operation is.
type keptLaunch struct {
	key    keptKey
	used   uint64     // the clock when it came last; 0 in a place that no operation has
	exec   *cuda.Kept // nil where the driver lacked memory: no operation has the place
	again  bool       // it came again, and exec is its launch
	failed bool       // the driver could not keep it
}

// keptKey is all of an operation that its launch depends on, besides what its group has for good.
// Where slabs lie, and the shape of launches, the group has until slabs are registered or
// unregistered, or a shape is forced: all is forgotten then.
type keptKey struct {
	src, dst  uintptr
	count     int
	scalar    uint64
	scalarAt  uintptr
	root      int
	way       engineKind
	kind      dist.Kind
	red       dist.RedKind
	dtype     tensor.DType
	symmetric bool
}

// keyOf is the key of op, which goes the way w.
func keyOf(w engineKind, op *dist.Op) keptKey {
	key := keptKey{
		src: uintptr(op.Src.Pointer()), dst: uintptr(op.Dst.Pointer()), count: op.Count, root: op.Root,
		way: w, kind: op.Kind, dtype: op.DType(), symmetric: op.Symmetric,
	}
	if op.Kind.Reduces() {
		key.red, key.scalar, key.scalarAt = op.Red.Kind, op.Red.Scalar.Bits, uintptr(op.Red.Scalar.At.Pointer())
	}
	return key
}

// open makes what launches are kept in, of f, one of the kernels of v, and launches each once,
// without work, so that the driver has all that it needs for them. Where it lacks memory there are
// fewer.
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

// launch launches what is kept of the operation of key, whose launch is f with args, from the
// second time on that it comes, and reports whether it did. What cannot be kept is not tried again
// as long as it has its place.
//
// Errors: the driver's, where the device is lost.
func (k *kept) launch(key *keptKey, f *cuda.Function, shape cuda.Launch, args *cuda.Args, s *cuda.Stream) (bool, error) {
	at := k.find(key)
	if at == nil || at.failed {
		return false, nil
	}
	if !at.again {
		at.again = true
		if err := at.exec.Set(f, shape, args); err != nil {
			return at.fail(err)
		}
	}
	if err := at.exec.Launch(s); err != nil {
		return at.fail(err)
	}
	return true, nil
}

// of is the launch that is kept of the operation of key; nil for none.
func (k *kept) of(key *keptKey) *cuda.Kept {
	at, _ := k.look(key)
	if at == nil || !at.again || at.failed {
		return nil
	}
	k.clock++
	at.used = k.clock
	return at.exec
}

// fail notes that the driver could not keep a launch. Errors: err, where the device is lost.
func (at *keptLaunch) fail(err error) (bool, error) {
	at.failed = true
	if harmless(err) {
		return false, nil
	}
	return false, err
}

// find is the place of an operation that has come before; nil the first time, when it is noted, if
// there is a place.
func (k *kept) find(key *keptKey) *keptLaunch {
	k.clock++
	at, free := k.look(key)
	if at != nil {
		at.used = k.clock
	} else if free != nil {
		*free = keptLaunch{key: *key, used: k.clock, exec: free.exec}
	}
	return at
}

// look is the place of an operation that has come before, or one that is there for it: the oldest,
// and before all one that nobody has had.
func (k *kept) look(key *keptKey) (its, free *keptLaunch) {
	d := key.digest()
	for i := range uint64(keptTries) {
		at := &k.places[(d>>32+i*(d>>48|1))%keptPlaces] // double hashing
		switch {
		case at.exec == nil:
		case at.used == 0: // no place behind it has the operation, which would have it
			return nil, at
		case at.key == *key:
			return at, nil
		case k.old(at) && (free == nil || at.used < free.used):
			free = at
		}
	}
	return nil, free
}

// old reports whether a place that an operation has is there for another one. A step's operations
// that are too many for all places leave each other theirs, so that most places are of use; what
// comes at the beginning of a program only gives them up.
func (k *kept) old(at *keptLaunch) bool {
	age := uint64(onceAge)
	if at.again {
		age = keptAge
	}
	return k.clock-at.used > age
}

// digest is a hash of an operation.
func (key *keptKey) digest() uint64 {
	kinds := uint64(key.way)<<32 | uint64(key.kind)<<24 | uint64(key.red)<<16 | uint64(key.dtype)<<8 | uint64(key.root)
	h := uint64(0)
	for _, w := range [...]uint64{uint64(key.src), uint64(key.dst), uint64(key.count), key.scalar + uint64(key.scalarAt), kinds} {
		h = (h ^ w) * 0x9e3779b97f4a7c15 // Fibonacci hashing
		h ^= h >> 32
	}
	return h
}

// forget gives up all operations.
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
