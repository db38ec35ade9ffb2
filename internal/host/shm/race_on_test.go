//go:build race

package shm

// raceEnabled: the race detector does not see what is published through mapped memory, and takes it
// for a race.
const raceEnabled = true
