package nvshmem

import (
	"encoding/binary"
	"fmt"
	"unsafe"

	"github.com/symgrad/symgrad/internal/gpu"
)

// splitTeam returns this rank's team after the group of p is split: the team of sub, or nil if sub
// is nil or has one rank. parent is the team of p.
//
// Collective: all ranks of p. Errors: the same on all ranks.
func (rt *Runtime) splitTeam(p *gpu.Member, parent *team, sub *gpu.Member) (*team, error) {
	own := teamProposal{leader: -1, used: rt.teams.used()}
	if sub != nil {
		own.leader, own.index, own.size = int32(sub.World[0]), int32(sub.Rank), int32(sub.Size)
		own.idle = rt.teams.idle(rt.pes(sub))
	}
	lines, err := p.Exchange(own.encode())
	if err != nil {
		return nil, err
	}
	proposals := make([]teamProposal, len(lines))
	for r, line := range lines {
		proposals[r] = decodeProposal(line)
	}
	all, err := plans(proposals, rt.lib.cfg.MaxTeams, parent != nil && parent.stride > 0, rt.lib.t.makeTeam.Err() == nil && rt.lib.t.teamID.Err() == nil)
	if err != nil {
		return nil, err
	}
	made, err := rt.runPlans(p, parent, sub, all)
	if err := p.Agree(err); err != nil {
		return nil, err
	}
	return made, nil
}

// pes returns the ranks of p in the library's numbering.
func (rt *Runtime) pes(p *gpu.Member) []int {
	pes := make([]int, p.Size)
	for i, w := range p.World {
		for pe, world := range rt.member.World {
			if world == w {
				pes[i] = pe
			}
		}
	}
	return pes
}

// runPlans makes the missing teams in the order of the plans, and returns that of this rank. After
// an error a rank still makes the remaining calls, because other ranks wait in them.
func (rt *Runtime) runPlans(p *gpu.Member, parent *team, sub *gpu.Member, all []plan) (mine *team, failed error) {
	// The library uses the parent's own barrier and synchronizes the device: earlier work must have
	// ended on every rank.
	failed = rt.healthy("split")
	if failed == nil && parent != nil {
		failed = rt.quiesce(parent)
	}
	if failed == nil {
		if failed = rt.dev.Enter(); failed == nil {
			defer rt.dev.Leave()
		}
	}
	if err := p.Agree(failed); err != nil {
		return nil, err
	}
	for _, plan := range all {
		index := indexOf(plan.ranks, p.Rank)
		id := plan.team
		var err error
		switch {
		case len(plan.ranks) < 2:
			continue
		case !plan.newTeam():
			if index >= 0 {
				mine = rt.teams.find(id)
			}
			continue
		case plan.stride > 0:
			id, err = rt.splitStrided(parent, plan)
		case index >= 0:
			id, err = rt.makeTeam(sub)
		default:
			continue
		}
		if err == nil && index >= 0 {
			mine, err = rt.recordTeam(id, parent, sub, plan)
		}
		if failed == nil {
			failed = err
		}
	}
	return mine, failed
}

func indexOf(ranks []int, rank int) int {
	for i, r := range ranks {
		if r == rank {
			return i
		}
	}
	return -1
}

// splitStrided makes a team of every plan.stride-th rank of the parent. All ranks of the parent
// call it.
func (rt *Runtime) splitStrided(parent *team, plan plan) (int32, error) {
	id := teamInvalid
	err := rt.setup(&rt.lib.t.split, "nvshmem_team_split_strided", uintptr(parent.id), uintptr(plan.start), uintptr(plan.stride),
		uintptr(len(plan.ranks)), 0, 0, uintptr(unsafe.Pointer(&id)))
	return id, err
}

// makeTeam makes a team of the ranks of sub, in their order. Only they call it.
func (rt *Runtime) makeTeam(sub *gpu.Member) (int32, error) {
	var unique uint64
	var err error
	if sub.Rank == 0 {
		if err = rt.setup(&rt.lib.t.teamID, "nvshmemx_team_get_uniqueid", uintptr(unsafe.Pointer(&unique))); err == nil && unique == noTeamID {
			err = fmt.Errorf("nvshmem: split: the library gave no id for a team: %s", rt.lib)
		}
	}
	// The ranks agree first and then share the id. The end of a team_init erases data that early
	// ranks of the next one have written (nvshmemi_reset_team_creation_psync), so no rank may still
	// be in an earlier one.
	if err := sub.Agree(err); err != nil {
		return teamInvalid, err
	}
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], unique)
	if err := sub.Share(b[:], 0); err != nil {
		return teamInvalid, err
	}
	config := newTeamConfig(binary.LittleEndian.Uint64(b[:]))
	id := teamInvalid
	err = rt.setup(&rt.lib.t.makeTeam, "nvshmemx_team_init", uintptr(unsafe.Pointer(&id)), uintptr(unsafe.Pointer(&config)), teamMaskUID,
		uintptr(sub.Size), uintptr(sub.Rank))
	return id, err
}

// recordTeam checks the library's answers for a new team of this rank, and records the team.
func (rt *Runtime) recordTeam(id int32, parent *team, sub *gpu.Member, plan plan) (*team, error) {
	cfg := rt.lib.cfg
	if id < ownTeams || int(id) >= cfg.MaxTeams {
		return nil, fmt.Errorf("nvshmem: split: the library made team %d of %d to %d: %s", id, ownTeams, cfg.MaxTeams-1, rt.lib)
	}
	rt.mu.Lock()
	pe, n := rt.lib.t.teamPE(id), rt.lib.t.teamPEs(id)
	rt.mu.Unlock()
	if int(pe) != sub.Rank || int(n) != sub.Size {
		return nil, fmt.Errorf("nvshmem: split: team %d says this is rank %d of %d, and it is %d of %d: %s", id, pe, n, sub.Rank, sub.Size, rt.lib)
	}
	t := &team{id: id, pes: rt.pes(sub)}
	if plan.stride > 0 {
		t.stride = parent.stride * plan.stride
	}
	t.area = rt.newArea(id, t.pes, sub.Rank)
	rt.teams.add(t)
	return t, nil
}
