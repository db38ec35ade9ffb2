//go:build race

package launch

// manyRanks is smaller than elsewhere: the race detector makes handshakes ten times as long.
const manyRanks = 64
