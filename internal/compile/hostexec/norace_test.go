//go:build !race

package hostexec

const raceEnabled = false
