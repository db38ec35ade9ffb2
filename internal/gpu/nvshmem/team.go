package nvshmem

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/gpu"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
)

// splitter makes the teams of groups.
type splitter struct {
	*caller
	pool  *areaPool
	teams teamTable
}

// splitTeam returns this rank's team after the group of p is split: the team of sub, or nil if sub
// is nil or has one rank. parent is the team of p.
//
// Collective: all ranks of p. Errors: the same on all ranks.
func (x *splitter) splitTeam(p *gpu.Member, parent *team, sub *gpu.Member) (*team, error) {
	own := teamProposal{leader: -1, used: x.teams.used()}
	if sub != nil {
		own.leader, own.index, own.size = int32(sub.World[0]), int32(sub.Rank), int32(sub.Size)
		own.idle = x.teams.idle(x.pes(sub))
	}
	lines, err := p.Exchange(own.encode())
	if err != nil {
		return nil, err
	}
	proposals := make([]teamProposal, len(lines))
	for r, line := range lines {
		proposals[r] = decodeProposal(line)
	}
	all, err := plans(proposals, x.lib.cfg.MaxTeams, parent != nil && parent.stride > 0, x.lib.t.makeTeam.Err() == nil && x.lib.t.teamID.Err() == nil)
	if err != nil {
		return nil, err
	}
	made, err := x.runPlans(p, parent, sub, all)
	if err := p.Agree(err); err != nil {
		return nil, err
	}
	return made, nil
}

// pes returns the ranks of p in the library's numbering.
func (x *splitter) pes(p *gpu.Member) []int {
	pes := make([]int, p.Size)
	for i, w := range p.World {
		for pe, world := range x.member.World {
			if world == w {
				pes[i] = pe
			}
		}
	}
	return pes
}

// runPlans makes the missing teams in the order of the plans, and returns that of this rank. After
// an error a rank still makes the remaining calls, because other ranks wait in them.
func (x *splitter) runPlans(p *gpu.Member, parent *team, sub *gpu.Member, all []plan) (mine *team, failed error) {
	// The library uses the parent's own barrier and synchronizes the device: earlier work must have
	// ended on every rank.
	failed = x.healthy("split")
	if failed == nil && parent != nil {
		failed = x.quiesce(parent)
	}
	if failed == nil {
		if failed = x.dev.Enter(); failed == nil {
			defer x.dev.Leave()
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
				mine = x.teams.find(id)
			}
			continue
		case plan.stride > 0:
			id, err = x.splitStrided(parent, plan)
		case index >= 0:
			id, err = x.makeTeam(sub)
		default:
			continue
		}
		if err == nil && index >= 0 {
			mine, err = x.recordTeam(id, parent, sub, plan)
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
func (x *splitter) splitStrided(parent *team, plan plan) (int32, error) {
	id := teamInvalid
	err := x.setup(&x.lib.t.split, "nvshmem_team_split_strided", uintptr(parent.id), uintptr(plan.start), uintptr(plan.stride),
		uintptr(len(plan.ranks)), 0, 0, uintptr(unsafe.Pointer(&id)))
	return id, err
}

// makeTeam makes a team of the ranks of sub, in their order. Only they call it.
func (x *splitter) makeTeam(sub *gpu.Member) (int32, error) {
	var unique uint64
	var err error
	if sub.Rank == 0 {
		if err = x.setup(&x.lib.t.teamID, "nvshmemx_team_get_uniqueid", uintptr(unsafe.Pointer(&unique))); err == nil && unique == noTeamID {
			err = fmt.Errorf("nvshmem: split: the library gave no id for a team: %s", x.lib)
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
	err = x.setup(&x.lib.t.makeTeam, "nvshmemx_team_init", uintptr(unsafe.Pointer(&id)), uintptr(unsafe.Pointer(&config)), teamMaskUID,
		uintptr(sub.Size), uintptr(sub.Rank))
	return id, err
}

// recordTeam checks the library's answers for a new team of this rank, and records the team.
func (x *splitter) recordTeam(id int32, parent *team, sub *gpu.Member, plan plan) (*team, error) {
	cfg := x.lib.cfg
	if id < ownTeams || int(id) >= cfg.MaxTeams {
		return nil, fmt.Errorf("nvshmem: split: the library made team %d of %d to %d: %s", id, ownTeams, cfg.MaxTeams-1, x.lib)
	}
	x.mu.Lock()
	pe, n := x.lib.t.teamPE(id), x.lib.t.teamPEs(id)
	x.mu.Unlock()
	if int(pe) != sub.Rank || int(n) != sub.Size {
		return nil, fmt.Errorf("nvshmem: split: team %d says this is rank %d of %d, and it is %d of %d: %s", id, pe, n, sub.Rank, sub.Size, x.lib)
	}
	t := &team{id: id, pes: x.pes(sub)}
	if plan.stride > 0 {
		t.stride = parent.stride * plan.stride
	}
	t.area = x.pool.newArea(id, t.pes, sub.Rank)
	x.teams.add(t)
	return t, nil
}

// quiesce waits for the operations queued with a team. A stream that its owner has closed counts as
// idle.
//
// Errors: dist.ErrAborted if the group is aborted, because an operation that waits for a peer may
// then never end; those of the driver.
func (x *splitter) quiesce(t *team) error {
	x.teams.mu.Lock()
	e := t.user
	x.teams.mu.Unlock()
	if e == nil {
		return nil
	}
	for began := time.Now(); ; gpu.Rest(time.Since(began)) {
		idle, err := e.idle()
		switch {
		case idle || errors.Is(err, cuda.ErrClosed):
			return nil
		case err != nil:
			return err
		case e.gone.Load():
			return refused("split", dist.ErrAborted, "the group was aborted during the wait for its operations")
		}
	}
}

// worldTeam returns NVSHMEM's team of all ranks, which exists from the start.
func (x *splitter) worldTeam() *team {
	t := &team{id: teamWorld, stride: 1, pes: make([]int, x.member.Size)}
	for i := range t.pes {
		t.pes[i] = i
	}
	t.area = x.pool.newArea(teamWorld, t.pes, x.member.Rank)
	x.teams.add(t)
	return t
}
