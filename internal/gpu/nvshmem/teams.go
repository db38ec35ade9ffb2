package nvshmem

import (
	"encoding/binary"
	"math/bits"
	"slices"
	"sync"

	"github.com/symgrad/symgrad/dist"
)

// team is a team of the library for a list of ranks of the world. It lives as long as the runtime:
// destroying one is collective and waits for NCCL, but each rank closes a group by itself. The next
// group of the same list reuses the team of a closed group.
type team struct {
	id      int32
	pes     []int // ranks in the world, in the team's order
	stride  int   // between pes; 0 if not constant: the library then cannot split the team by strides
	area    area
	user    *engine // of the open group; nil if the team is free
	spoiled bool    // its group was aborted: operations may never have ended
}

// teamTable is the teams that this rank is in.
type teamTable struct {
	mu    sync.Mutex
	teams []*team
}

// idSet is a set of team ids.
type idSet [mostTeams / 64]uint64

const idSetBytes = mostTeams / 8

func (s *idSet) add(id int32)      { s[id/64] |= 1 << (id % 64) }
func (s *idSet) has(id int32) bool { return s[id/64]>>(id%64)&1 == 1 }

// and removes ids that are not in o.
func (s *idSet) and(o idSet) {
	for i := range s {
		s[i] &= o[i]
	}
}

// or adds the ids of o.
func (s *idSet) or(o idSet) {
	for i := range s {
		s[i] |= o[i]
	}
}

// first returns the least id in the set; teamInvalid if it is empty.
func (s *idSet) first() int32 {
	for i, w := range s {
		if w != 0 {
			return int32(64*i + bits.TrailingZeros64(w))
		}
	}
	return teamInvalid
}

// count returns the number of ids.
func (s *idSet) count() (n int) {
	for _, w := range s {
		n += bits.OnesCount64(w)
	}
	return n
}

// used returns the ids that a new team of this rank cannot have: NVSHMEM's own, and those of its
// teams.
func (r *teamTable) used() (s idSet) {
	for id := range int32(ownTeams) {
		s.add(id)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range r.teams {
		s.add(t.id)
	}
	return s
}

// idle returns the ids of the teams of a list of ranks that no group uses.
func (r *teamTable) idle(pes []int) (s idSet) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range r.teams {
		if t.user == nil && !t.spoiled && slices.Equal(t.pes, pes) {
			s.add(t.id)
		}
	}
	return s
}

// find returns the team with an id, or nil.
func (r *teamTable) find(id int32) *team {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range r.teams {
		if t.id == id {
			return t
		}
	}
	return nil
}

// add records a new team.
func (r *teamTable) add(t *team) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.teams = append(r.teams, t)
}

// take gives t to e; release frees it, and excludes it from reuse if it is spoiled.
func (r *teamTable) take(t *team, e *engine) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t.user = e
}

func (r *teamTable) release(t *team, spoiled bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t.user = nil
	t.spoiled = t.spoiled || spoiled
}

// teamProposal is sent by each rank when a group is split: the part that it joins, and the teams
// that it could use for it.
type teamProposal struct {
	leader int32 // first rank of its part, numbered in the world; -1 for none
	index  int32 // its rank there
	size   int32 // ranks of the part
	idle   idSet // free teams of the part's list on this rank
	used   idSet // ids that a new team cannot have on this rank
}

const proposalBytes = 12 + 2*idSetBytes

func (b teamProposal) encode() []byte {
	var out []byte
	for _, v := range []int32{b.leader, b.index, b.size} {
		out = binary.LittleEndian.AppendUint32(out, uint32(v))
	}
	for _, s := range []idSet{b.idle, b.used} {
		for _, w := range s {
			out = binary.LittleEndian.AppendUint64(out, w)
		}
	}
	return out
}

func decodeProposal(line []byte) (b teamProposal) {
	for i, v := range []*int32{&b.leader, &b.index, &b.size} {
		*v = int32(binary.LittleEndian.Uint32(line[4*i:]))
	}
	for i := range b.idle {
		b.idle[i] = binary.LittleEndian.Uint64(line[12+8*i:])
		b.used[i] = binary.LittleEndian.Uint64(line[12+idSetBytes+8*i:])
	}
	return b
}

// plan says how one part of a group gets its team.
type plan struct {
	ranks  []int // of the parent, in the part's order
	team   int32 // to reuse; -1 to make one
	start  int   // of a strided split
	stride int   // of a strided split; 0 if the team is made by id
}

// newTeam reports whether a team must be made for the part. A part of one rank needs none.
func (p plan) newTeam() bool { return len(p.ranks) > 1 && p.team == teamInvalid }

// plans computes the plan of each part from the proposals of all ranks, in the order of the parts'
// leaders. Every rank of the parent gets the same result. strided means that the library can split
// the parent by strides, arbitrary that it makes teams of any ranks.
//
// Errors: dist.ErrUnsupported if no id is left or a team cannot be made; dist.ErrMismatch for
// inconsistent proposals.
func plans(proposals []teamProposal, maxTeams int, strided, arbitrary bool) ([]plan, error) {
	var all []plan
	for _, leader := range leaders(proposals) {
		p, err := planOf(proposals, leader)
		if err != nil {
			return nil, err
		}
		if !p.newTeam() {
			all = append(all, p)
			continue
		}
		p.start, p.stride = progression(p.ranks)
		if !strided {
			p.stride = 0
		}
		if p.stride == 0 && !arbitrary {
			return nil, refused("split", dist.ErrUnsupported, "teams of ranks without a constant positive stride, such as %v, need NVSHMEM 3.3.9 or later", p.ranks)
		}
		var used idSet
		for _, r := range p.ranks {
			used.or(proposals[r].used)
		}
		if used.count() >= maxTeams {
			return nil, refused("split", dist.ErrUnsupported,
				"no team is left for ranks %v: of %d teams %d are NVSHMEM's own, and each list of ranks of a group keeps one: raise MaxTeams",
				p.ranks, maxTeams, ownTeams)
		}
		all = append(all, p)
	}
	return all, nil
}

// leaders returns the distinct leaders, ascending.
func leaders(proposals []teamProposal) []int32 {
	var found []int32
	for _, b := range proposals {
		if b.leader >= 0 && !slices.Contains(found, b.leader) {
			found = append(found, b.leader)
		}
	}
	slices.Sort(found)
	return found
}

// planOf returns the part of a leader: its ranks, and a team that is free on all of them.
func planOf(proposals []teamProposal, leader int32) (plan, error) {
	p := plan{team: teamInvalid}
	var idle idSet
	for r, b := range proposals {
		if b.leader != leader {
			continue
		}
		if p.ranks == nil {
			p.ranks = make([]int, b.size)
			for i := range p.ranks {
				p.ranks[i] = -1
			}
			idle = b.idle
		}
		if int(b.size) != len(p.ranks) || b.index < 0 || int(b.index) >= len(p.ranks) || p.ranks[b.index] != -1 {
			return p, refused("split", dist.ErrMismatch, "rank %d says it is %d of %d in its part, which contradicts the other ranks", r, b.index, b.size)
		}
		p.ranks[b.index] = r
		idle.and(b.idle)
	}
	if i := slices.Index(p.ranks, -1); i >= 0 {
		return p, refused("split", dist.ErrMismatch, "rank %d is missing in the part of %d", i, len(p.ranks))
	}
	if len(p.ranks) > 1 {
		p.team = idle.first()
	}
	return p, nil
}

// progression returns the first of ranks and the constant positive difference between them; stride
// 0 if there is none.
func progression(ranks []int) (start, stride int) {
	start = ranks[0]
	if len(ranks) == 1 {
		return start, 1
	}
	stride = ranks[1] - ranks[0]
	for i := 2; i < len(ranks); i++ {
		if ranks[i]-ranks[i-1] != stride {
			return start, 0
		}
	}
	return start, max(stride, 0)
}
