package nvshmem

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/gpu"
)

func set(ids ...int32) (s idSet) {
	for _, id := range ids {
		s.add(id)
	}
	return s
}

func TestIDSet(t *testing.T) {
	s := set(3, 64, 255)
	for _, id := range []int32{3, 64, 255} {
		if !s.has(id) {
			t.Errorf("%d is not in the set", id)
		}
	}
	if s.has(4) || s.has(63) || s.count() != 3 || s.first() != 3 {
		t.Errorf("set %v: count %d, first %d", s, s.count(), s.first())
	}
	other := set(64, 100)
	both := s
	both.and(other)
	if both != set(64) {
		t.Errorf("intersection %v", both)
	}
	s.or(other)
	if s != set(3, 64, 100, 255) {
		t.Errorf("union %v", s)
	}
	if empty := set(); empty.first() != teamInvalid {
		t.Errorf("the first of none is %d", empty.first())
	}
}

func TestBidSurvivesTheWire(t *testing.T) {
	for _, b := range []teamProposal{
		{leader: -1},
		{leader: 3, index: 1, size: 4, idle: set(6, 200), used: set(0, 1, 2, 3, 4, 5, 255)},
	} {
		line := b.encode()
		if got := decodeProposal(line); len(line) != proposalBytes || got != b {
			t.Errorf("%+v became %+v in %d B", b, got, len(line))
		}
	}
}

// parts returns the proposals of ranks in parts, each an ordered list of ranks. All ranks use
// NVSHMEM's own teams.
func parts(n int, lists ...[]int) []teamProposal {
	proposals := make([]teamProposal, n)
	for r := range proposals {
		proposals[r] = teamProposal{leader: -1, used: set(0, 1, 2, 3, 4, 5)}
	}
	for _, list := range lists {
		for i, r := range list {
			proposals[r].leader, proposals[r].index, proposals[r].size = int32(list[0]), int32(i), int32(len(list))
		}
	}
	return proposals
}

func TestPlans(t *testing.T) {
	for _, c := range []struct {
		name               string
		proposals          []teamProposal
		change             func([]teamProposal)
		strided, arbitrary bool
		want               []plan
	}{
		{
			name: "everyone", proposals: parts(4, []int{0, 1, 2, 3}), strided: true, arbitrary: true,
			want: []plan{{[]int{0, 1, 2, 3}, teamInvalid, 0, 1}},
		},
		{
			name: "even and odd", proposals: parts(4, []int{1, 3}, []int{0, 2}), strided: true,
			want: []plan{{[]int{0, 2}, teamInvalid, 0, 2}, {[]int{1, 3}, teamInvalid, 1, 2}},
		},
		{
			name: "downwards needs an id", proposals: parts(3, []int{2, 1, 0}), strided: true, arbitrary: true,
			want: []plan{{[]int{2, 1, 0}, teamInvalid, 2, 0}},
		},
		{
			name: "of a parent without strides", proposals: parts(4, []int{0, 1}), arbitrary: true,
			want: []plan{{[]int{0, 1}, teamInvalid, 0, 0}},
		},
		{
			name: "alone, and nowhere", proposals: parts(3, []int{1}, []int{0}), strided: true,
			want: []plan{{ranks: []int{0}, team: teamInvalid}, {ranks: []int{1}, team: teamInvalid}},
		},
		{
			name: "a team that all have free", proposals: parts(2, []int{0, 1}), strided: true,
			change: func(b []teamProposal) { b[0].idle, b[1].idle = set(7, 9), set(9, 11) },
			want:   []plan{{[]int{0, 1}, 9, 0, 0}},
		},
		{
			name: "none that all have free", proposals: parts(2, []int{0, 1}), strided: true,
			change: func(b []teamProposal) { b[0].idle, b[1].idle = set(7), set(9) },
			want:   []plan{{[]int{0, 1}, teamInvalid, 0, 1}},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.change != nil {
				c.change(c.proposals)
			}
			got, err := plans(c.proposals, 64, c.strided, c.arbitrary)
			if err != nil || !reflect.DeepEqual(got, c.want) {
				t.Errorf("got %+v, %v, want %+v", got, err, c.want)
			}
		})
	}
}

func TestPlansThatCannotBe(t *testing.T) {
	for _, c := range []struct {
		name               string
		proposals          []teamProposal
		change             func([]teamProposal)
		maxTeams           int
		strided, arbitrary bool
		kind               error
		want               string
	}{
		{
			name: "no id is left", proposals: parts(3, []int{0, 2}), maxTeams: 9, strided: true, kind: dist.ErrUnsupported,
			change: func(b []teamProposal) { b[0].used.or(set(6, 7)); b[2].used.or(set(8)) },
			want:   "of 9 teams 6 are NVSHMEM's own",
		},
		{
			name: "any ranks with an old library", proposals: parts(3, []int{2, 0, 1}), maxTeams: 64, strided: true, kind: dist.ErrUnsupported,
			want: "NVSHMEM 3.3.9",
		},
		{
			name: "two with one number", proposals: parts(3, []int{0, 1, 2}), maxTeams: 64, strided: true, kind: dist.ErrMismatch,
			change: func(b []teamProposal) { b[2].index = 1 }, want: "rank 2 says it is 1 of 3",
		},
		{
			name: "one is missing", proposals: parts(3, []int{0, 1, 2}), maxTeams: 64, strided: true, kind: dist.ErrMismatch,
			change: func(b []teamProposal) { b[1].leader = -1 }, want: "rank 1 is missing",
		},
		{
			name: "sizes differ", proposals: parts(3, []int{0, 1, 2}), maxTeams: 64, strided: true, kind: dist.ErrMismatch,
			change: func(b []teamProposal) { b[1].size = 2 }, want: "rank 1 says it is 1 of 2",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.change != nil {
				c.change(c.proposals)
			}
			_, err := plans(c.proposals, c.maxTeams, c.strided, c.arbitrary)
			if !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %v with %q", err, c.kind, c.want)
			}
		})
	}
}

func TestProgression(t *testing.T) {
	for _, c := range []struct {
		ranks         []int
		start, stride int
	}{
		{[]int{5}, 5, 1},
		{[]int{0, 1, 2}, 0, 1},
		{[]int{1, 4, 7}, 1, 3},
		{[]int{0, 1, 3}, 0, 0},
		{[]int{2, 1}, 2, 0},
		{[]int{3, 2, 1}, 3, 0},
	} {
		if start, stride := progression(c.ranks); start != c.start || stride != c.stride {
			t.Errorf("%v: start %d, stride %d", c.ranks, start, stride)
		}
	}
}

func TestTeamsAreTakenAgainUnlessSpoiled(t *testing.T) {
	var r teamTable
	a, b := &team{id: 6, pes: []int{0, 2}}, &team{id: 7, pes: []int{0, 2}}
	r.add(a)
	r.add(b)
	r.add(&team{id: 9, pes: []int{2, 0}})
	if got := r.idle([]int{0, 2}); got != set(6, 7) {
		t.Fatalf("free teams %v", got)
	}
	if got := r.used(); got != set(0, 1, 2, 3, 4, 5, 6, 7, 9) {
		t.Fatalf("used ids %v", got)
	}
	r.take(a, &engine{})
	if got := r.idle([]int{0, 2}); got != set(7) {
		t.Fatalf("free teams %v after one was taken", got)
	}
	r.release(a, false)
	r.take(b, &engine{})
	r.release(b, true)
	if got := r.idle([]int{0, 2}); got != set(6) {
		t.Fatalf("free teams %v, want only the one whose group was not aborted", got)
	}
	if r.find(7) != b || r.find(8) != nil {
		t.Error("find does not find teams by their ids")
	}
}

func TestAreasOfAllTeamsAreApart(t *testing.T) {
	for _, cfg := range []Config{{}, {MaxTeams: 9, StagingBytes: 70000, TeamStagingBytes: 1 << 16}} {
		cfg := cfg.defaults()
		type span struct{ from, to int64 }
		spans := []span{}
		for id := teamWorld; int(id) < cfg.MaxTeams; id++ {
			if id > teamWorld && id < ownTeams {
				continue
			}
			offset, part := cfg.areaAt(id)
			if offset%pageBytes != 0 || part%pageBytes != 0 {
				t.Errorf("area of team %d at %d with parts of %d B", id, offset, part)
			}
			spans = append(spans, span{offset, offset + areaBytes(part)})
		}
		for i := 1; i < len(spans); i++ {
			if spans[i].from != spans[i-1].to {
				t.Errorf("areas %+v and %+v overlap or leave a gap", spans[i-1], spans[i])
			}
		}
		if last := spans[len(spans)-1]; last.to != cfg.poolBytes() {
			t.Errorf("the areas end at %d, the pool has %d B", last.to, cfg.poolBytes())
		}
	}
}

func TestPartsOfAnAreaAreApart(t *testing.T) {
	rt := newRuntime(&Library{cfg: Config{}.defaults()}, new(gpu.Member))
	rt.pool.base = []uintptr{1 << 40, 2 << 40, 3 << 40}
	a := rt.pool.newArea(8, []int{2, 0, 1}, 1)
	offset, part := rt.lib.cfg.areaAt(8)
	if a.base != 1<<40+uintptr(offset) || !slices.Equal(a.peers, []uintptr{3<<40 + uintptr(offset), a.base, 2<<40 + uintptr(offset)}) {
		t.Fatalf("area %+v", a)
	}
	if a.slot <= 0 || a.slot*3 > part || a.slot%mailboxMin != 0 {
		t.Errorf("mailboxes of %d B, parts of %d B", a.slot, part)
	}
	addresses := []uintptr{a.full(0), a.full(2), a.free(0), a.free(2), a.in(), a.out(), a.mail(0), a.mail(2)}
	if !slices.IsSorted(addresses) {
		t.Errorf("addresses %x", addresses)
	}
	if a.free(2)+signalBytes > a.in() || a.in()+uintptr(part) != a.out() || a.out()+uintptr(part) != a.mail(0) ||
		a.mail(2)+uintptr(a.slot) > a.base+uintptr(areaBytes(part)) {
		t.Errorf("parts of %+v overlap", a)
	}
	if a.mailAt(1, 2) != a.mail(2) || a.inOf(1) != a.in() || a.outOf(1) != a.out() || a.mailAt(0, 1)-a.peers[0] != a.mail(1)-a.base {
		t.Error("a rank's own parts have two addresses, or a peer's another offset")
	}
}
