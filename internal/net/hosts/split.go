package hosts

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/symgrad/symgrad/dist"
)

// textBytes is the most bytes of an error that ranks report to each other.
const textBytes = 256

// Split implements dist.Transport.
func (t *Transport) Split(color, key int) (dist.Transport, error) {
	var sub subgroup
	err := t.exclusive(dist.KindSplit, func() (err error) {
		sub, err = t.split(color, key)
		return err
	})
	if err != nil || sub == nil {
		return nil, err
	}
	return sub, nil
}

// subgroup is the transport of a group that a Split makes.
type subgroup interface {
	dist.Transport
	enlist()        // makes the process report deaths and messages to it
	discard() error // frees it before it is enlisted
}

// enlist implements subgroup.
func (t *Transport) enlist() { t.p.add(t) }

// discard implements subgroup.
func (t *Transport) discard() error { return errors.Join(t.board.close(), t.inner.Close()) }

func (t *Transport) split(color, key int) (subgroup, error) {
	own := header{sig: dist.Signature{Kind: dist.KindSplit, Root: -1}, a: int64(color), b: int64(key), c: int64(t.p.free(0))}
	if err := t.meet(&exchange{own: own}); err != nil {
		return nil, err
	}
	keys := make([]int64, len(t.ranks))
	var members []int // ranks of this group
	id := own.c
	for r := range t.ranks {
		var h header
		h.get(t.board.header(t.round, r))
		id = max(id, h.c)
		if keys[r] = h.b; color >= 0 && h.a == int64(color) {
			members = append(members, r)
		}
	}
	t.p.free(uint32(id) + 1)
	slices.SortStableFunc(members, func(x, y int) int { return cmp.Compare(keys[x], keys[y]) })
	sub, err := t.newPart(uint32(id), color, key, members)
	if err = t.agree(err); err != nil {
		if sub != nil {
			err = errors.Join(err, sub.discard())
		}
		return nil, err
	}
	if sub == nil {
		return nil, nil
	}
	sub.enlist()
	if group, ok := sub.(*Transport); ok {
		_ = group.openColumn() // an error has broken the group: its operations return it
	}
	return sub, nil
}

// newPart makes the transport of members of this group; nil without a color.
func (t *Transport) newPart(id uint32, color, key int, members []int) (subgroup, error) {
	near, err := t.inner.Split(color, key)
	if err != nil || near == nil {
		return nil, err
	}
	if near.Info().Size == len(members) {
		return t.p.newLocal(near, false), nil
	}
	if last := t.p.w.Info().Tags / channels; id >= last {
		return nil, errors.Join(fmt.Errorf("%w: more than %d groups in one job: keep groups instead of splitting again", dist.ErrUnsupported, last-1), near.Close())
	}
	world := make([]int, len(members))
	for i, r := range members {
		world[i] = t.ranks[r]
	}
	sub, err := t.p.newTransport(id, world, near)
	if err != nil {
		return nil, errors.Join(err, near.Close())
	}
	return sub, nil
}

// agree returns an error on all ranks if one of them has one: its own, or that of the first rank.
//
// Collective.
func (t *Transport) agree(own error) error {
	var text []byte
	h := header{sig: dist.Signature{Kind: dist.KindSync, Root: -1}}
	if own != nil {
		text = []byte(own.Error())
		text = text[:min(len(text), textBytes)]
		h.a = int64(len(text))
	}
	err := t.meet(&exchange{own: h, bytes: textBytes, fill: func(data []byte) { copy(data, text) }})
	if err != nil || own != nil {
		return errors.Join(own, err)
	}
	for r := range t.ranks {
		if h.get(t.board.header(t.round, r)); h.a != 0 {
			return fmt.Errorf("%w: rank %d: %s", dist.ErrUnsupported, r, t.board.data(t.round, r, textBytes)[:h.a])
		}
	}
	return nil
}

// free returns the first number that no group of this process has had, which is at least least.
func (p *process) free(least uint32) uint32 {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.nextID = max(p.nextID, least)
	return p.nextID
}
