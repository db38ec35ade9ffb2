package gpu

import (
	"fmt"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

// encodeEntry writes c without the round, which announce stores last. An announcement has eight
// words: round; count; root, kind, reduction, dtype and flags; source; destination; alignment.
func encodeEntry(e *[entryBytes / 8]uint64, c *opEntry) {
	s := &c.sig
	w := uint64(uint32(s.Root)) | uint64(s.Kind)<<32 | uint64(s.Red)<<40 | uint64(s.DType)<<48
	if c.symmetric {
		w |= 1 << 56
	}
	if c.beside {
		w |= 1 << 57
	}
	if c.along {
		w |= 1 << 58
	}
	e[1], e[2], e[3], e[4], e[5] = uint64(s.Count), w, c.src, c.dst, uint64(c.extra)
}

func decodeEntry(e *[entryBytes / 8]uint64) opEntry {
	w := e[2]
	return opEntry{
		sig: dist.Signature{
			Count: int64(e[1]), Root: int32(uint32(w)),
			Kind: dist.Kind(w >> 32), Red: dist.RedKind(w >> 40), DType: tensor.DType(w >> 48),
		},
		symmetric: w>>56&1 != 0, beside: w>>57&1 != 0, along: w>>58&1 != 0, src: e[3], dst: e[4], extra: int64(e[5]),
	}
}

// sameEntries reports whether two announcements are of one operation. The location of an unused
// buffer is 0 and equals any other.
func sameEntries(a, b *[entryBytes / 8]uint64) bool {
	return a[1] == b[1] && a[2] == b[2] && a[5] == b[5] && samePlace(a[3], b[3]) && samePlace(a[4], b[4])
}

func samePlace(a, b uint64) bool { return a == b || a == 0 || b == 0 }

// difference describes the first field in which x of rank q and y of rank r differ.
func difference(q int, x *opEntry, r int, y *opEntry) string {
	lo, hi, a, b := q, r, x, y
	if r < q {
		lo, hi, a, b = r, q, y, x
	}
	switch {
	case a.sig != b.sig:
		return dist.Differ(lo, a.sig, hi, b.sig).Error()
	case a.extra != b.extra:
		return fmt.Sprintf("%v on the alignment: rank %d wants %d, rank %d wants %d", dist.ErrMismatch, lo, a.extra, hi, b.extra)
	case a.symmetric != b.symmetric:
		return fmt.Sprintf("%v on the promise of %v to be symmetric: rank %d gives %v, rank %d gives %v", dist.ErrMismatch,
			a.sig.Kind, lo, a.symmetric, hi, b.symmetric)
	case a.beside != b.beside:
		return fmt.Sprintf("%v on whether %v runs during other work: rank %d says %v, rank %d says %v", dist.ErrMismatch,
			a.sig.Kind, lo, a.beside, hi, b.beside)
	case a.along != b.along:
		return fmt.Sprintf("%v on whether %v continues the previous operation: rank %d says %v, rank %d says %v", dist.ErrMismatch,
			a.sig.Kind, lo, a.along, hi, b.along)
	case !samePlace(a.src, b.src):
		return fmt.Sprintf("%v on the place of the source of a symmetric %v: rank %d has it %s, rank %d %s", dist.ErrMismatch,
			a.sig.Kind, lo, placeText(a.src), hi, placeText(b.src))
	}
	return fmt.Sprintf("%v on the place of the destination of a symmetric %v: rank %d has it %s, rank %d %s", dist.ErrMismatch,
		a.sig.Kind, lo, placeText(a.dst), hi, placeText(b.dst))
}

func placeText(place uint64) string {
	switch place {
	case 0:
		return "nowhere"
	case placePrivate:
		return "in no symmetric heap"
	}
	return fmt.Sprintf("at offset %d of heap %d", place&(1<<placeSlabBits-1), place>>placeSlabBits)
}
