package nccl

import (
	"errors"
	"unsafe"

	"github.com/symgrad/symgrad/dist"
)

// redOpSlots is the number of premulsums that a communicator caches. A training step repeats one or
// two scalars.
const redOpSlots = 16

// redOpKey identifies a premulsum operator of NCCL.
type redOpKey struct {
	used   bool
	dtype  int32
	inMem  bool   // the scalar is read from memory when the collective runs
	scalar uint64 // its bits, in the low bytes, or its address
}

// redOpCache has a communicator's premulsums; a new one replaces the oldest. NCCL copies its data
// when a collective is queued, so a replaced one may still be running.
type redOpCache struct {
	keys [redOpSlots]redOpKey
	ops  [redOpSlots]int32
	next int
}

// premulsum returns the ncclRedOp_t of c for a scalar in a collective's dtype.
func (r *redOpCache) premulsum(c *Comm, s *dist.Scalar, dtype int32) (int32, error) {
	key := redOpKey{used: true, dtype: dtype, scalar: s.Bits}
	if !s.At.IsZero() {
		key.inMem, key.scalar = true, uint64(uintptr(s.At.Pointer()))
	}
	for i := range r.keys {
		if r.keys[i] == key {
			return r.ops[i], nil
		}
	}
	i := r.next
	if err := r.dropOne(&c.calls, i); err != nil {
		return 0, err
	}
	if err := makeRedOp(c, key); err != nil {
		return 0, err
	}
	r.keys[i], r.ops[i] = key, c.mem.redOp
	r.next = (i + 1) % redOpSlots
	return r.ops[i], nil
}

// makeRedOp stores a new operator of c in mem.redOp.
func makeRedOp(c *Comm, key redOpKey) error {
	a := &c.args
	a[0], a[2], a[4] = uintptr(unsafe.Pointer(&c.mem.redOp)), uintptr(key.dtype), c.handle
	if key.inMem {
		a[1], a[3] = uintptr(key.scalar), scalarDevice
	} else {
		c.mem.scalar = key.scalar // little-endian: the low bytes come first, for any size
		a[1], a[3] = uintptr(unsafe.Pointer(&c.mem.scalar)), scalarHost
	}
	return c.queue(&c.lib.t.premulsum, "ncclRedOpCreatePreMulSum", 5)
}

func (r *redOpCache) dropOne(c *calls, i int) error {
	if !r.keys[i].used {
		return nil
	}
	r.keys[i] = redOpKey{}
	c.args[0], c.args[1] = uintptr(r.ops[i]), c.handle
	return c.queue(&c.lib.t.dropRedOp, "ncclRedOpDestroy", 2)
}

// drop frees all operators.
func (r *redOpCache) drop(c *calls) error {
	var errs []error
	for i := range r.keys {
		errs = append(errs, r.dropOne(c, i))
	}
	return errors.Join(errs...)
}
