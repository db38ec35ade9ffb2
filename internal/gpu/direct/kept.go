package direct

import (
	"errors"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
	"github.com/symgrad/symgrad/tensor"
)

// keptSince is the first CUDA version of the driver with cached launches, which halve the host's
// time. Older ones were not measured.
const keptSince = 13000

// mostKept is the bytes of the largest operation with a cached launch, those of all ranks if it
// gathers or scatters. Larger ones take longer than their launches, so the host's time matters
// little, and other launches can begin early.
const mostKept = 2 << 20

// keptPlaces is the size of the launch cache, and keptTries the number of places that an operation
// may have. An operation loses its place if it has not come for keptAge operations of the group, or
// for onceAge if it came only once.
const (
	keptPlaces = 512
	keptTries  = 16
	keptAge    = 8 * onceAge
	onceAge    = 8 * keptPlaces
)

// kept is the cache of launches of a group's repeated operations: programs repeat the operations of
// a step in the same buffers. An operation without a place is launched normally. The graphs are
// created with the group: creation may wait for running work, which may wait for a peer, which may
// wait for this rank.
type kept struct {
	on     bool // the driver can
	places [keptPlaces]keptLaunch
	clock  uint64 // counts operations that can be cached
}

// keptLaunch is a place of the cache, and the launch of its operation.
type keptLaunch struct {
	key    keptKey
	used   uint64     // the clock at its last use; 0 in an empty place
	exec   *cuda.Kept // nil if the driver lacked memory: the place is unusable
	again  bool       // it has repeated, and exec is its launch
	failed bool       // the driver could not set its launch
}

// keptKey has all properties of an operation that its launch depends on. Locations of slabs and
// forced shapes are not among them: changing these empties the cache.
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

// keyOf returns the key of op by engine w.
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

// open creates the graphs of the launches, from f, any kernel of v. It launches each once without
// work, so that the driver allocates all it needs. If the driver lacks memory there are fewer.
//
// Errors: the driver's, if the device is lost.
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

// harmless reports whether err is an error of the driver that leaves the device usable.
func harmless(err error) bool {
	var e *cuda.Error
	return errors.As(err, &e) && !e.Fatal()
}

// launch launches the operation of key, f with args, through the cache from the second time on, and
// reports whether it did. An operation that failed is not tried again while it has its place.
//
// Errors: the driver's, if the device is lost.
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

// of returns the cached launch of the operation of key, or nil.
func (k *kept) of(key *keptKey) *cuda.Kept {
	at, _ := k.look(key)
	if at == nil || !at.again || at.failed {
		return nil
	}
	k.clock++
	at.used = k.clock
	return at.exec
}

// fail records that the driver could not set a launch. Errors: err, if the device is lost.
func (at *keptLaunch) fail(err error) (bool, error) {
	at.failed = true
	if harmless(err) {
		return false, nil
	}
	return false, err
}

// find returns the place of an operation that has come before. The first time it returns nil, and
// reserves a place if one is free.
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

// look returns the place of the operation of key, or else one that it may take: an empty one first,
// then the oldest.
func (k *kept) look(key *keptKey) (its, free *keptLaunch) {
	d := key.digest()
	for i := range uint64(keptTries) {
		at := &k.places[(d>>32+i*(d>>48|1))%keptPlaces] // double hashing
		switch {
		case at.exec == nil:
		case at.used == 0: // the search for an operation stops at the first empty place
			return nil, at
		case at.key == *key:
			return at, nil
		case k.old(at) && (free == nil || at.used < free.used):
			free = at
		}
	}
	return nil, free
}

// old reports whether another operation may take the place at. If a step has too many operations
// for all places, they keep each other's places, so that most hits survive. Operations from the
// beginning of a program lose theirs.
func (k *kept) old(at *keptLaunch) bool {
	age := uint64(onceAge)
	if at.again {
		age = keptAge
	}
	return k.clock-at.used > age
}

// digest returns a hash of an operation.
func (key *keptKey) digest() uint64 {
	kinds := uint64(key.way)<<32 | uint64(key.kind)<<24 | uint64(key.red)<<16 | uint64(key.dtype)<<8 | uint64(key.root)
	h := uint64(0)
	for _, w := range [...]uint64{uint64(key.src), uint64(key.dst), uint64(key.count), key.scalar + uint64(key.scalarAt), kinds} {
		h = (h ^ w) * 0x9e3779b97f4a7c15 // Fibonacci hashing
		h ^= h >> 32
	}
	return h
}

// forget empties the cache.
func (k *kept) forget() {
	for i := range k.places {
		k.places[i] = keptLaunch{exec: k.places[i].exec}
	}
}

// close frees all graphs.
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
