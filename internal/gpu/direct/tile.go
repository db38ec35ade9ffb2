package direct

// defaultTile is the bytes of a tile if a shape has 0.
const defaultTile = 2 << 10

// tilingOf divides slices of a launch of n ranks: the bytes of a tile in the low half, and above it
// the number of warps that take part. Tiles are small enough that each warp has one, and fit
// scratch memory of half bytes. Some warps do slices that are too small for all. The result is
// equal on all ranks.
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
