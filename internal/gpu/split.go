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
	if err := t.member.Agree(t.streams.idle()); err != nil {
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
	engines, err := t.engines.splitEngines(member)
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
	if err := sub.heaps.borrow(t); err != nil {
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
			err = sub.heaps.borrow(t)
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

// forParts returns the settings of a part. They no longer force an engine that is missing there.
func (t *Transport) forParts(engines []Engine) DispatchConfig {
	c := t.cfg.Choose
	there := slices.ContainsFunc(engines, func(e Engine) bool { return e.Name() == c.Engine })
	if c.Engine != "" && !there {
		c.Engine = ""
	}
	return c
}
