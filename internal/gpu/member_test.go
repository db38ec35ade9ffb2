package gpu

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/sim"
)

func TestExchangeIsInRankOrder(t *testing.T) {
	onEach(t, 3, sim.Config{}, func(control *dist.Group) error {
		all, err := memberOf(control).Exchange([]byte{byte(control.Rank()), 7})
		if err != nil {
			return err
		}
		if want := []byte{0, 7, 1, 7, 2, 7}; !bytes.Equal(bytes.Join(all, nil), want) {
			return fmt.Errorf("exchanged %v, want %v", all, want)
		}
		none, err := memberOf(control).Exchange(nil)
		if err == nil && len(none) != 3 {
			err = fmt.Errorf("exchanged nothing: %v", none)
		}
		return err
	})
}

func TestShareCopiesFromItsRoot(t *testing.T) {
	onEach(t, 3, sim.Config{}, func(control *dist.Group) error {
		b := []byte(fmt.Sprintf("rank %d", control.Rank()))
		if err := errors.Join(memberOf(control).Share(b, 2), memberOf(control).Share(nil, 0)); err != nil {
			return err
		}
		if string(b) != "rank 2" {
			return fmt.Errorf("shared %q", b)
		}
		return nil
	})
}

func TestAgreeTellsEveryRankOfTheFirstError(t *testing.T) {
	local := fmt.Errorf("libnccl.so.2: %w", dist.ErrUnsupported)
	onEach(t, 3, sim.Config{}, func(control *dist.Group) error {
		p := memberOf(control)
		if err := p.Agree(nil); err != nil {
			return fmt.Errorf("no error anywhere: %w", err)
		}
		var own error
		if p.Rank > 0 {
			own = local
		}
		err := p.Agree(own)
		if p.Rank == 0 {
			return want(err, dist.ErrUnsupported, "rank 1", "libnccl.so.2")
		}
		return want(err, local)
	})
}

func TestAgreeKeepsEverySentinel(t *testing.T) {
	for _, s := range sentinels {
		err := reported(report(fmt.Errorf("the cause: %w", s)))
		if e := want(err, s, "the cause"); e != nil {
			t.Error(e)
		}
		if errors.Is(s, dist.ErrInvalid) && !errors.Is(err, dist.ErrInvalid) {
			t.Errorf("%v is no longer an ErrInvalid", s)
		}
	}
	for _, err := range []error{errors.New(""), errors.New("plain"), fmt.Errorf("%0*d", 3*reportBytes, 1)} {
		got := reported(report(err))
		if got == nil || errors.Unwrap(got) != nil || len(got.Error()) > reportBytes {
			t.Errorf("%.20q... arrives as %.20q...", err, got)
		}
	}
	if reported(report(nil)) != nil {
		t.Error("no error arrives as one")
	}
}

func TestMemoryFindsTheSlabOfAnAddress(t *testing.T) {
	var m Memory
	if s, _ := m.Find(1, 1); s != nil {
		t.Error("an empty memory has a slab")
	}
	a := &Slab{Bytes: 1 << 12, Base: []uintptr{0, 0x10000}}
	b := &Slab{Bytes: 1 << 12, Base: []uintptr{0, 0x20000}}
	m.Add(a, 1)
	m.Add(b, 1)
	for _, c := range []struct {
		addr   uintptr
		bytes  int64
		slab   *Slab
		off    int64
		number uint64
	}{
		{0x10000, 1 << 12, a, 0, 1},
		{0x10ff8, 8, a, 0xff8, 1},
		{0x10ff8, 9, nil, 0, 0},
		{0x11000, 0, a, 0x1000, 1},
		{0xffff, 1, nil, 0, 0},
		{0x20010, 16, b, 16, 2},
		{0x20010, -1, nil, 0, 0},
		{^uintptr(0), 1, nil, 0, 0},
	} {
		slab, off := m.Find(c.addr, c.bytes)
		number, _ := m.locate(c.addr, c.bytes)
		if slab != c.slab || off != c.off || number != c.number {
			t.Errorf("%#x, %d B: slab %p at %d, number %d; want %p at %d, %d", c.addr, c.bytes, slab, off, number, c.slab, c.off, c.number)
		}
	}
	m.Remove(a)
	if s, _ := m.Find(0x10000, 1); s != nil {
		t.Error("a slab is found that was removed")
	}
	m.Add(a, 1)
	if n, _ := m.locate(0x10000, 1); n != 3 {
		t.Errorf("a slab added again has number %d, want a new one", n)
	}
	if n := testing.AllocsPerRun(100, func() { m.Find(0x20010, 4) }); n != 0 {
		t.Errorf("Find allocates %v times", n)
	}
}
