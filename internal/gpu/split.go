package gpu

import (
	"errors"
	"fmt"
	"slices"

	"github.com/symgrad/symgrad/dist"
)

// Split implements dist.Transport. It waits until the device is idle, then splits the control group
// and every engine. An engine that returns ErrUnsupported is left out of the parts. The parts know
// the group's present heaps, which are freed after them, but no later ones: see Heaps and parts in
// the package comment. Parts of a group over several hosts make their engines anew.
func (t *Transport) Split(color, key int) (dist.Transport, error) {
	var sub *Transport
	err := t.exclusive(&opEntry{sig: dist.Signature{Kind: dist.KindSplit}}, nil, func([][]byte) (err error) {
		sub, err = t.split(color, key)
		return err
	})
	if err != nil || sub == nil {
		return nil, err
	}
	return sub, nil
}

func (t *Transport) split(color, key int) (*Transport, error) {
	if err := t.member.Agree(t.idle()); err != nil {
		return nil, err
	}
	control, err := t.member.Control.Split(color, key)
	if err != nil {
		return nil, t.ledger.settle(err)
	}
	var member *Member
	if control != nil {
		member = MemberOf(control, t.member.Device)
	}
	if t.member.Hosts != nil {
		return t.remake(member)
	}
	engines, err := t.splitEngines(member)
	if err == nil && member != nil && len(engines) == 0 && member.Size > 1 {
		err = fmt.Errorf("%w: no engine can be split", dist.ErrUnsupported)
	}
	if err = t.member.Agree(err); err != nil || member == nil {
		errs := []error{err, closeEngines(engines)}
		if control != nil {
			errs = append(errs, control.Close())
		}
		return nil, errors.Join(errs...)
	}
	cfg := t.cfg
	cfg.Control = control
	cfg.Choose = t.forParts(engines)
	left := engines // closed by open, unless it fails before it calls the Maker
	sub, err := open(cfg, *member, func(*Member) ([]Engine, error) {
		left = nil
		return engines, nil
	})
	if err != nil {
		return nil, errors.Join(err, closeEngines(left), control.Close())
	}
	if err := sub.borrow(t); err != nil {
		return nil, errors.Join(err, sub.Close())
	}
	return sub, nil
}

// remake returns the transport of a part of a group over several hosts; nil if member is nil. The
// part makes its engines itself: a part on one host has more of them than the group.
//
// Collective: all ranks of t. Errors: on all ranks.
func (t *Transport) remake(member *Member) (*Transport, error) {
	var sub *Transport
	var err error
	if member != nil {
		cfg := t.cfg
		cfg.Control = member.Control
		cfg.Choose.optional = true
		if sub, err = open(cfg, *member, cfg.Make); err == nil {
			err = sub.borrow(t)
		}
	}
	if err = t.member.Agree(err); err == nil {
		return sub, nil
	}
	if sub != nil {
		return nil, errors.Join(err, sub.Close())
	}
	if member != nil {
		err = errors.Join(err, member.Control.Close())
	}
	return nil, err
}

// closeEngines ends engines that belong to no transport.
func closeEngines(engines []Engine) error {
	var errs []error
	for _, e := range engines {
		e.Abort()
		errs = append(errs, e.Close())
	}
	return errors.Join(errs...)
}

// forParts returns the settings of a part. They no longer force an engine that is missing there.
func (t *Transport) forParts(engines []Engine) DispatchConfig {
	c := t.cfg.Choose
	there := slices.ContainsFunc(engines, func(e Engine) bool { return e.Name() == c.Engine })
	if c.Engine != "" && !there {
		c.Engine = ""
	}
	return c
}

// splitEngines returns this rank's engines of the part of member; none if member is nil.
//
// Errors: on all ranks of t.
func (t *Transport) splitEngines(member *Member) ([]Engine, error) {
	var engines []Engine
	var failed error
	for _, e := range t.engines {
		part, err := e.Split(member)
		unsupported := errors.Is(err, dist.ErrUnsupported)
		if err != nil && !unsupported && failed == nil {
			failed = fmt.Errorf("%s: %w", e.Name(), err)
		}
		if part != nil && err == nil {
			engines = append(engines, part)
		}
		if failed = t.member.Agree(failed); failed != nil {
			return engines, failed
		}
	}
	return engines, nil
}

// borrow registers the parent's heaps here, and keeps their memory until this transport is closed.
//
// Collective: all ranks of t, which are in a collective call of the parent.
func (t *Transport) borrow(parent *Transport) error {
	ranks := make([]int, t.member.Size) // in the parent
	for i, w := range t.member.World {
		ranks[i] = slices.Index(parent.member.World, w)
	}
	for _, h := range parent.heaps {
		if closed, err := t.anyClosed(h); err != nil {
			return err
		} else if closed {
			continue
		}
		view := &Slab{Bytes: h.slab.Bytes, Base: make([]uintptr, len(ranks))}
		for i, r := range ranks {
			view.Base[i] = h.slab.Base[r]
		}
		if err := t.register(view); err != nil {
			return err
		}
		h.borrows.Add(1)
		t.member.Memory.Add(view, t.member.Rank)
		t.borrowed = append(t.borrowed, view)
		t.releases = append(t.releases, h)
	}
	return nil
}

// anyClosed reports whether a rank of t has closed h.
func (t *Transport) anyClosed(h *Heap) (bool, error) {
	own := []byte{0}
	if h.gate.Closed() {
		own[0] = 1
	}
	all, err := t.member.Exchange(own)
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(all, func(b []byte) bool { return b[0] != 0 }), nil
}

// unborrow unregisters the parent's heaps. Collective.
func (t *Transport) unborrow() error {
	var errs []error
	for i := len(t.borrowed) - 1; i >= 0; i-- {
		errs = append(errs, unregister(t.engines, t.borrowed[i]))
		t.member.Memory.Remove(t.borrowed[i])
	}
	return errors.Join(errs...)
}
