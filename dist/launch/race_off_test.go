//go:build !race

package launch

// manyRanks is the number of ranks that meet in one store.
const manyRanks = 1024
