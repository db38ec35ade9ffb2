package nvshmem

import (
	"unsafe"

	"github.com/symgrad/symgrad/dist"
)

// area is a team's staging memory: flags, then three parts of equal size: in, out and the
// mailboxes. It has the same offset in the pool on all ranks of the team.
//
//	full[i]   8 bytes each from 0      rank i has put a message into its mailbox here
//	free[i]   8 bytes each from 2048   the mailbox of this rank at rank i is free
//	in        from 4096                this rank's input
//	out       from 4096 + part         this rank's result
//	mail[i]   from 4096 + 2 part       messages from rank i to this one
type area struct {
	part  int64
	base  uintptr   // of this rank
	peers []uintptr // of each rank of the team, as this rank addresses them
	slot  int64     // bytes of one mailbox; 0 if the team has more than mostFlags ranks
}

const (
	freeFlags  = pageBytes / 2
	mostFlags  = freeFlags / signalBytes // ranks that the flags can serve
	staging    = 3                       // parts
	flagBytes  = pageBytes
	mailboxMin = heapAlignment
)

// areaBytes returns the size of an area with parts of part bytes.
func areaBytes(part int64) int64 { return flagBytes + staging*part }

// poolBytes returns the size of all areas.
func (c Config) poolBytes() int64 {
	return areaBytes(c.StagingBytes) + int64(c.MaxTeams-ownTeams)*areaBytes(c.TeamStagingBytes)
}

// areaAt returns the offset in the pool of the area of team id, and the size of its parts. Teams
// have the same id on all of their ranks, and thus the same area.
func (c Config) areaAt(id int32) (offset, part int64) {
	if id == teamWorld {
		return 0, c.StagingBytes
	}
	return areaBytes(c.StagingBytes) + int64(id-ownTeams)*areaBytes(c.TeamStagingBytes), c.TeamStagingBytes
}

// areaPool is the memory of all areas.
type areaPool struct {
	*rma
	region
}

// newArea returns the area of team id. pes are its ranks in the world; rank is this one.
func (p *areaPool) newArea(id int32, pes []int, rank int) area {
	offset, part := p.lib.cfg.areaAt(id)
	a := area{part: part, peers: make([]uintptr, len(pes))}
	for i, pe := range pes {
		a.peers[i] = p.base[pe] + uintptr(offset)
	}
	a.base = a.peers[rank]
	if len(pes) <= mostFlags {
		a.slot = part / int64(len(pes)) &^ (mailboxMin - 1)
	}
	return a
}

func (a *area) in() uintptr  { return a.base + flagBytes }
func (a *area) out() uintptr { return a.in() + uintptr(a.part) }

// inOf and outOf return the parts of another rank.
func (a *area) inOf(rank int) uintptr  { return a.peers[rank] + flagBytes }
func (a *area) outOf(rank int) uintptr { return a.inOf(rank) + uintptr(a.part) }

// mail returns this rank's mailbox for messages of rank; mailAt returns that of rank for messages
// of from.
func (a *area) mail(rank int) uintptr {
	return a.out() + uintptr(a.part) + uintptr(rank)*uintptr(a.slot)
}

func (a *area) mailAt(rank, from int) uintptr {
	return a.outOf(rank) + uintptr(a.part) + uintptr(from)*uintptr(a.slot)
}

// full and free return addresses of this rank's flags. With a rank, the library takes them as
// addresses of that rank's flags.
func (a *area) full(rank int) uintptr { return a.base + signalBytes*uintptr(rank) }
func (a *area) free(rank int) uintptr { return a.base + freeFlags + signalBytes*uintptr(rank) }

// open allocates the memory of all areas, and checks that this GPU can address it on every
// rank.
func (p *areaPool) open() error {
	r, err := p.allocate(p.member, p.lib.cfg.poolBytes())
	if err != nil {
		return err
	}
	p.region = r
	for rank, base := range r.base {
		if base == 0 {
			err = refused("start", dist.ErrUnsupported, "GPU %v of rank %d cannot address the memory of rank %d: peer access is missing",
				p.dev.Tensor(), p.member.Rank, rank)
			break
		}
	}
	return p.member.Agree(err)
}

// reset sets the flags of an area to their values while no message is in flight.
func (p *areaPool) reset(a *area) error {
	var flags [flagBytes / signalBytes]uint64
	for i := range a.peers {
		if i < mostFlags {
			flags[freeFlags/signalBytes+i] = 1
		}
	}
	return p.dev.CopyFromHost(a.base, unsafe.Pointer(&flags[0]), flagBytes)
}
