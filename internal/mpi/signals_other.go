//go:build !linux

package mpi

// signals is empty: libraries are loaded on Linux only.
type signals struct{}

func saveSignals() *signals { return nil }

func (*signals) restore() int { return 0 }
