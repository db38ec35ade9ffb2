package direct

// defaultTile is the bytes of a tile where a shape says 0.
const defaultTile = 2 << 10

// tilingOf is how slices of so many bytes are cut in a launch of n ranks: the bytes of a tile in
// the low half, and above it how many warps take part. Tiles are no larger than what gives each
// warp one, and fit scratch memory of half bytes; what is too small for all warps some do alone. It
// depends on nothing that ranks do not have alike.
func tilingOf(s Shape, n int, slice, half uint64) uint64 {
	warps := uint64(s.Blocks*s.Threads) / 32
	room := half / uint64(max(n-1, 1)) / tileSlots
	tile := uint64(s.Tile)
	if tile == 0 {
		tile = defaultTile
	}
	tile = max(min(tile, align((slice+warps-1)/warps, leastTile), room/warps&^(leastTile-1)), leastTile)
	warps = max(min(warps, (slice+tile-1)/tile, room/tile), 1)
	return tile | warps<<32
}

// apart is the kernel that does without what p needs of this operation: tiles of an allreduce go to
// where its destination lies on all ranks, so that must be one place of a slab, and the ranks must
// have promised it. Where it is not, they meet.
func (p program) apart(symmetric bool, dstPlace uint64) program {
	if p == tileAll && (!symmetric || dstPlace == 0) {
		return reduceAll
	}
	return p
}
