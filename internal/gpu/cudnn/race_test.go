//go:build race

package cudnn

const raceEnabled = true
